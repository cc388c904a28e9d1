//! What is kept of sessions: what was typed, that somebody was there, and recordings although the storage fails.

use std::path::Path;

use recording::Event;
use testkit::{Server, ServerOptions, TestDb, World, eventually, eventually_within};

use super::{
    client::{LATER, Terminal},
    recorded::{Recorded, chunk, end, folder, sealed, uuid},
    slice,
};

/// How often somebody takes over.
const TURNS: usize = 3;

#[tokio::test]
async fn what_was_typed_before_somebody_took_over_is_recorded() {
    let world = World::start_simulated_with(ServerOptions::default()).await;
    world.db.lift_rate_limits().await;
    world.db.set_global_policy("terminal.recording", "\"output_and_input\"").await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let second = world.replica_with(gateway).await;
    let mut first = Terminal::open(&world.server, &ann, &id).await;
    first.run("echo ready").await;
    for turn in 0..TURNS {
        // It was echoed, and so it has passed the gateway, which has not stored it.
        first.type_in(&format!("echo typed-{turn}; echo\n")).await;
        first.until(&format!("typed-{turn}")).await;
        let next = first.reattach(if turn % 2 == 0 { &second } else { &world.server }, &ann, &id).await;
        assert_eq!(first.until_end().await["reason"], "taken_over");
        first = next;
    }
    first.type_in("exit\n").await;
    assert_eq!(first.until_end().await["reason"], "exited");
    let recorded = Recorded::download(&ann, &id, &first.session).await;
    assert!(recorded.verify().unwrap().complete);
    // Whoever takes over waits three seconds for the one before. What was not stored by then is marked, and nothing is there twice.
    let input = recorded.input();
    let kept = (0..TURNS).map(|turn| input.matches(&format!("echo typed-{turn};")).count());
    let kept: Vec<usize> = kept.collect();
    let marks = recorded.events().iter().filter(|event| **event == Event::Resumed).count();
    assert!(kept.iter().all(|count| *count <= 1), "{kept:?} in {input:?}");
    assert!(
        kept.iter().sum::<usize>() + marks >= TURNS && kept.contains(&1),
        "{kept:?}, {marks} marks in {input:?}"
    );
}

#[tokio::test]
async fn an_attachment_is_noted_although_the_database_fails_at_first() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    // A number that was taken is not given back by the transaction that fails.
    let fail_twice = "CREATE SEQUENCE note_attempts;
        CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            IF NEW.attachments > OLD.attachments AND nextval('note_attempts') <= 2 THEN
                RAISE EXCEPTION 'the database is away';
            END IF;
            RETURN NEW; END $$;
        CREATE TRIGGER fail_twice BEFORE UPDATE ON terminal_sessions FOR EACH ROW EXECUTE FUNCTION fail_twice();";
    world.db.sql(fail_twice).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("echo hello").await;
    assert_eq!(world.db.one::<i64>("SELECT last_value FROM note_attempts").await, 3);
    assert_eq!(world.db.one::<i32>("SELECT attachments FROM terminal_sessions").await, 1);
}

#[tokio::test]
async fn a_recording_that_cannot_be_sealed_is_tried_again_later_and_later() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let mut second = world.replica_with(gateway).await;
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    terminal.run("echo hello").await;
    second.kill();
    let session = terminal.session.clone();
    let objects = folder(&world, &session);
    let away = objects.with_extension("away");
    std::fs::rename(&objects, &away).unwrap();
    std::fs::write(&objects, "no directory").unwrap();
    end(&world, &ann, &id, &session).await;
    let waits = format!(
        "SELECT count(*) FROM terminal_recordings WHERE session_id = '{}' AND sealed_at IS NULL AND attempts >= 2
             AND next_attempt_at > now() + interval '10 seconds'",
        uuid(&session)
    );
    eventually_within(LATER, "it is tried again, and then later", || async {
        (world.db.one::<i64>(&waits).await == 1).then_some(())
    })
    .await;
    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(&away, &objects).unwrap();
    world.db.sql("UPDATE terminal_recordings SET next_attempt_at = now()").await;
    let recording = sealed(&ann, &id, &session).await;
    assert!(recording["complete"] == false && recording["tampering"].is_null(), "{recording}");
    assert!(Recorded::download(&ann, &id, &session).await.verify().is_ok());
    let attempts =
        format!("SELECT attempts FROM terminal_recordings WHERE session_id = '{}'", uuid(&session));
    assert_eq!(world.db.one::<i32>(&attempts).await, 0, "deleting it begins anew");
}

#[tokio::test]
async fn what_is_stored_is_noted_although_nothing_more_is_printed() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    // The note of the second chunk fails.
    let fail_once = "CREATE SEQUENCE note_attempts;
        CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            IF OLD.chunks > 0 AND NEW.chunks > OLD.chunks AND nextval('note_attempts') = 1 THEN
                RAISE EXCEPTION 'the database is away';
            END IF;
            RETURN NEW; END $$;
        CREATE TRIGGER fail_once BEFORE UPDATE ON terminal_recordings FOR EACH ROW EXECUTE FUNCTION fail_once();";
    world.db.sql(fail_once).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("echo hello").await;
    eventually_within(LATER, "it is noted", || async {
        (world.db.one::<i64>("SELECT chunks FROM terminal_recordings").await >= 2).then_some(())
    })
    .await;
    assert!(world.db.one::<i64>("SELECT last_value FROM note_attempts").await >= 2);
    terminal.run("echo still there").await;
}

#[tokio::test]
async fn a_first_chunk_does_not_keep_a_recording_longer_than_policy_allows() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    sealed(&ann, &id, &terminal.session).await;
    let first = chunk(&folder(&world, &terminal.session), 0);
    let text = std::fs::read_to_string(&first).unwrap();
    let (before, rest) = text.split_once("\"expires_at\":\"").unwrap();
    let rest = rest.split_once('"').unwrap().1;
    std::fs::write(&first, format!("{before}\"expires_at\":\"2999-01-01T00:00:00Z\"{rest}")).unwrap();
    world.db.sql("UPDATE terminal_recordings SET expires_at = now()").await;
    let kept = "SELECT count(*) FROM terminal_recordings WHERE deleted_at IS NULL
        AND expires_at BETWEEN now() + interval '3650 days' AND now() + interval '3660 days'";
    eventually_within(LATER, "it is kept as long as is allowed", || async {
        (world.db.one::<i64>(kept).await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_process_with_an_object_storage_of_its_own_does_not_start() {
    let db = TestDb::create().await;
    let first = Server::start(&db).await;
    let own = first.dir.path().join("data/elsewhere");
    let of = |name: &str, path: &Path| (format!("GPUAAS__{name}"), path.display().to_string());
    let key = of("AUTH__MASTER_KEY_FILE", &first.dir.path().join("data/secrets/master.key"));
    let env = vec![key, of("OBJECTS__DIRECTORY", &own)];
    let database = format!("[database]\nurl = \"{}\"\n", db.url());
    let mut second = Server::prepare(&database, ServerOptions { env, ..ServerOptions::default() });
    second.spawn();
    eventually("it says what is wrong", || async {
        second.log().contains("is not the one that the installation uses").then_some(())
    })
    .await;
    second.kill();
    // With the id of the storage that was lost in it, it is the storage of the installation.
    std::fs::copy(first.dir.path().join("data/objects/storage-id"), own.join("storage-id")).unwrap();
    second.spawn();
    second.ready().await;
}
