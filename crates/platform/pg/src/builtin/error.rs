//! What can go wrong with the built-in server, in words that say what to do.

use std::path::PathBuf;

/// Why the built-in server did not start, run or stop.
#[derive(Debug, thiserror::Error)]
pub enum BuiltinError {
    #[error(
        "no PostgreSQL server of version {minimum} or newer was found. Tried: {tried}. \
         Install one with `apt-get install postgresql`, or set the directory that holds `postgres` and `initdb`"
    )]
    NotFound { minimum: u32, tried: String },

    #[error(
        "the cluster in {} was made by PostgreSQL {found}, but the server in {} is version {binary}. \
         Install the matching version (`apt-get install postgresql-{found}`) or set the directory of its binaries; \
         to move to version {binary}, dump the data with version {found} and restore it into an empty data directory",
        pgdata.display(), bin_dir.display()
    )]
    OtherVersion { pgdata: PathBuf, found: u32, binary: u32, bin_dir: PathBuf },

    #[error(
        "{} is not empty and holds no readable PG_VERSION, so it is not a PostgreSQL cluster. \
         Move it away or choose another data directory", pgdata.display()
    )]
    NotACluster { pgdata: PathBuf },

    #[error(
        "the data directory {} is in use by another running gpuaasd ({holder}). \
         Stop that one first, or give this one its own data directory", root.display()
    )]
    InUse { root: PathBuf, holder: String },

    #[error("the data directory {} cannot be used: {why}", path.display())]
    BadDataDir { path: PathBuf, why: &'static str },

    #[error(
        "PostgreSQL refuses to run as root and there is no user {name:?} to run it as. \
         Create one (`useradd --system {name}`) or name another user for the built-in server"
    )]
    NoUser { name: String },

    #[error("the built-in server may not run as {name:?}: {why}")]
    BadUser { name: String, why: &'static str },

    #[error(
        "the user {user:?}, which runs the built-in server, cannot enter {}, so it cannot reach {}. \
         Allow it to pass through (`chmod o+x {}`) or choose another data directory",
        blocked.display(), root.display(), blocked.display()
    )]
    Unreachable { user: String, blocked: PathBuf, root: PathBuf },

    #[error(
        "{} belongs to user id {owner}, but the built-in server would run as {user} (user id {uid}). \
         Run it as the owner, or give the directory to {user} (`chown -R {user} {}`)",
        path.display(), path.display()
    )]
    OtherOwner { path: PathBuf, owner: u32, user: String, uid: u32 },

    #[error("the socket directory {} is not safe to use: {why}. Remove it and start again", path.display())]
    UnsafeSocketDir { path: PathBuf, why: &'static str },

    #[error(
        "no directory with a path short enough for a unix socket: {} is too long. \
         Choose a shorter data directory", path.display()
    )]
    SocketPathTooLong { path: PathBuf },

    #[error("could not {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },

    #[error("could not run {}", program.display())]
    Exec {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },

    #[error("{} did not end within {seconds} s and was killed", program.display())]
    ExecTimeout { program: PathBuf, seconds: u64 },

    #[error("initdb failed ({status}): {output}")]
    Initdb { status: String, output: String },

    #[error("PostgreSQL ended while starting ({status}). Its last words: {log}")]
    Exited { status: String, log: String },

    #[error(
        "PostgreSQL did not answer within {seconds} s. After a crash it may need longer to recover: \
         allow a longer start. Its last words: {log}"
    )]
    NotReady { seconds: u64, log: String },

    #[error(
        "a PostgreSQL server left by an earlier run (process {pid}) does not stop; end it by hand and start again"
    )]
    StaleServer { pid: i32 },

    #[error(
        "PostgreSQL (process {pid}) did not stop in time and was killed; it will recover at the next start"
    )]
    Killed { pid: i32 },

    #[error("the built-in server was told to stop while it was starting")]
    Stopped,

    #[error("the supervisor of the built-in server ended early")]
    SupervisorDied {
        #[source]
        source: tokio::task::JoinError,
    },
}

impl BuiltinError {
    /// Wraps an I/O error with what was being done to which path.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> BuiltinError {
        let path = path.into();
        move |source| BuiltinError::Io { what, path, source }
    }
}
