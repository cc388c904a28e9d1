//! Recordings of real sessions: whole, whatever dies, and seen by whom they concern.

use std::path::Path;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use recording::{Event, Fault};
use serde_json::json;
use testkit::{S3Server, ServerOptions, Tenant, World, eventually_within};

use super::{
    Team,
    client::{LATER, Said, Terminal, mint, token},
    processes::{session_count, sleeping},
    recorded::{Recorded, chunk, end, folder, get, path, sealed, uuid, view},
    slice,
};

/// Leaves a shell, and reads until it has ended.
async fn leave(terminal: &mut Terminal) {
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
}

fn screen(bytes: &[u8]) -> String {
    let size = |number| std::num::NonZeroU16::new(number).unwrap();
    let mut parser = vt100::Parser::new(size(24), size(80), 0);
    parser.process(bytes);
    parser.screen().contents_formatted()
}

async fn assert_faults_are_named(tenant: &Tenant, id: &str, session: &str, folder: &Path) {
    let stored = |index| std::fs::read(chunk(folder, index)).unwrap();
    let (first, second) = (stored(0), stored(1));
    let fault = async || Recorded::download(tenant, id, session).await.verify().unwrap_err();
    let edited = String::from_utf8(second.clone()).unwrap().replacen("\"o\",\"", "\"o\",\"x", 1);
    std::fs::write(chunk(folder, 1), edited).unwrap();
    assert_eq!(fault().await, Fault::Edited { index: 1 });
    std::fs::remove_file(chunk(folder, 1)).unwrap();
    assert_eq!(fault().await, Fault::Missing { from: 1, to: 2 });
    std::fs::write(chunk(folder, 0), &second).unwrap();
    std::fs::write(chunk(folder, 1), &first).unwrap();
    assert_eq!(fault().await, Fault::Reordered { position: 0, found: 1 });
    std::fs::write(chunk(folder, 0), &first).unwrap();
    std::fs::write(chunk(folder, 1), &second).unwrap();
}

#[tokio::test]
async fn a_session_replays_to_the_same_screen_and_whatever_is_changed_is_named() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("printf '\\033[31mred\\033[0m ä😀\\033[5;10Hthere'").await;
    terminal.control(json!({ "type": "resize", "columns": 100, "rows": 30 })).await;
    terminal.run("seq 1 60000").await;
    leave(&mut terminal).await;
    let session = terminal.session.clone();
    // Sealed before the client was told of the end.
    let recording = get(&ann, &id, &session).await;
    assert_eq!((&recording["complete"], &recording["mode"]), (&json!(true), &json!("output")), "{recording}");
    assert_eq!(recording["output_bytes"].as_u64(), Some(terminal.received));
    let recorded = Recorded::download(&ann, &id, &session).await;
    let verified = recorded.verify().unwrap();
    assert!(verified.complete && verified.reason == "exited", "{verified:?}");
    assert_eq!(recorded.output().as_bytes(), terminal.output);
    assert_eq!(screen(recorded.output().as_bytes()), screen(&terminal.output));
    assert!(recorded.events().contains(&Event::Resize { columns: 100, rows: 30 }));
    assert!(recorded.input().is_empty(), "only output is recorded");
    assert!(recorded.chunks.len() > 3, "{} chunks", recorded.chunks.len());
    assert_faults_are_named(&ann, &id, &session, &folder(&world, &session)).await;
    let views =
        "SELECT count(*) FROM audit_logs WHERE action = 'terminal.recording_view' AND result = 'allowed'";
    assert_eq!(world.db.one::<i64>(views).await, 4, "every view is in the audit trail");
}

