//! The terminal in a real browser: headless Chromium, the real server, a simulated node with a real shell.
//!
//! `journeys.mjs` is the person with the browser. Between browser and server it has a wire that it cuts and mends.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    NEW_PASSWORD, Person, ServerOptions, Tenant, World, free_port, made_up_key, sign_in_first_admin,
};

use crate::tools::{command, root, run, tool};

const LIMIT: Duration = Duration::from_secs(180);
const FUNDS_MINOR: i64 = 9_000;
const EMAIL: &str = "admin@localhost";

fn with_setting(name: &str, value: &str) -> ServerOptions {
    ServerOptions { env: vec![(name.to_owned(), value.to_owned())], ..ServerOptions::default() }
}

/// Somebody with an account of the built-in issuer, which is what a browser signs in to.
async fn account_owner(world: &World) -> Tenant {
    let api = sign_in_first_admin(&world.server.base, &world.server.dir.path().join("data")).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let me = api.get("/api/v1/me").await.expect(200);
    let orgs = api.get("/api/v1/orgs").await.expect(200);
    let org_id = text(&orgs["items"][0]["id"]);
    let projects = format!("/api/v1/orgs/{org_id}/projects");
    let project = api.post(&projects, json!({ "name": "lab", "slug": "lab" })).await.expect(201);
    let person = Person { name: "admin".to_owned(), id: text(&me["id"]), org_id, api };
    person.add_key("laptop", &made_up_key()).await;
    world.fund(&person.org_id, FUNDS_MINOR).await;
    Tenant { person, project: text(&project["id"]) }
}

#[tokio::test]
async fn a_person_works_in_a_terminal_in_the_browser_and_loses_nothing() {
    let origin = format!("http://127.0.0.1:{}", free_port());
    let options = with_setting("GPUAAS__SERVER__PUBLIC_URL", &origin);
    let world = World::start_simulated_with(options).await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let owner = account_owner(&world).await;
    let id = owner.active(json!({ "sku": "h200-sxm-slice", "gpus": 2, "name": "train-1" })).await;

    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, NEW_PASSWORD).unwrap();
    let screenshots = std::env::var_os("GPUAAS_SCREENSHOTS").unwrap_or_else(|| dir.path().into());
    let mut journeys = command("node");
    journeys
        .arg(root().join("crates/server/gpuaasd/tests/it/browser_terminal/journeys.mjs"))
        .env("NODE_TOOLS", tool("npm"))
        .env("ORIGIN", &origin)
        .env("SERVER_PORT", world.server.base.rsplit(':').next().unwrap())
        .env("PROJECT", &owner.project)
        .env("ALLOCATION", &id)
        .env("EMAIL", EMAIL)
        .env("PASSWORD_FILE", &password)
        .env("SERVER_LOG", world.server.log_path())
        .env("SCREENSHOTS", &screenshots);
    let output = run(journeys, LIMIT).await;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{said}");
}

#[tokio::test]
async fn the_page_is_framed_by_nobody_and_its_files_are_kept_for_ever() {
    let world = World::start().await;
    let page = world.server.api().get("/terminal/proj_1/alloc_1").await;
    assert_eq!(page.status, 200, "is web/dist built (scripts/web.sh) and gpuaasd after it? {}", page.text);
    let header = |name: &str| page.headers[name].to_str().unwrap().to_owned();
    let policy = header("content-security-policy");
    for part in ["default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(
        ["x-content-type-options", "referrer-policy", "cross-origin-opener-policy", "cache-control"]
            .map(header),
        ["nosniff", "no-referrer", "same-origin", "no-store"]
    );
    let script = page.text.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    for (accepted, encoding) in [("identity", None), ("gzip", Some("gzip")), ("gzip, br", Some("br"))] {
        let request = world.server.api().request(reqwest::Method::GET, script);
        let answer = world.server.api().send(request.header("accept-encoding", accepted)).await;
        let got = answer.headers.get("content-encoding").map(|value| value.to_str().unwrap());
        assert_eq!((answer.status, got), (200, encoding), "{script}");
        assert_eq!(answer.headers["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(answer.headers["content-type"], "text/javascript; charset=utf-8");
    }
    world.server.api().get("/assets/nothing.js").await.refused(404, "not_found");
}

#[tokio::test]
async fn where_people_sign_in_elsewhere_the_page_says_what_to_do() {
    let world = World::start_with(with_setting("GPUAAS__AUTH__BUILTIN", "false")).await;
    let page = world.server.api().get("/terminal/proj_1/alloc_1").await;
    assert_eq!(page.status, 501);
    for part in [world.idp.issuer.as_str(), "gpuaas terminal alloc_1"] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
}
