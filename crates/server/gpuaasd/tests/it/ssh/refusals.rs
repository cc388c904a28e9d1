//! Who does not get in, and who is thrown out.

use std::{fs, process::Stdio, time::Duration};

use futures_util::{StreamExt as _, future::join_all};
use serde_json::{Value, json};
use testkit::{Tenant, World};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Message, http::header};

use super::{
    Launched,
    laptop::{HOST, Laptop, succeeded, text},
};
use crate::terminals::client::{SOON, Socket, close_code, connect_with, request};

const NOT_ACCEPTED: Option<u16> = Some(4401);
/// What revocation may take.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);

pub async fn mint(tenant: &Tenant, allocation: &str) -> testkit::Answer {
    tenant.api().post(&tenant.path(&format!("/{allocation}/ssh-token")), json!({})).await
}

pub async fn token(tenant: &Tenant, allocation: &str) -> String {
    let made = mint(tenant, allocation).await.expect(201);
    made["token"].as_str().unwrap().to_owned()
}

pub async fn connect(world: &World, allocation: &str, token: &str) -> Socket {
    let mut request = request(&world.server, &format!("/ws/ssh/{allocation}"));
    let headers = request.headers_mut();
    headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, "gpuaas.ssh.v1".parse().unwrap());
    connect_with(&world.server, request).await.expect("a WebSocket")
}

