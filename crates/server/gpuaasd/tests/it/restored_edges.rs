//! Restored from backup, where the evidence is hard to keep or to compare: a full disk, and a backup of an earlier release.

use std::{path::PathBuf, time::Duration};

use testkit::{Server, ServerOptions, TestDb, World, eventually_within, program};

use crate::tools::command;

const PATIENCE: Duration = Duration::from_secs(60);
const RESTORING: &str = "SELECT count(*) FROM installation WHERE mode = 'restore'";
/// The last migration before installations had an id.
const BEFORE_INSTALLATIONS: i64 = 27;

fn succeeds(program: &str, arguments: &[&str]) {
    assert!(command(program).args(arguments).status().expect(program).success(), "{program} {arguments:?}");
}

/// A small disk of its own with what was in the directory, full.
struct FullDisk(PathBuf);

impl FullDisk {
    fn mount(directory: PathBuf) -> Self {
        let (at, copy) = (directory.to_str().expect("UTF-8"), format!("{}-copy", directory.display()));
        // The server replaces a file in it at any time: a copy that met one on its way is made again.
        let copied = (0..20).any(|_| {
            let _ = std::fs::remove_dir_all(&copy);
            command("cp").args(["-a", at, &copy]).status().is_ok_and(|status| status.success())
        });
        assert!(copied, "{at} cannot be copied");
        succeeds("mount", &["-t", "tmpfs", "-o", "size=256k", "tmpfs", at]);
        let disk = Self(directory.clone());
        succeeds("cp", &["-a", &format!("{copy}/."), at]);
        // Until nothing more fits.
        let filler = directory.join("filler");
        assert!(std::fs::write(&filler, vec![0; 1 << 20]).is_err());
        assert!(std::fs::write(directory.join("one-more"), vec![0; 8192]).is_err());
        disk
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let unmounted = command("umount").arg("-l").arg(&self.0).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_full_disk_under_the_generation_file_keeps_no_restore_from_being_noticed() {
    let mut world = World::start().await;
    let secrets = world.server.dir.path().join("data/secrets");
    let file = secrets.join("generation.json");
    let disk = FullDisk::mount(secrets);
    // From here on nothing can be written; before, it may be counted up at any time.
    let written = std::fs::read_to_string(&file).expect("the file");
    eventually_within(PATIENCE, "it says that the file cannot be written", || async {
        world.server.log().contains("the generation could not be counted up").then_some(())
    })
    .await;
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), written, "the earlier file is whole");
    // It goes back while the process runs, by more than the file remembers.
    world.db.sql("UPDATE installation SET generation = 0").await;
    eventually_within(PATIENCE, "it is noticed", || async {
        (world.count(RESTORING).await == 1).then_some(())
    })
    .await;
    // A stop with a full disk is a stop, and a start says why it cannot go on.
    assert_eq!(world.server.stop().await, Some(0), "{}", world.server.log());
    drop(disk);
    world.server.spawn();
    world.server.ready().await;
    assert_eq!(world.count(RESTORING).await, 1);
}

#[tokio::test]
async fn a_backup_from_before_installations_had_an_id_starts_only_as_restored() {
    let db = TestDb::create().await;
    let mut server = Server::start_with(&db, ServerOptions::default()).await;
    assert_eq!(server.stop().await, Some(0), "{}", server.log());
    let old = TestDb::migrated_until(BEFORE_INSTALLATIONS).await;
    db.restore(old.name.clone()).await;

    server.spawn();
    eventually_within(PATIENCE, "it says what to do", || async {
        server.log().contains("run `gpuaasd restore`").then_some(())
    })
    .await;
    assert_eq!(server.stop().await, Some(1), "{}", server.log());

    let said = command(program("gpuaasd"))
        .arg("--config")
        .arg(server.dir.path().join("gpuaas.toml"))
        .arg("restore")
        .output()
        .expect("run gpuaasd restore");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    server.spawn();
    server.ready().await;
    let mut conn = db.conn(pg::Roles::Admin).await;
    let restoring: i64 = sqlx::query_scalar(RESTORING).fetch_one(&mut conn).await.expect("the mode");
    assert_eq!(restoring, 1);
}

/// The database goes back while somebody holds what must be ended with it; they do so until this connection rolls back.
async fn goes_back_and_cannot_be_entered(world: &World) -> sqlx::PgConnection {
    let mut holder = world.db.conn(pg::Roles::Admin).await;
    let lock = "BEGIN; LOCK TABLE account_sessions IN EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut holder).await.expect("lock");
    world.db.sql("UPDATE installation SET generation = 0").await;
    eventually_within(PATIENCE, "entering the mode failed", || async {
        world.server.log().contains("the mode cannot be set to restore").then_some(())
    })
    .await;
    holder
}

async fn let_go(holder: &mut sqlx::PgConnection) {
    sqlx::raw_sql("ROLLBACK").execute(holder).await.expect("unlock");
}

#[tokio::test]
async fn a_restore_that_cannot_be_entered_at_once_is_entered_later_also_by_another_process() {
    let mut world = World::start().await;
    let mut holder = goes_back_and_cannot_be_entered(&world).await;
    let failures = |world: &World| world.server.log().matches("the mode cannot be set to restore").count();
    eventually_within(PATIENCE, "it tried more than once", || async { (failures(&world) > 1).then_some(()) })
        .await;
    assert_eq!(world.count(RESTORING).await, 0);
    // However often it tries, the database does not catch up with what the process has seen.
    assert_eq!(world.count("SELECT generation FROM installation").await, 0);
    world.server.kill();
    let_go(&mut holder).await;
    // A replica that knows nothing of it counts up past what the process had seen.
    world.db.sql("UPDATE installation SET generation = 1000").await;
    world.server.spawn();
    world.server.ready().await;
    assert_eq!(world.count(RESTORING).await, 1, "{}", world.server.log());
}

#[tokio::test]
async fn a_restore_that_another_process_entered_and_an_operator_settled_is_not_entered_again() {
    let world = World::start().await;
    let mut holder = goes_back_and_cannot_be_entered(&world).await;
    // As the other process left it, and the operator.
    world.db.sql("UPDATE installation SET generation = 1000500").await;
    let_go(&mut holder).await;
    eventually_within(PATIENCE, "it goes on counting", || async {
        (world.count("SELECT generation FROM installation").await > 1_000_502).then_some(())
    })
    .await;
    assert_eq!(world.count(RESTORING).await, 0, "{}", world.server.log());
}

#[tokio::test]
async fn a_restore_that_cannot_be_entered_at_once_is_entered_by_the_process_that_noticed_it() {
    let world = World::start().await;
    let mut holder = goes_back_and_cannot_be_entered(&world).await;
    // A replica that knows nothing of it counts up past what the process has seen.
    world.db.sql("UPDATE installation SET generation = 1000").await;
    let_go(&mut holder).await;
    eventually_within(PATIENCE, "it is entered", || async {
        (world.count(RESTORING).await == 1).then_some(())
    })
    .await;
}
