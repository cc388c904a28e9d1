//! A gateway whose object storage did not answer when it started.

use std::fs;

use serde_json::{Value, json};
use testkit::{Server, ServerOptions, Tenant, World, eventually_within};

use super::{
    client::{LATER, Said, Terminal, token},
    recorded::{Recorded, get},
    slice,
};

/// What whoever wants a terminal is told instead.
async fn refusal(server: &Server, tenant: &Tenant, allocation: &str) -> Value {
    let (text, session) = token(tenant, allocation, json!({})).await;
    match Terminal::attach(server, allocation, &text, session, 0).await {
        Err(Said::Control(said)) => said,
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn a_storage_that_answers_late_is_used_only_when_it_is_the_one_of_the_installation() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("mounted/objects");
    // Nothing is mounted there yet.
    let mount = scratch.path().join("mounted");
    fs::write(&mount, "no directory").unwrap();
    let second = world
        .replica_with(ServerOptions {
            config: format!("[objects]\ndirectory = \"{}\"\n", directory.display()),
            roles: "terminal-gateway".to_owned(),
            ..ServerOptions::default()
        })
        .await;
    let said = refusal(&second, &ann, &id).await;
    assert_eq!(
        (&said["code"], &said["retryable"]),
        (&json!("recording_unavailable"), &json!(true)),
        "{said}"
    );

    // The wrong directory, with recordings of another installation.
    fs::remove_file(&mount).unwrap();
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("storage-id"), "0193b3a0-0000-7000-8000-000000000001").unwrap();
    eventually_within(LATER, "it says that this is another storage", || async {
        second.log().contains("is not the one that the installation uses").then_some(())
    })
    .await;
    let said = refusal(&second, &ann, &id).await;
    assert_eq!(said["code"], "recording_unavailable", "{said}");
    assert!(!directory.join("recordings").exists(), "nothing is stored in it");
    // A session of the first gateway is not taken for one whose chunks somebody has removed.
    let mut first = Terminal::open(&world.server, &ann, &id).await;
    first.run("echo hello").await;
    let body = json!({ "session_id": first.session, "access": "take_over" });
    let (text, session) = token(&ann, &id, body).await;
    let refused = Terminal::attach(&second, &id, &text, session, first.received).await;
    match refused {
        Err(Said::Control(said)) => assert_eq!(said["code"], "recording_unavailable", "{said}"),
        other => panic!("{:?}", other.err()),
    }
    assert!(get(&ann, &id, &first.session).await["tampering"].is_null());

    fs::remove_dir_all(&mount).unwrap();
    fs::create_dir_all(&mount).unwrap();
    std::os::unix::fs::symlink(world.server.dir.path().join("data/objects"), &directory).unwrap();
    eventually_within(LATER, "it is the one of the installation", || async {
        second.log().contains("is the one that the installation uses").then_some(())
    })
    .await;
    let mut again = first.reattach(&second, &ann, &id).await;
    again.type_in("exit\n").await;
    assert_eq!(again.until_end().await["reason"], "exited");
    assert!(Recorded::download(&ann, &id, &first.session).await.verify().unwrap().complete);
}
