//! Somebody who can write to the object storage.

use nix::sys::signal::Signal;
use recording::{Fault, Recorder, Tail};
use testkit::{ServerOptions, Tenant, World, eventually_within};

use super::{
    client::{LATER, Said, Terminal, token},
    recorded::{Recorded, chunk, end, folder, get, sealed, uuid},
    slice,
};

/// Waits until the database knows of so many chunks. Answers how many.
async fn noted(world: &World, session: &str, least: i64) -> usize {
    let chunks = format!("SELECT chunks FROM terminal_recordings WHERE session_id = '{}'", uuid(session));
    eventually_within(LATER, "chunks are noted", || async {
        let count = world.db.one::<i64>(&chunks).await;
        (count >= least).then(|| usize::try_from(count).unwrap())
    })
    .await
}

/// What a client is told that wants to go on with a session.
async fn refused(world: &World, tenant: &Tenant, id: &str, terminal: &Terminal) -> serde_json::Value {
    let body = serde_json::json!({ "session_id": terminal.session, "access": "take_over" });
    eventually_within(LATER, "an answer about the recording", || async {
        let (text, session) = token(tenant, id, body.clone()).await;
        match Terminal::attach(&world.server, id, &text, session, terminal.received).await {
            Err(Said::Control(said)) if said["retryable"] == false => Some(said),
            Err(Said::Control(_)) => None,
            other => panic!("{:?}", other.map(drop)),
        }
    })
    .await
}

/// Changes what was printed: every chunk but the first one has output.
fn edit(folder: &std::path::Path, index: usize) {
    let text = std::fs::read_to_string(chunk(folder, index)).unwrap();
    let edited = text.replacen("\"o\",\"", "\"o\",\"x", 1);
    assert_ne!(text, edited);
    std::fs::write(chunk(folder, index), edited).unwrap();
}

#[tokio::test]
async fn nobody_goes_on_after_chunks_that_were_changed_and_the_recording_says_so() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let mut second = world.replica_with(gateway).await;
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    let session = terminal.session.clone();
    terminal.run("seq 1 100000").await;
    // The chunks that were stored meanwhile are noted together with the next one.
    noted(&world, &session, 2).await;
    second.kill();
    let count = noted(&world, &session, 2).await;
    // The last chunk that is known elsewhere: nothing in the storage contradicts the change.
    edit(&folder(&world, &session), count - 1);
    let said = refused(&world, &ann, &id, &terminal).await;
    assert_eq!(said["code"], "recording_tampered", "{said}");
    assert_eq!(get(&ann, &id, &session).await["tampering"], "chunk_head_mismatch");
    assert!(world.server.log().contains("a stored recording was changed by somebody else"));

    end(&world, &ann, &id, &session).await;
    let recording = sealed(&ann, &id, &session).await;
    assert_eq!(recording["complete"], false, "{recording}");
    assert_eq!(recording["tampering"], "chunk_head_mismatch");
    let fault = Recorded::download(&ann, &id, &session).await.verify().unwrap_err();
    let index = count as u64 - 1;
    let found =
        [Fault::Edited { index }, Fault::HeadMismatch { index }, Fault::AfterSeal { index: index + 1 }];
    assert!(found.contains(&fault), "{fault:?}");
}

/// Puts a chunk after the last one, which follows from it. Answers its index.
fn forge_next(folder: &std::path::Path, session: &str, count: usize) -> u64 {
    let last = std::fs::read(chunk(folder, count - 1)).unwrap();
    let tail = Tail::read(session.parse().unwrap(), count as u64 - 1, &last).unwrap();
    let (at, end) = (tail.header.started_at, tail.header.end_sequence);
    let mut recorder = Recorder::resume(tail);
    assert!(recorder.output(at, end, &[b'x'; 5000]).is_empty());
    let forged = recorder.flush().unwrap();
    std::fs::write(chunk(folder, count), forged.bytes).unwrap();
    forged.index
}

