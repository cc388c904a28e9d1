//! Somebody enters a machine, works there, and leaves.

use std::time::Duration;

use serde_json::json;
use testkit::{World, eventually};

use super::{
    Team,
    client::{Said, Terminal, token},
    slice,
};

/// What has not come after this time does not come.
const QUIET: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_newcomer_types_nvidia_smi_and_sees_the_gpus_of_the_machine() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(2)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    let listed = terminal.run("nvidia-smi -L").await;
    assert_eq!(listed.matches("GPU ").count(), 2, "{listed}");
    assert!(listed.contains("H200"), "{listed}");
    assert_ne!(terminal.run("id -u").await, "0");
    assert_eq!(terminal.run("stty size").await, "24 80");
    terminal.control(json!({ "type": "resize", "columns": 132, "rows": 50 })).await;
    assert_eq!(terminal.run("stty size").await, "50 132");
    assert_eq!(terminal.run("printf '\\303\\244\\342\\202\\254'").await, "ä€");
    terminal.type_in("exit 3\n").await;
    let end = terminal.until_end().await;
    assert_eq!(end, json!({ "type": "session_closed", "reason": "exited", "exit_status": 3 }));
    let path = ann.path(&format!("/{id}/terminal-sessions"));
    let session = eventually("the end is noted", || async {
        let list = ann.api().get(&path).await.expect(200);
        Some(list["items"][0].clone()).filter(|session| session["ended_at"].is_string())
    })
    .await;
    assert_eq!((&session["end_reason"], &session["exit_status"]), (&json!("exited"), &json!(3)));
    assert_eq!(session["created_by"], ann.person.id.as_str());
    assert_eq!(ann.api().get(&format!("{path}?open=true")).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_second_window_is_told_of_the_first_and_takes_over_or_watches() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut first = Terminal::open(&world.server, &ann, &id).await;
    first.run("true").await;
    let session = first.session.clone();
    let (second, _) = token(&ann, &id, json!({ "session_id": session })).await;
    let refused = Terminal::attach(&world.server, &id, &second, session.clone(), 0).await;
    let Err(Said::Control(said)) = refused else { panic!("a second writer") };
    assert_eq!((&said["code"], &said["retryable"]), (&json!("writer_attached"), &json!(false)));

    // Nor does the refused window disturb the recording of the first, which is noted every few seconds.
    let printed =
        first.run("for n in 1 2 3 4 5 6 7; do head -c 200000 /dev/zero | tr '\\0' x; sleep 1; done").await;
    assert!(printed.len() >= 7 * 200_000, "{} bytes", printed.len());

    let (watch, _) = token(&ann, &id, json!({ "session_id": session, "access": "watch" })).await;
    let mut watcher = Terminal::attach(&world.server, &id, &watch, session.clone(), 0).await.unwrap();
    first.run("echo seen-by-both").await;
    watcher.until("end-of-command").await;
    let mut second = first.reattach(&world.server, &ann, &id).await;
    let end = first.until_end().await;
    assert_eq!(end, json!({ "type": "session_closed", "reason": "taken_over" }));
    assert_eq!(second.run("echo still-here").await, "still-here");
    watcher.until("still-here").await;

    // Whoever leaves on purpose leaves the program running.
    second.type_in("(while ! test -e done; do :; done; echo finished > result) &\n").await;
    second.run("true").await;
    second.control(json!({ "type": "detach" })).await;
    second.until_end().await;
    let mut third = second.reattach(&world.server, &ann, &id).await;
    third.run("touch done; wait").await;
    assert_eq!(third.run("cat result").await, "finished");
}

#[tokio::test]
async fn who_watches_a_recorded_session_sees_nothing_that_is_not_recorded() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut writer = Terminal::open(&world.server, &ann, &id).await;
    let session = writer.session.clone();
    let (watch, _) = token(&ann, &id, json!({ "session_id": session, "access": "watch" })).await;
    let mut watcher = Terminal::attach(&world.server, &id, &watch, session, 0).await.unwrap();
    // Nothing is printed after a prompt.
    writer.run("PS1='wait''ing> '").await;
    writer.run("(while ! test -e go; do :; done; echo un''seen; touch printed) & true").await;
    writer.until("waiting> ").await;
    watcher.until("end-of-command\r\n").await;
    watcher.until("end-of-command\r\n").await;
    watcher.until("waiting> ").await;
    let seen = watcher.received;
    writer.control(json!({ "type": "detach" })).await;
    writer.until_end().await;

    // It is printed while nobody writes, so that nobody records.
    let mut other = Terminal::open(&world.server, &ann, &id).await;
    other.run("touch go; while ! test -e printed; do :; done").await;
    assert!(tokio::time::timeout(QUIET, watcher.next()).await.is_err(), "it was not recorded");
    assert_eq!(watcher.received, seen);
    let mut writer = writer.reattach(&world.server, &ann, &id).await;
    writer.until("unseen").await;
    watcher.until("unseen").await;
}

#[tokio::test]
async fn a_session_is_ended_by_its_owner_and_by_an_admin_of_the_project_and_by_nobody_else() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let team = Team::new(&world).await;
    let (ann, bob) = (&team.ann, &team.bob.person);
    let id = ann.active(slice(1)).await;
    let path = |session: &str| ann.path(&format!("/{id}/terminal-sessions/{session}"));
    let mut terminal = Terminal::open(&world.server, ann, &id).await;
    terminal.run("true").await;
    team.bob_is("member").await;
    bob.api.delete(&path(&terminal.session)).await.refused(403, "ownership_required");
    ann.api().delete(&path(&terminal.session)).await.expect(204);
    let end = terminal.until_end().await;
    assert_eq!(end, json!({ "type": "session_closed", "reason": "ended" }));

    let mut terminal = Terminal::open(&world.server, ann, &id).await;
    terminal.run("true").await;
    team.bob_is("admin").await;
    bob.api.delete(&path(&terminal.session)).await.expect(204);
    assert_eq!(terminal.until_end().await["reason"], "ended");
    let again = json!({ "session_id": terminal.session });
    let minted = super::client::mint(ann, &id, again).await;
    minted.refused(409, "conflict");
}