#[tokio::test]
async fn a_killed_gateway_leaves_all_but_the_last_chunk_and_another_one_goes_on_without_a_gap() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = || ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let (mut second, third) = (world.replica_with(gateway()).await, world.replica_with(gateway()).await);
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    let session = terminal.session.clone();
    terminal.run("seq 1 100000").await;
    terminal.run("echo in-the-last-chunk").await;
    let mut all = std::mem::take(&mut terminal.output);
    second.kill();
    let left = Recorded::download(&ann, &id, &session).await;
    assert_eq!(left.verify(), Err(Fault::NotSealed { count: left.chunks.len() as u64 }));
    assert!(left.chunks.len() > 3 && all.starts_with(left.output().as_bytes()));
    assert!(!left.output().contains("in-the-last-chunk\r\n"));

    let mut terminal = terminal.reattach(&world.server, &ann, &id).await;
    terminal.run("seq 1 50000").await;
    all.append(&mut terminal.output);
    // Another client takes over while this gateway lives, and while it has not stored everything.
    let mut terminal = terminal.reattach(&third, &ann, &id).await;
    terminal.run("echo taken-over").await;
    leave(&mut terminal).await;
    all.append(&mut terminal.output);
    let recorded = Recorded::download(&ann, &id, &session).await;
    let verified = recorded.verify().unwrap();
    assert!(verified.complete, "{verified:?}");
    assert_eq!(recorded.output(), String::from_utf8_lossy(&all));

    // Nobody comes back: the recording is sealed all the same, and says that its end is not known.
    let mut second = world.replica_with(gateway()).await;
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    let session = terminal.session.clone();
    terminal.run("seq 1 100000").await;
    second.kill();
    // Without what the gateway was writing when it died.
    std::fs::write(folder(&world, &session).join("00000099#1"), "unfinished").unwrap();
    let objects = std::fs::read_dir(folder(&world, &session)).unwrap().map(|file| file.unwrap().file_name());
    let stored = objects.filter(|name| name.to_str().unwrap().parse::<u64>().is_ok()).count();
    end(&world, &ann, &id, &session).await;
    let recording = sealed(&ann, &id, &session).await;
    assert_eq!(recording["complete"], false);
    let verified = Recorded::download(&ann, &id, &session).await.verify().unwrap();
    assert!(!verified.complete && verified.reason == "ended", "{verified:?}");
    // Where a gateway that is only slow would have stored its next chunk, there is one that closes the recording.
    let recorded = Recorded::download(&ann, &id, &session).await;
    assert_eq!((recorded.chunks.len(), recorded.events().last()), (stored + 1, Some(&Event::Closed)));
    let left = std::fs::read_dir(folder(&world, &session)).unwrap().count();
    assert_eq!(left, stored + 2, "chunks and the seal, and nothing that the gateway left unfinished");
}

#[tokio::test]
async fn without_storage_the_session_waits_then_ends_and_nothing_is_shown_that_is_not_recorded_later() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("PS1=; stty -echo").await;
    let objects = world.server.dir.path().join("data/objects");
    let away = world.server.dir.path().join("data/away");
    std::fs::rename(&objects, &away).unwrap();
    std::fs::write(&objects, "").unwrap();
    let before = terminal.received;
    terminal.type_in("seq 1 400000; echo en''d\n").await;
    let end = terminal.until_end().await;
    assert_eq!(end["code"], "recording_unavailable", "{end}");
    assert_eq!(end["retryable"], true);
    let shown = terminal.received - before;
    assert!(shown < 1024 * 1024, "{shown} bytes were shown of a program that should wait");

    // A new session shows nothing.
    let (text, session) = token(&ann, &id, json!({})).await;
    match Terminal::attach(&world.server, &id, &text, session, 0).await {
        Err(Said::Control(said)) => assert_eq!(said["code"], "recording_unavailable", "{said}"),
        other => panic!("{:?}", other.map(drop)),
    }

    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(&away, &objects).unwrap();
    let mut all = std::mem::take(&mut terminal.output);
    let mut terminal = terminal.reattach(&world.server, &ann, &id).await;
    terminal.until("end\r\n").await;
    leave(&mut terminal).await;
    all.append(&mut terminal.output);
    let recorded = Recorded::download(&ann, &id, &terminal.session).await;
    assert!(recorded.verify().unwrap().complete);
    assert_eq!(recorded.output(), String::from_utf8_lossy(&all));
    assert!(world.server.log().contains("a recording could not be stored"), "it is logged");
}

