//! Compare-and-swap on a version: three outcomes, not a bool.

use kernel::Problem;

/// What became of `UPDATE … WHERE id = $1 AND version = $2 RETURNING …`.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Swap<T> {
    Updated(T),
    /// Somebody else was first; nothing was changed.
    Stale {
        current_version: i64,
    },
    Missing,
}

impl<T> Swap<T> {
    /// `current_version` is read after an update that matched no row.
    pub fn from_update(updated: Option<T>, current_version: Option<i64>) -> Self {
        match (updated, current_version) {
            (Some(row), _) => Self::Updated(row),
            (None, Some(current_version)) => Self::Stale { current_version },
            (None, None) => Self::Missing,
        }
    }

    /// The row, or the answer the client gets; a lost race rolls the whole transaction back with it.
    pub fn or_problem(self, kind: &'static str) -> Result<T, Problem> {
        match self {
            Self::Updated(row) => Ok(row),
            Self::Stale { current_version } => Err(Problem::version_conflict(current_version)),
            Self::Missing => Err(Problem::not_found(kind)),
        }
    }
}
