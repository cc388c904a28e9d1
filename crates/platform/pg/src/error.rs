//! What can go wrong between us and Postgres.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no database connection became free in time")]
    Busy,
    #[error("the database cannot be reached")]
    Unreachable(#[source] sqlx::Error),
    #[error("a database statement failed")]
    Statement(#[from] sqlx::Error),
    #[error("waited too long for another transaction")]
    LockTimeout(#[source] sqlx::Error),
}

impl Error {
    /// Worth trying again soon, by the caller rather than by us.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Busy | Self::Unreachable(_) | Self::LockTimeout(_) => true,
            Self::Statement(error) => is_transient(error),
        }
    }

    pub(crate) fn from_sqlx(error: sqlx::Error) -> Self {
        match sqlstate(&error).as_deref() {
            Some("55P03") => Self::LockTimeout(error),
            _ => Self::Statement(error),
        }
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|e| e.code()).map(|c| c.into_owned())
}

/// Lost connections, a restarting server, deadlocks and serialization failures pass; anything else does not.
pub fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        _ => sqlstate(error).is_some_and(|code| {
            code.starts_with("08")
                || code.starts_with("57P")
                || matches!(code.as_str(), "40001" | "40P01" | "55P03" | "53300")
        }),
    }
}

/// The name of the unique, foreign-key or check constraint that a statement ran into, if it did.
pub fn constraint_violated(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().and_then(|e| e.constraint())
}

/// The database refused it because it was restored from a backup (`refuse_while_restoring`).
pub fn is_restoring(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<sqlx::Error>().and_then(sqlstate).as_deref() == Some("GR001") {
            return true;
        }
        cause = error.source();
    }
    false
}