#[tokio::test]
async fn what_a_shell_printed_last_while_nobody_was_attached_is_recorded_when_its_owner_comes_back() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let mut second = world.replica_with(gateway).await;
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    let (session, marker) = (terminal.session.clone(), format!("97{}", std::process::id()));
    terminal.type_in(&format!("sleep {marker}; echo la''st-words; exit 7\n")).await;
    let sleeping = || async { sleeping(&marker).first().copied() };
    let sleep = eventually_within(LATER, "the shell waits", sleeping).await;
    second.kill();
    kill(Pid::from_raw(sleep), Signal::SIGTERM).unwrap();
    let is_over = || async { (session_count(&session) == 0).then_some(()) };
    eventually_within(LATER, "the shell has ended", is_over).await;
    let mut terminal = terminal.reattach(&world.server, &ann, &id).await;
    let end = terminal.until_end().await;
    assert_eq!((&end["reason"], &end["exit_status"]), (&json!("exited"), &json!(7)), "{end}");
    assert!(String::from_utf8_lossy(&terminal.output).contains("last-words\r\n"));
    let recording = sealed(&ann, &id, &session).await;
    assert_eq!(recording["complete"], true, "{recording}");
    let recorded = Recorded::download(&ann, &id, &session).await;
    assert!(recorded.verify().unwrap().complete && recorded.output().contains("last-words\r\n"));
}

