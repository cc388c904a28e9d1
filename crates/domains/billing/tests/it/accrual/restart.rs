//! The database goes away in the middle, really.

use std::{os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use pg::{
    Connect, Db,
    builtin::{BuiltinConfig, BuiltinServer, SUPERUSER},
};
use testkit::{TestDb, eventually_within};

use super::kit::{Kit, clocked};

const LIMIT: Duration = Duration::from_secs(60);

/// The process id of a server that takes connections, as its lock file says; nothing before it does.
fn ready_server_pid(home: &Path) -> Option<i32> {
    const STATUS: usize = 7;
    let text = std::fs::read_to_string(home.join("pgdata/postmaster.pid")).ok()?;
    let mut lines = text.lines();
    let pid = lines.next()?.parse().ok()?;
    (lines.nth(STATUS - 1)?.trim() == "ready").then_some(pid)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_killed_during_ticks_and_comes_back_has_each_window_once() {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let config = BuiltinConfig {
        data_dir: home.path().to_owned(),
        bin_dir: None,
        run_as: None,
        durable: true,
        start_timeout: LIMIT,
        max_connections: 40,
    };
    let server = BuiltinServer::start(config).await.unwrap();
    let admin = Connect::builtin(server.socket_dir(), server.port(), SUPERUSER, "postgres");
    pg::create_database(&admin, "gpuaas").await.unwrap();
    let connect = admin.database("gpuaas");
    pg::bootstrap(&connect).await.unwrap();
    pg::migrate(&connect).await.unwrap();
    let (clock, ambient) = clocked("2031-05-06T07:00:00Z");
    let db = Db::new(connect.clone(), 4, 8, ambient);
    let test = TestDb { name: "not_on_this_server".to_owned(), connect, db };
    test.ledger_clock("p_claimed").await;
    let kit = Kit::on(test, clock).await;
    let meters = [kit.launch(199, 1).await, kit.launch(25_037, 8).await];
    for round in 0..3u64 {
        kit.pass(3600 * 3);
        let pid = ready_server_pid(home.path()).unwrap();
        let killer = async {
            tokio::time::sleep(Duration::from_millis(5 + 20 * round)).await;
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        };
        let (_, _) = tokio::join!(kit.try_tick(), killer);
        // Backends of the killed server answer for a moment more: only another server counts.
        eventually_within(LIMIT, "a new server", || async {
            ready_server_pid(home.path()).filter(|new| *new != pid)
        })
        .await;
        eventually_within(LIMIT, "a tick that ends", || async {
            kit.test.db.suspect();
            kit.try_tick().await.ok().filter(|ticked| !ticked.more)
        })
        .await;
        kit.holds().await;
    }
    for (meter, rate) in meters.into_iter().zip([199, 200_296]) {
        assert_eq!(kit.posted(meter).await, rate * 9);
    }
    drop(kit);
    server.stop().await.unwrap();
}
