//! Browser and device sign-in, stored tokens, sessions, signing out.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use testkit::{Api, Browser, eventually};

use crate::kit::{PASSWORD, Place, enter, finish, line_of, text};

fn token(place: &Place) -> String {
    text(&place.admin.credentials()["servers"][&place.server.base]["access_token"])
}

#[tokio::test]
async fn a_person_signs_in_with_a_browser_sees_who_they_are_and_signs_out_for_good() {
    let place = Place::start().await;
    let me = place.admin.json(&["auth", "whoami"]).await;
    assert_eq!(
        (&me["email"], &me["platform_roles"]),
        (&json!("admin@localhost"), &json!(["platform_admin"]))
    );
    let mode = place.admin.file("credentials.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let sessions = place.admin.json(&["auth", "sessions", "list"]).await;
    let current: Vec<&Value> = sessions.as_array().unwrap().iter().filter(|s| s["current"] == true).collect();
    assert_eq!(current[0]["id"], me["session_id"]);

    let api = Api::new(&place.server.base, Some(token(&place)));
    api.get("/api/v1/me").await.expect(200);
    assert_eq!(place.admin.run(&["auth", "token"]).await.ok().trim(), token(&place));
    assert_eq!(place.admin.json(&["auth", "token"]).await["token_type"], "Bearer");
    place.admin.run(&["auth", "logout"]).await.ok();
    place.admin.run(&["auth", "token"]).await.fails(3);
    assert_eq!(place.admin.credentials()["servers"], json!({}));
    eventually("the token stops working", || async {
        (api.get("/api/v1/me").await.status == 401).then_some(())
    })
    .await;
    let said = place.admin.run(&["auth", "whoami"]).await.fails(3);
    assert!(said.contains("not signed in") && said.contains("gpuaas auth login"), "{said}");
    let again = place.admin.run(&["auth", "logout"]).await;
    assert!(again.err.contains("were not signed in"), "{again:?}");
}

#[tokio::test]
async fn a_device_is_let_in_from_a_browser_elsewhere() {
    let place = Place::start().await;
    let device = place.gpuaas();
    let mut child = device.start(&["auth", "login", "--device"]);
    let line = line_of(&mut child, "user_code=").await;
    let address = line.split_whitespace().last().unwrap();
    let mut browser = Browser::default();
    let page = browser.open(address.parse().unwrap(), None).await;
    let page = enter(&mut browser, page, "admin@localhost", PASSWORD).await;
    browser.submit(&page, "/auth/device", &[("decision", "approve")], None).await;
    let ran = finish(child).await;
    assert!(ran.err.contains("Signed in to"), "{ran:?}");
    assert_eq!(device.json(&["auth", "whoami"]).await["email"], "admin@localhost");
    // Both are sessions of one person; one ends the other.
    let sessions = device.json(&["auth", "sessions", "list"]).await;
    let other = sessions.as_array().unwrap().iter().find(|s| s["current"] == false).unwrap();
    device.run(&["auth", "sessions", "revoke", &text(&other["id"])]).await.ok();
    eventually("the other session ends", || async {
        (place.admin.run(&["auth", "whoami"]).await.code == Some(3)).then_some(())
    })
    .await;
    device.run(&["auth", "whoami"]).await.ok();
}

#[tokio::test]
async fn many_processes_with_an_expired_token_refresh_it_once() {
    let place = Place::start().await;
    let mut stored = place.admin.credentials();
    let before = token(&place);
    stored["servers"][&place.server.base]["expires_at"] = json!(0);
    place.admin.write_credentials(&stored, 0o600);
    // A refresh token that is used twice ends the session, so one of these would fail if they raced.
    let runs = (0..6).map(|_| place.admin.run(&["auth", "whoami"]));
    for ran in futures_util::future::join_all(runs).await {
        ran.ok();
    }
    assert_ne!(token(&place), before);
    place.admin.run(&["auth", "whoami"]).await.ok();
}

#[tokio::test]
async fn tokens_that_others_can_read_are_not_used() {
    let place = Place::start().await;
    let stored = place.admin.credentials();
    for mode in [0o640, 0o604, 0o660] {
        place.admin.write_credentials(&stored, mode);
        let said = place.admin.run(&["auth", "whoami"]).await.fails(3);
        assert!(said.contains("can be read by others") && !said.contains(&token(&place)), "{said}");
    }
    place.admin.write_credentials(&stored, 0o600);
    place.admin.run(&["auth", "whoami"]).await.ok();
    // The other way to bring a token.
    let other = place.gpuaas().env("GPUAAS_TOKEN", &token(&place));
    assert_eq!(other.json(&["auth", "whoami"]).await["email"], "admin@localhost");
    assert!(!other.file("credentials.json").exists());
    other.run(&["auth", "logout"]).await.fails(1);
}

#[tokio::test]
async fn an_answer_with_another_state_does_not_sign_in() {
    let place = Place::start().await;
    let other = place.gpuaas();
    let mut child = other.start(&["auth", "login", "--no-browser"]);
    let address: url::Url = line_of(&mut child, "/auth/authorize?").await.trim().parse().unwrap();
    let redirect = address.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
    let mut browser = Browser::default();
    for query in ["code=stolen&state=guessed", "code=stolen", ""] {
        let page = browser.open(format!("{redirect}?{query}").parse().unwrap(), None).await;
        assert_eq!(page.status, 404, "{query}");
    }
    // It still waits for the right one.
    let page = browser.open(address, None).await;
    let page = enter(&mut browser, page, "admin@localhost", PASSWORD).await;
    assert!(page.html.contains("You are signed in"), "{}", page.html);
    finish(child).await.ok();
}
