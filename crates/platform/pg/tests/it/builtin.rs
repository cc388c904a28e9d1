//! The built-in server against a real PostgreSQL: real processes, really killed.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use pg::builtin::{BuiltinConfig, BuiltinError, BuiltinServer, SUPERUSER, ServerState};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, Row};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// Tells the stand-in process (see below) which data directory to use.
const STAND_IN: &str = "PG_BUILTIN_STAND_IN_DIR";

fn open_temp_dir() -> TempDir {
    let temp = tempfile::tempdir().expect("temp dir");
    // The server's user must be able to pass through, whatever the umask.
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o711)).expect("mode");
    temp
}

fn config(data_dir: &Path) -> BuiltinConfig {
    BuiltinConfig {
        data_dir: data_dir.to_owned(),
        bin_dir: None,
        run_as: None,
        durable: false,
        start_timeout: LIMIT,
        max_connections: 20,
    }
}

async fn connect(server: &BuiltinServer) -> PgConnection {
    let options = PgConnectOptions::new_without_pgpass()
        .socket(server.socket_dir())
        .port(server.port())
        .username(SUPERUSER)
        .database("postgres");
    Box::pin(PgConnection::connect_with(&options)).await.expect("the server answers")
}

async fn ask(connection: &mut PgConnection, query: &'static str) -> String {
    connection.fetch_one(query).await.expect("query").get::<String, _>(0)
}

fn server_pid(data_dir: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(data_dir.join("pgdata/postmaster.pid")).ok()?;
    text.lines().next()?.parse().ok()
}

/// Runs until its main program has gone; a dead process that nobody has reaped has no command line.
fn is_alive(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited too long for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn killed_and_back(server: &BuiltinServer, data_dir: &Path) {
    let pid = server_pid(data_dir).expect("running");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    let mut state = server.watch();
    until("a new server process", || server_pid(data_dir).filter(|now| *now != pid)).await;
    tokio::time::timeout(LIMIT, state.wait_for(|state| *state == ServerState::Running))
        .await
        .expect("in time")
        .expect("supervised");
}

/// Not a test by itself: the program that the tests below kill. They run this test binary again with the
/// variable set; without it there is nothing to do.
#[tokio::test]
async fn stand_in_program_holds_a_server_until_killed() {
    let Some(dir) = std::env::var_os(STAND_IN) else { return };
    let server = BuiltinServer::start(config(Path::new(&dir))).await.expect("start");
    std::future::pending::<()>().await;
    drop(server);
}

// The one place of these tests that starts a process.
#[allow(clippy::disallowed_methods)]
fn spawn_stand_in(data_dir: &Path) -> Child {
    std::process::Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "builtin::stand_in_program_holds_a_server_until_killed"])
        .env(STAND_IN, data_dir)
        .stdout(Stdio::null())
        .spawn()
        .expect("stand-in")
}