#[tokio::test]
async fn a_chunk_that_somebody_else_put_after_those_of_a_live_session_is_not_believed() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    let session = terminal.session.clone();
    terminal.run("echo hello").await;
    let count = noted(&world, &session, 2).await;
    let objects = folder(&world, &session);
    let index = forge_next(&objects, &session, count);
    // It is printed, and cannot be stored where the other chunk is.
    terminal.run("echo more").await;
    let said = terminal.until_end().await;
    assert_eq!((&said["code"], &said["retryable"]), (&"recording_tampered".into(), &false.into()), "{said}");
    let said = refused(&world, &ann, &id, &terminal).await;
    assert_eq!(said["code"], "recording_tampered", "{said}");
    assert_eq!(get(&ann, &id, &session).await["tampering"], "chunk_not_stored_by_gateway");

    // Without it, the session goes on where its own chunks end.
    let away = objects.with_extension("forged");
    std::fs::rename(chunk(&objects, count), &away).unwrap();
    let mut terminal = terminal.reattach(&world.server, &ann, &id).await;
    terminal.run("echo again").await;
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    let recording = sealed(&ann, &id, &session).await;
    assert_eq!(recording["tampering"], "chunk_not_stored_by_gateway", "{recording}");
    let recorded = Recorded::download(&ann, &id, &session).await;
    recorded.verify().unwrap();
    assert!(recorded.chunks.len() as u64 > index && recorded.output().contains("more\r\n"));
    assert!(!recorded.output().contains("xxxxx"));
}

#[tokio::test]
async fn a_recording_with_a_chunk_of_somebody_else_is_sealed_without_it() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    let session = terminal.session.clone();
    terminal.run("echo hello").await;
    let count = noted(&world, &session, 2).await;
    let index = forge_next(&folder(&world, &session), &session, count);
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    let ended = format!(
        "UPDATE terminal_sessions SET ended_at = ended_at - interval '1 minute' WHERE id = '{}'",
        uuid(&session)
    );
    world.db.sql(&ended).await;
    let recording = sealed(&ann, &id, &session).await;
    assert_eq!(recording["complete"], false, "{recording}");
    assert_eq!(recording["tampering"], "chunk_not_stored_by_gateway");
    let fault = Recorded::download(&ann, &id, &session).await.verify().unwrap_err();
    assert_eq!(fault, Fault::AfterSeal { index });
}

#[tokio::test]
async fn a_seal_that_somebody_else_put_there_is_not_believed() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut sessions: Vec<String> = Vec::new();
    for turn in 0..3 {
        let mut terminal = Terminal::open(&world.server, &ann, &id).await;
        terminal.run("echo hello").await;
        let own = folder(&world, &terminal.session).join("seal");
        match turn {
            // A good seal, of another session.
            1 => drop(std::fs::copy(folder(&world, &sessions[0]).join("seal"), own).unwrap()),
            2 => std::fs::write(own, "{}").unwrap(),
            _ => {}
        }
        terminal.type_in("exit\n").await;
        assert_eq!(terminal.until_end().await["reason"], "exited");
        sessions.push(terminal.session);
    }
    let recording = get(&ann, &id, &sessions[0]).await;
    assert!(recording["complete"] == true && recording["tampering"].is_null(), "{recording}");
    for (session, code) in sessions.iter().zip(["", "seal_session_foreign", "seal_unreadable"]).skip(1) {
        let recording = sealed(&ann, &id, session).await;
        assert_eq!((&recording["complete"], &recording["tampering"]), (&false.into(), &code.into()));
        let fault = Recorded::download(&ann, &id, session).await.verify().unwrap_err();
        assert_eq!(fault.code(), code);
    }
}

#[tokio::test]
async fn a_gateway_that_wakes_up_after_the_seal_adds_nothing() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let second = world.replica_with(gateway).await;
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    terminal.run("echo hello").await;
    // It has recorded more than it has stored.
    second.signal(Signal::SIGSTOP);
    let session = terminal.session.clone();
    end(&world, &ann, &id, &session).await;
    assert_eq!(sealed(&ann, &id, &session).await["complete"], false);
    let before = Recorded::download(&ann, &id, &session).await;
    second.signal(Signal::SIGCONT);
    eventually_within(LATER, "the gateway could not store", || async {
        second.log().contains("a recording could not be stored").then_some(())
    })
    .await;
    let after = Recorded::download(&ann, &id, &session).await;
    assert!(!after.verify().unwrap().complete);
    assert_eq!(after.chunks, before.chunks);
    assert!(get(&ann, &id, &session).await["tampering"].is_null());
}