#[tokio::test]
async fn owners_and_admins_see_a_recording_nobody_else_does_and_retention_deletes_it() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let team = Team::new(&world).await;
    team.bob_is("member").await;
    let (ann, bob) = (&team.ann, &team.bob);
    let id = ann.active(slice(1)).await;
    team.bob_may_enter(&id).await;
    let mut sessions = Vec::new();
    for tenant in [ann, bob] {
        let mut terminal = Terminal::open(&world.server, tenant, &id).await;
        terminal.run("echo hello").await;
        leave(&mut terminal).await;
        sessions.push(terminal.session);
    }
    let (of_ann, of_bob) = (sessions[0].as_str(), sessions[1].as_str());
    let listed = async |tenant: &Tenant| {
        let page = tenant.api().get(&path(tenant, &id, "")).await.expect(200);
        page["items"].as_array().unwrap().iter().map(|item| item["session_id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed(ann).await, [json!(of_ann), json!(of_bob)], "an admin of the project sees all");
    assert_eq!(listed(bob).await, [json!(of_bob)]);
    assert!(Recorded::download(ann, &id, of_bob).await.verify().unwrap().complete);
    assert!(Recorded::download(bob, &id, of_bob).await.verify().unwrap().complete);
    let recording = format!("/{of_ann}");
    assert_eq!(
        bob.api().get(&path(bob, &id, &recording)).await.expect(403)["error"]["code"],
        "ownership_required"
    );
    assert_eq!(view(bob, &id, of_ann).await.expect(403)["error"]["code"], "ownership_required");
    // A view of somebody else's is none.
    let opened = view(ann, &id, of_bob).await.expect(201);
    let chunks = format!("/{of_bob}/views/{}/chunks", opened["id"].as_str().unwrap());
    bob.api().get(&path(bob, &id, &chunks)).await.expect(404);
    team.bob_is("viewer").await;
    for rest in ["", &format!("/{of_bob}"), &chunks] {
        bob.api().get(&path(bob, &id, rest)).await.expect(403);
    }
    let carl = world.tenant("carl").await;
    carl.api().get(&path(ann, &id, &recording)).await.expect(404);

    let objects = folder(&world, of_ann);
    let expire =
        format!("UPDATE terminal_recordings SET expires_at = now() WHERE session_id = '{}'", uuid(of_ann));
    let kept_until = get(ann, &id, of_ann).await["expires_at"].clone();
    let opened = view(ann, &id, of_ann).await.expect(201);
    // The database alone does not decide: the first chunk says how long the recording is to be kept.
    world.db.sql(&expire).await;
    eventually_within(LATER, "the database is corrected", || async {
        (get(ann, &id, of_ann).await["expires_at"] == kept_until).then_some(())
    })
    .await;
    assert!(objects.exists() && get(ann, &id, of_ann).await["deleted_at"].is_null());
    let first = std::fs::read_to_string(chunk(&objects, 0)).unwrap();
    let (before, rest) = first.split_once("\"expires_at\":\"").unwrap();
    let over = format!("{before}\"expires_at\":\"2020-01-01T00:00:00Z\"{}", rest.split_once('"').unwrap().1);
    std::fs::write(chunk(&objects, 0), over).unwrap();
    std::fs::write(objects.join("00000009#1"), "what a gateway that died was writing").unwrap();
    world.db.sql(&expire).await;
    eventually_within(LATER, "the recording is deleted", || async {
        get(ann, &id, of_ann).await["deleted_at"].is_string().then_some(())
    })
    .await;
    let deletions = "SELECT count(*) FROM audit_logs WHERE action = 'terminal.recording_delete' AND actor_kind = 'system'";
    assert_eq!(world.db.one::<i64>(deletions).await, 1, "it is in the audit trail");
    assert!(!objects.exists(), "its objects are gone");
    assert_eq!(view(ann, &id, of_ann).await.expect(409)["error"]["code"], "conflict");
    let chunks = format!("/{of_ann}/views/{}/chunks", opened["id"].as_str().unwrap());
    let refused = ann.api().get(&path(ann, &id, &chunks)).await.expect(409);
    assert_eq!(refused["error"]["code"], "conflict", "it is not told as one whose chunks are missing");
    assert!(Recorded::download(ann, &id, of_bob).await.verify().is_ok(), "and no others");
}

#[tokio::test]
async fn policy_decides_what_is_recorded_and_a_database_row_does_not() {
    let world = World::start_simulated_with(ServerOptions::default()).await;
    world.db.lift_rate_limits().await;
    world.db.set_global_policy("terminal.recording", "\"output_and_input\"").await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("echo typed-ä").await;
    leave(&mut terminal).await;
    let recorded = Recorded::download(&ann, &id, &terminal.session).await;
    assert!(recorded.verify().unwrap().complete);
    assert!(recorded.input().contains("echo typed-ä;") && recorded.input().ends_with("exit\n"));

    // Without what the token sealed there is no terminal.
    let made = mint(&ann, &id, json!({})).await.expect(201);
    world.db.sql("UPDATE terminal_tokens SET sealed_grant = substr(sealed_grant, 2)").await;
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let refused = Terminal::attach(&world.server, &id, &text("token"), text("session_id"), 0).await;
    assert!(matches!(refused, Err(Said::Gone)));
}

#[tokio::test]
async fn recordings_are_kept_in_a_bucket() {
    let s3 = S3Server::start().await;
    let config = format!(
        "[objects.s3]\nendpoint = \"{}\"\nbucket = \"{}\"\nprefix = \"one\"\naccess_key_id = \"{}\"\n",
        s3.endpoint(),
        S3Server::BUCKET,
        S3Server::KEY_ID
    );
    let secret = ("GPUAAS__OBJECTS__S3__SECRET_ACCESS_KEY".to_owned(), S3Server::SECRET.to_owned());
    let options = ServerOptions { config, env: vec![secret], ..ServerOptions::default() };
    let world = World::start_simulated_with(options).await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("seq 1 60000").await;
    leave(&mut terminal).await;
    let recorded = Recorded::download(&ann, &id, &terminal.session).await;
    assert!(recorded.verify().unwrap().complete);
    assert_eq!(recorded.output().as_bytes(), terminal.output);
    assert!(!world.server.dir.path().join("data/objects").exists(), "nothing is in the directory");
}
