//! Trying webhooks on a machine that the server cannot reach.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{WebhookSink, eventually};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::kit::{Gpuaas, Place, finish, interrupt, line_of, text};

/// The name of the temporary webhook and its secret, as the command tells them.
fn listener_parse(line: &str) -> (String, String) {
    let (name, rest) = line.trim().split_once("Listening as ").unwrap().1.split_once(". ").unwrap();
    (name.to_owned(), rest.rsplit_once(' ').unwrap().1.to_owned())
}

async fn webhooks(user: &Gpuaas) -> Vec<Value> {
    user.json(&["webhooks", "list", "--org", "acme"]).await.as_array().unwrap().clone()
}

#[tokio::test]
async fn events_are_printed_verified_and_forwarded_and_the_temporary_webhook_is_deleted() {
    let place = Place::start().await;
    let (org, _) = place.org_and_project().await;
    let sink = WebhookSink::start().await;
    let forward = format!("{}hook", sink.url);
    let mut child =
        place.admin.start(&["webhooks", "listen", "--org", "acme", "--forward-to", &forward, "-o", "json"]);
    let (name, secret) = listener_parse(&line_of(&mut child, "Listening as").await);
    let listed = webhooks(&place.admin).await;
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &json!(name)));

    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    place.admin.run(&["webhooks", "test", &name, "--org", "acme"]).await.ok();
    let line =
        tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await.expect("a line in time");
    let seen: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
    assert_eq!((&seen["event_type"], &seen["verified"]), (&json!("webhook.test"), &json!(true)), "{seen}");
    assert_eq!((&seen["forwarded"]["status"], &seen["body"]["org_id"]), (&json!(200), &json!(org)), "{seen}");
    let taken = sink.taken().remove(0);
    assert_eq!(taken.header("gpuaas-signature"), text(&seen["headers"]["GPUaaS-Signature"]));
    assert_eq!(taken.header("gpuaas-delivery"), text(&seen["id"]));
    assert_eq!(serde_json::from_slice::<Value>(&taken.body).unwrap(), seen["body"]);
    // The receiver can check it with the secret that was told.
    let (time, tag) =
        taken.header("gpuaas-signature").strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
    let signed = [time.as_bytes(), b".", &taken.body].concat();
    assert_eq!(kernel::hex::encode(aws_lc_rs::hmac::sign(&key, &signed).as_ref()), tag);

    child.stdout = Some(lines.into_inner().into_inner());
    interrupt(&child);
    assert_eq!(finish(child).await.code, Some(0));
    assert!(webhooks(&place.admin).await.is_empty());
}

#[tokio::test]
async fn listening_ends_after_so_many_messages_and_says_where_nothing_listens() {
    let place = Place::start().await;
    place.org_and_project().await;
    let nobody = format!("http://127.0.0.1:{}/", testkit::free_port());
    let listen = ["webhooks", "listen", "--org", "acme", "--count", "1"];
    let mut child = place.admin.start(&[&listen[..], &["--forward-to", &nobody]].concat());
    let (name, _) = listener_parse(&line_of(&mut child, "Listening as").await);
    place.admin.run(&["webhooks", "test", &name, "--org", "acme"]).await.ok();
    let out = finish(child).await.ok();
    assert!(
        out.contains("  verified  webhook.test  dlv_") && out.contains("-> nothing listens there"),
        "{out}"
    );
    eventually("it is deleted", || async { webhooks(&place.admin).await.is_empty().then_some(()) }).await;

    let said = place.admin.run(&[&listen[..], &["--forward-to", "localhost:3000"]].concat()).await.fails(1);
    assert!(said.contains("http://localhost:3000/hook"), "{said}");
    let said = place.admin.run(&[&listen[..], &["--event", "nothing"]].concat()).await.fails(1);
    assert!(said.contains("choose from billing.low_balance_warning"), "{said}");
    assert!(webhooks(&place.admin).await.is_empty());
}