#[tokio::test]
async fn server_is_private_unprivileged_exclusive_and_stops_without_a_trace() {
    let temp = open_temp_dir();
    let data_dir = temp.path().join("data");
    let server =
        BuiltinServer::start(BuiltinConfig { durable: true, ..config(&data_dir) }).await.expect("start");
    assert_eq!(*server.watch().borrow(), ServerState::Running);
    let pid = server_pid(&data_dir).expect("pid");

    // Socket only: nothing in the settings, and nothing in the address line of the pid file.
    let mut connection = connect(&server).await;
    assert_eq!(ask(&mut connection, "SHOW listen_addresses").await, "");
    assert_eq!(ask(&mut connection, "SHOW server_encoding").await, "UTF8");
    assert_eq!(ask(&mut connection, "SHOW fsync").await, "on");
    let pid_file = std::fs::read_to_string(data_dir.join("pgdata/postmaster.pid")).expect("pid file");
    assert_eq!(pid_file.lines().nth(5), Some(""));
    connection.execute("CREATE TABLE kept AS SELECT 'still here' AS word").await.expect("write");
    connection.close().await.expect("close");

    // Private: directories closed to others. Unprivileged: the user is not root and has no other groups.
    for dir in [server.socket_dir(), &data_dir.join("pgdata")] {
        assert_eq!(std::fs::metadata(dir).expect("dir").mode() & 0o7777, 0o700, "{}", dir.display());
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("line").trim().to_owned();
    let uid = if geteuid().is_root() {
        assert_eq!(line("Groups:"), "");
        User::from_name("postgres").expect("lookup").expect("user").uid
    } else {
        geteuid()
    };
    assert_eq!(line("Uid:"), format!("{uid}\t{uid}\t{uid}\t{uid}"));
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap_or_default();
    assert!(!environment.contains("CARGO"), "our environment must stay ours");

    // Exclusive: a second program on the same directory is told so.
    let error = BuiltinServer::start(config(&data_dir)).await.expect_err("in use");
    assert!(matches!(error, BuiltinError::InUse { .. }));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");

    let socket = server.socket_dir().join(format!(".s.PGSQL.{}", server.port()));
    assert!(socket.exists());
    server.stop().await.expect("stop");
    assert!(!is_alive(pid) && !socket.exists() && server_pid(&data_dir).is_none());

    // And everything is there again at the next start.
    let server = BuiltinServer::start(config(&data_dir)).await.expect("start again");
    assert_eq!(ask(&mut connect(&server).await, "SELECT word FROM kept").await, "still here");
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn killed_server_comes_back_with_its_data_until_it_fails_too_often() {
    let temp = open_temp_dir();
    // Long enough that the socket must live elsewhere.
    let data_dir = temp.path().join("d".repeat(100));
    let server = BuiltinServer::start(config(&data_dir)).await.expect("start");
    assert!(!server.socket_dir().starts_with(temp.path()));
    let mut connection = connect(&server).await;
    connection.execute("CREATE TABLE kept AS SELECT 'still here' AS word").await.expect("write");

    killed_and_back(&server, &data_dir).await;
    assert_eq!(ask(&mut connect(&server).await, "SELECT word FROM kept").await, "still here");

    // A cluster that cannot start any more: the supervisor gives up and says why.
    std::fs::remove_file(data_dir.join("pgdata/global/pg_control")).expect("break it");
    kill(Pid::from_raw(server_pid(&data_dir).expect("pid")), Signal::SIGKILL).expect("kill");
    let mut state = server.watch();
    let failed = tokio::time::timeout(LIMIT, state.wait_for(|state| matches!(state, ServerState::Failed(_))));
    let failed = failed.await.expect("in time").expect("supervised").clone();
    assert!(matches!(&failed, ServerState::Failed(why) if why.contains("pg_control")), "{failed:?}");
    let socket_dir = server.socket_dir().to_owned();
    server.stop().await.expect("nothing left to stop");
    std::fs::remove_dir_all(socket_dir).expect("clean up");
}

#[tokio::test]
async fn server_left_by_a_killed_program_is_replaced_and_keeps_its_data() {
    let temp = open_temp_dir();
    let data_dir = temp.path().join("data");
    let mut program = spawn_stand_in(&data_dir);
    let socket = data_dir.join("run/.s.PGSQL.5432");
    until("the stand-in's server", || socket.exists().then_some(())).await;
    let left = until("its process id", || server_pid(&data_dir)).await;
    program.kill().expect("kill -9");
    program.wait().expect("reaped");
    assert!(is_alive(left), "the server outlives a killed program; that is what the next start must handle");

    let server = BuiltinServer::start(config(&data_dir)).await.expect("start");
    assert!(!is_alive(left));
    assert_ne!(server_pid(&data_dir), Some(left));
    let mut connection = connect(&server).await;
    connection.execute("CREATE TABLE kept AS SELECT 1").await.expect("write");
    drop(connection);

    // The same when both die at once, as at a power cut.
    let pid = server_pid(&data_dir).expect("pid");
    server.stop().await.expect("stop");
    assert!(!is_alive(pid));
    let mut program = spawn_stand_in(&data_dir);
    let left = until("its process id", || server_pid(&data_dir)).await;
    program.kill().expect("kill -9");
    kill(Pid::from_raw(left), Signal::SIGKILL).expect("kill");
    program.wait().expect("reaped");
    let server = BuiltinServer::start(config(&data_dir)).await.expect("start");
    assert_eq!(ask(&mut connect(&server).await, "SELECT count(*)::text FROM kept").await, "1");
    server.stop().await.expect("stop");
}

/// The process of this server that replays its log.
fn startup_process(postmaster: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).ok()?;
    children.split_whitespace().filter_map(|child| child.parse().ok()).find(|child: &i32| {
        std::fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"postgres: startup"))
    })
}