/// The next control message.
pub async fn control(socket: &mut Socket) -> Value {
    loop {
        match tokio::time::timeout(SOON, socket.next()).await.expect("something is said") {
            Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Value::Null,
            Some(Ok(_)) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_enters_and_whoever_loses_the_right_is_thrown_out() {
    let launched = Launched::new().await;
    let Launched { world, bo, cy, id, .. } = &launched;
    let laptop = Laptop::for_creator(&launched);
    succeeded(&laptop.ssh_config().await);

    // Tokens: of somebody else, of another kind, used, foreign, late.
    let eve = world.tenant("eve").await;
    mint(&eve, id).await.refused(404, "not_found");
    mint(cy, id).await.refused(403, "ownership_required");
    let used = token(bo, id).await;
    let mut socket = connect(world, id, &used).await;
    assert_eq!(control(&mut socket).await, json!({ "type": "ready" }));
    assert_eq!(close_code(connect(world, id, &used).await).await, NOT_ACCEPTED, "a replay");
    drop(socket);
    let other = kernel::Ambient::system().id::<kernel::ids::AllocationId>().to_string();
    assert_eq!(close_code(connect(world, &other, &token(bo, id).await).await).await, NOT_ACCEPTED);
    let terminal = crate::terminals::client::token(bo, id, json!({})).await.0;
    assert_eq!(close_code(connect(world, id, &terminal).await).await, NOT_ACCEPTED, "of a terminal");
    let late = token(bo, id).await;
    world.db.sql("UPDATE terminal_tokens SET expires_at = now() - interval '1 second'").await;
    assert_eq!(close_code(connect(world, id, &late).await).await, NOT_ACCEPTED, "expired");
    for bad in ["", "gpterm_", &late[1..]] {
        assert_eq!(close_code(connect(world, id, bad).await).await, NOT_ACCEPTED, "{bad}");
    }

    // A machine with another key.
    let known = laptop.path(&format!(".config/gpuaas/ssh/{id}.known_hosts"));
    let right = fs::read_to_string(&known).unwrap();
    let stranger = launched.host.key("stranger").public;
    let stranger = stranger.split(' ').take(2).collect::<Vec<_>>().join(" ");
    fs::write(&known, format!("{id} {stranger}\n")).unwrap();
    let ran = laptop.ssh(&[HOST, "true"]).await;
    let said = text(&ran.stderr);
    assert!(!ran.status.success() && said.contains("HOST IDENTIFICATION HAS CHANGED"), "{said}");
    fs::write(&known, right).unwrap();

    whoever_loses_the_right_is_out_in_time(&launched).await;

    // Signed out in the middle of a session.
    let mut ssh = laptop.ssh_command(&[HOST, "echo here; exec sleep 1000"]);
    let mut ssh = ssh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut began = [0; 4];
    std::io::Read::read_exact(ssh.stdout.as_mut().unwrap(), &mut began).unwrap();
    let me = bo.api().get("/api/v1/me").await.expect(200);
    let sign_in = me["session_id"].as_str().unwrap();
    let again = bo.api().with_token(world.idp.token("bo", "other"));
    let at = Instant::now();
    again.delete(&format!("/api/v1/me/sessions/{sign_in}")).await.expect(204);
    let ended = tokio::task::spawn_blocking(move || ssh.wait_with_output());
    let ended = tokio::time::timeout(SOON, ended).await.expect("ssh ends").unwrap().unwrap();
    assert!(at.elapsed() < REVOKED_WITHIN, "{:?}", at.elapsed());
    assert_eq!(ended.status.code(), Some(255), "{}", text(&ended.stderr));
    let refused = laptop.ssh(&[HOST, "true"]).await;
    assert!(!refused.status.success());
}

/// Somebody with access gets in, until it is taken away, they become a viewer, or they leave the project.
async fn whoever_loses_the_right_is_out_in_time(launched: &Launched) {
    let Launched { world, bo, cy, id, .. } = launched;
    let grants = bo.path(&format!("/{id}/grants"));
    let grant = json!({ "user_id": cy.person.id });
    let member = format!("/api/v1/projects/{}/members/{}", bo.project, cy.person.id);
    bo.api().post(&grants, grant.clone()).await.expect(201);
    for lost in ["access", "role", "membership"] {
        let mut socket = connect(world, id, &token(cy, id).await).await;
        assert_eq!(control(&mut socket).await["type"], "ready", "{lost}");
        match lost {
            "access" => bo.api().delete(&format!("{grants}/{}", cy.person.id)).await.expect(204),
            "role" => world.admin.put(&member, json!({ "role": "viewer" })).await.expect(200),
            _ => world.admin.delete(&member).await.expect(204),
        };
        let revoked = Instant::now();
        assert_eq!(control(&mut socket).await["code"], "revoked", "{lost}");
        assert!(revoked.elapsed() < REVOKED_WITHIN, "{lost}: {:?}", revoked.elapsed());
        let minted = mint(cy, id).await;
        match lost {
            "access" => {
                minted.refused(403, "ownership_required");
                bo.api().post(&grants, grant.clone()).await.expect(201);
            }
            "role" => {
                minted.refused(403, "insufficient_permissions");
                world.admin.put(&member, json!({ "role": "member" })).await.expect(200);
            }
            _ => drop(minted.refused(404, "not_found")),
        }
    }
}

#[tokio::test]
async fn a_simulated_machine_has_no_ssh_and_the_program_says_what_to_use() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(json!({ "sku": "h200-sxm-slice", "gpus": 1, "name": "train-1" })).await;
    let mut socket = connect(&world, &id, &token(&ann, &id).await).await;
    let said = control(&mut socket).await;
    assert_eq!((&said["code"], &said["retryable"]), (&json!("not_supported"), &json!(false)), "{said}");

    // What the product sets, and tests lift.
    let lifted = "DELETE FROM policy_values WHERE key = 'rate_limit.ssh_token_requests_per_minute'";
    world.db.sql(lifted).await;
    world.policy("rate_limit.ssh_token_requests_per_minute", 20).await;
    let statuses = join_all((0..60).map(|_| async { mint(&ann, &id).await.status })).await;
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert!(count(201) >= 20 && count(429) > 0 && count(201) + count(429) == 60, "{statuses:?}");

    let home = tempfile::tempdir().unwrap();
    let mut gpuaas = crate::tools::command(testkit::program("gpuaas"));
    gpuaas
        .args(["ssh", "train-1"])
        .env("HOME", home.path())
        .env("GPUAAS_SERVER", &world.server.base)
        .env("GPUAAS_PROJECT", &ann.project)
        .env("GPUAAS_TOKEN", ann.api().token.clone().unwrap());
    let ran = crate::tools::run(gpuaas, SOON).await;
    let said = text(&ran.stderr);
    assert!(ran.status.code() == Some(5) && said.contains("gpuaas terminal train-1"), "{said}");
}
