//! What policy and known host keys do not allow.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use testkit::World;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use super::{
    Launched,
    laptop::{HOST, Laptop, succeeded, text},
    refusals::{connect, control, mint, token},
};
use crate::terminals::client::SOON;

/// A change of something that did not move.
const CONFLICT: Option<i32> = Some(5);

async fn set(world: &World, key: &str, value: Value) {
    world.admin.put(&format!("/api/v1/platform/policies/{key}"), json!({ "value": value })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_with_their_time_and_what_is_not_recorded_or_known_is_refused() {
    let launched = Launched::new().await;
    let Launched { world, bo, id, .. } = &launched;
    let laptop = Laptop::for_creator(&launched);
    succeeded(&laptop.ssh_config().await);
    time_to_live(&launched, &laptop).await;

    // Sessions on the machine are recorded, and SSH cannot be.
    set(world, "ssh.when_recording_required", json!("refuse")).await;
    let refused = mint(bo, id).await.refused(422, "unprocessable");
    assert_eq!(refused["error"]["details"]["policy"], "ssh.when_recording_required");
    let ran = laptop.ssh(&[HOST, "true"]).await;
    let said = text(&ran.stderr);
    assert!(!ran.status.success() && said.contains("gpuaas terminal"), "{said}");
    set(world, "terminal.recording", json!("off")).await;
    assert_eq!(succeeded(&laptop.ssh(&[HOST, "echo not recorded"]).await), "not recorded");
    set(world, "terminal.recording", json!("output")).await;
    set(world, "ssh.when_recording_required", json!("allow")).await;
    assert_eq!(succeeded(&laptop.ssh(&[HOST, "echo allowed"]).await), "allowed");

    // The control plane names other keys for the same machine.
    let stranger = launched.host.key("stranger").public;
    let stranger = stranger.split(' ').take(2).collect::<Vec<_>>().join(" ");
    world.db.sql(&format!("UPDATE allocations SET ssh_host_keys = ARRAY['{stranger}']")).await;
    for arguments in [&["ssh", "train-1", "true"][..], &["ssh-config", "--print"]] {
        let ran = laptop.gpuaas(arguments).await;
        let said = text(&ran.stderr);
        assert!(ran.status.code() == CONFLICT && said.contains("HAVE CHANGED"), "{said}");
        assert!(said.contains(&format!("{id}.known_hosts")), "it says what to do: {said}");
    }
    assert_eq!(succeeded(&laptop.ssh(&[HOST, "echo known"]).await), "known", "the keys that are known stay");
}

/// What is open ends with a code and words for people; what is opened later has its own time.
async fn time_to_live(launched: &Launched, laptop: &Laptop) {
    const SECONDS: u64 = 10;
    let Launched { world, bo, id, .. } = launched;
    let mut before = connect(world, id, &token(bo, id).await).await;
    assert_eq!(control(&mut before).await["type"], "ready");
    set(world, "ssh.session_max_ttl_seconds", json!(SECONDS)).await;
    let began = Instant::now();
    let watched = async {
        let mut socket = connect(world, id, &token(bo, id).await).await;
        assert_eq!(control(&mut socket).await["type"], "ready");
        let said = control(&mut socket).await;
        assert_eq!((&said["code"], &said["retryable"]), (&json!("expired"), &json!(false)), "{said}");
        match tokio::time::timeout(SOON, socket.next()).await.expect("an end") {
            Some(Ok(Message::Close(Some(frame)))) => assert_eq!(frame.reason.as_str(), "expired"),
            other => panic!("{other:?}"),
        }
    };
    let ((), ran) = tokio::join!(watched, laptop.ssh(&[HOST, "exec sleep 1000"]));
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(255), "{said}");
    assert!(said.contains("ssh.session_max_ttl_seconds") && said.contains("Connect again"), "{said}");
    assert!(began.elapsed() >= Duration::from_secs(SECONDS));
    // The one that was open has the time of its own token.
    assert!(tokio::time::timeout(Duration::from_secs(1), control(&mut before)).await.is_err(), "it is open");
    set(world, "ssh.session_max_ttl_seconds", json!(43_200)).await;
}