/// A real server replays a real log after a crash, and is kept from coming to the end of it, as by a slow disk. It cannot
/// obey a fast shutdown, for which an earlier release waited half a minute.
#[tokio::test]
async fn server_left_in_crash_recovery_is_replaced_without_waiting_for_it() {
    let temp = open_temp_dir();
    let data_dir = temp.path().join("data");
    let mut program = spawn_stand_in(&data_dir);
    let socket = data_dir.join("run/.s.PGSQL.5432");
    until("the stand-in's server", || socket.exists().then_some(())).await;
    let left = until("its process id", || server_pid(&data_dir)).await;
    let options = PgConnectOptions::new_without_pgpass()
        .socket(data_dir.join("run"))
        .username(SUPERUSER)
        .database("postgres");
    let deadline = Instant::now() + LIMIT;
    let mut connection = loop {
        // Its socket is there before it answers.
        match Box::pin(PgConnection::connect_with(&options)).await {
            Ok(connection) => break connection,
            Err(error) => assert!(Instant::now() < deadline, "the server does not answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    // Enough to replay that the second stand-in is met while it does.
    connection
        .execute("CREATE TABLE kept AS SELECT repeat('x', 900) AS t FROM generate_series(1, 100000)")
        .await
        .expect("write");
    program.kill().expect("kill -9");
    program.wait().expect("reaped");
    kill(Pid::from_raw(left), Signal::SIGKILL).expect("kill");
    drop(connection);
    until("the end of the server", || (!is_alive(left)).then_some(())).await;

    let mut program = spawn_stand_in(&data_dir);
    let (left, startup) = until("a server that replays its log", || {
        let left = server_pid(&data_dir).filter(|now| *now != left)?;
        Some((left, startup_process(left)?))
    })
    .await;
    kill(Pid::from_raw(startup), Signal::SIGSTOP).expect("the log is still being replayed");
    program.kill().expect("kill -9");
    program.wait().expect("reaped");
    assert!(is_alive(left) && startup_process(left) == Some(startup), "it is in recovery");

    let started =
        tokio::time::timeout(Duration::from_secs(25), BuiltinServer::start(config(&data_dir))).await;
    let server = started.expect("less than a fast shutdown may take").expect("start");
    assert!(!is_alive(left));
    assert_eq!(ask(&mut connect(&server).await, "SELECT count(*)::text FROM kept").await, "100000");
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn program_killed_in_the_middle_of_creating_the_cluster_is_recovered_from() {
    let temp = open_temp_dir();
    let data_dir = temp.path().join("data");
    let unfinished = || -> Option<PathBuf> {
        let mut entries = std::fs::read_dir(&data_dir).ok()?.flatten();
        entries
            .find(|entry| entry.file_name().to_string_lossy().starts_with("pgdata.init."))
            .map(|entry| entry.path())
    };
    let mut program = spawn_stand_in(&data_dir);
    let half = until("half a cluster", || unfinished().filter(|dir| dir.join("PG_VERSION").exists())).await;
    program.kill().expect("kill -9");
    program.wait().expect("reaped");
    assert!(!data_dir.join("pgdata").exists(), "an unfinished cluster is never in place");

    let server = BuiltinServer::start(config(&data_dir)).await.expect("start");
    assert_eq!(ask(&mut connect(&server).await, "SELECT 'up'").await, "up");
    server.stop().await.expect("stop");
    // The orphaned initdb may have written once more while its directory was being removed.
    BuiltinServer::start(config(&data_dir)).await.expect("start").stop().await.expect("stop");
    assert!(!half.exists());
}

#[tokio::test]
async fn dropped_handle_stops_the_server() {
    let temp = open_temp_dir();
    let data_dir = temp.path().join("data");
    let server = BuiltinServer::start(config(&data_dir)).await.expect("start");
    let pid = server_pid(&data_dir).expect("pid");
    drop(server);
    until("the end of the server", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn cluster_of_another_major_version_is_refused_with_both_versions_and_the_way_out() {
    let temp = open_temp_dir();
    let pgdata = temp.path().join("pgdata");
    std::fs::create_dir(&pgdata).expect("dir");
    std::fs::write(pgdata.join("PG_VERSION"), "9\n").expect("version");
    let error = BuiltinServer::start(config(temp.path())).await.expect_err("refused");
    let BuiltinError::OtherVersion { found: 9, binary, .. } = error else { panic!("{error}") };
    let text = error.to_string();
    assert!(
        text.contains("made by PostgreSQL 9") && text.contains(&format!("is version {binary}")),
        "{text}"
    );
    assert!(text.contains("apt-get install postgresql-9") && text.contains("dump"), "{text}");
    assert_eq!(std::fs::read_dir(&pgdata).expect("dir").count(), 1, "left as it was");
}

#[tokio::test]
async fn directory_that_is_not_a_cluster_is_refused_and_left_alone() {
    let temp = open_temp_dir();
    std::fs::create_dir(temp.path().join("pgdata")).expect("dir");
    std::fs::write(temp.path().join("pgdata/thesis.txt"), "years of work").expect("file");
    let error = BuiltinServer::start(config(temp.path())).await.expect_err("refused");
    assert!(matches!(error, BuiltinError::NotACluster { .. }), "{error}");
    assert!(temp.path().join("pgdata/thesis.txt").exists());
}

#[tokio::test]
async fn directory_the_server_user_cannot_reach_is_named() {
    if !geteuid().is_root() {
        return; // Only root runs the server as someone else.
    }
    let closed = tempfile::tempdir().expect("temp dir");
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).expect("mode");
    let error = BuiltinServer::start(config(&closed.path().join("data"))).await.expect_err("refused");
    let text = error.to_string();
    assert!(matches!(error, BuiltinError::Unreachable { .. }), "{text}");
    assert!(text.contains(&format!("chmod o+x {}`", closed.path().display())), "{text}");
}

#[tokio::test]
async fn a_first_start_under_a_closed_umask_works_in_directories_that_it_has_to_make() {
    let temp = open_temp_dir();
    // Each test is a process of its own.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let server = BuiltinServer::start(config(&temp.path().join("data/postgres"))).await.expect("start");
    assert_eq!(ask(&mut connect(&server).await, "SELECT 'works'").await, "works");
    server.stop().await.expect("stop");
}
