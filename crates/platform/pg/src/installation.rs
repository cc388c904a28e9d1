//! Which state of the installation a database holds, and whether it was restored from a backup.
//!
//! Every process counts the generation up and then writes it, with the identifiers that must never come back, to a
//! place outside the database ([`Outside`]). The database is always written first, so an outside that is ahead of the
//! database was written after the state that the database holds. Then the installation is in the mode `restore`: the
//! database refuses whatever would place, release, charge or have nodes work (`refuse_while_restoring`), until an
//! operator resumes.

use chrono::{DateTime, Utc};
use kernel::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{Connection, Db, WriteTx};

/// Other processes that were ahead too must not take a restore that is over for another one.
const GENERATIONS_SKIPPED: i64 = 1_000_000;
/// The cache key that is dropped when the mode changes.
pub const INSTALLATION_CHANGED: &str = "installation";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Normal,
    /// Restored from a backup, and not settled.
    Restore,
}

/// A restore that is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// When it was noticed, and how.
    pub at: DateTime<Utc>,
    pub because: String,
    /// The restored state is of this time.
    pub state_at: DateTime<Utc>,
    /// When the last turn over all records and nodes began that ended; nothing before the first one.
    pub compared_at: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub id: Uuid,
    pub generation: i64,
    /// Nothing in the normal mode.
    pub restored: Option<Restored>,
}

impl Installation {
    pub const fn mode(&self) -> Mode {
        match self.restored {
            Some(_) => Mode::Restore,
            None => Mode::Normal,
        }
    }
}

/// What a process remembers outside the database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outside {
    pub installation: Uuid,
    pub generation: i64,
    /// As `identifiers_snapshot` gave them.
    pub identifiers: Value,
    /// Why the mode `restore` must be entered, when that was noticed and has not been done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_owed: Option<String>,
}

struct Row {
    id: Uuid,
    generation: i64,
    restored_at: Option<DateTime<Utc>>,
    restored_because: Option<String>,
    restored_state_at: Option<DateTime<Utc>>,
    compared_at: Option<DateTime<Utc>>,
}

impl From<Row> for Installation {
    fn from(row: Row) -> Self {
        let restored = match (row.restored_at, row.restored_because, row.restored_state_at) {
            (Some(at), Some(because), Some(state_at)) => {
                Some(Restored { at, because, state_at, compared_at: row.compared_at })
            }
            _ => None,
        };
        Self { id: row.id, generation: row.generation, restored }
    }
}

pub async fn installation_get(conn: &mut Connection) -> Result<Installation, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, generation, restored_at, restored_because, restored_state_at, compared_at
         FROM installation"
    );
    Ok(row.fetch_one(conn).await?.into())
}

/// The same, locked until the transaction ends.
pub async fn installation_lock(conn: &mut Connection) -> Result<Installation, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, generation, restored_at, restored_because, restored_state_at, compared_at
         FROM installation FOR UPDATE"
    );
    Ok(row.fetch_one(conn).await?.into())
}

/// How counting the generation up went.
pub enum Advance {
    /// The installation as it is now, and what is to be remembered outside.
    Counted(Installation, Outside),
    /// The database holds an earlier generation than the caller has seen: it was restored. Nothing was counted, so every
    /// later call finds the same until somebody enters the mode.
    WentBack(Installation),
}

/// Counts the generation up from one that is not below `seen`.
pub async fn installation_advance(db: &Db, seen: i64) -> Result<Advance, Failure> {
    let mut upkeep = db.upkeep("count the generation of the installation up").await?;
    let row = sqlx::query_as!(
        Row,
        "UPDATE installation SET generation = generation + 1, generation_at = $1 WHERE generation >= $2
         RETURNING id, generation, restored_at, restored_because, restored_state_at, compared_at",
        db.ambient().now(),
        seen,
    );
    let Some(now) = row.fetch_optional(upkeep.conn()).await?.map(Installation::from) else {
        return Ok(Advance::WentBack(installation_get(upkeep.conn()).await?));
    };
    let identifiers = sqlx::query_scalar!(r#"SELECT identifiers_snapshot() AS "identifiers!""#);
    let identifiers = identifiers.fetch_one(upkeep.conn()).await?;
    let outside =
        Outside { installation: now.id, generation: now.generation, identifiers, restore_owed: None };
    Ok(Advance::Counted(now, outside))
}

/// Who wants the mode to be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// A process whose memory is ahead of the database. Others notice the same restore: only the first enters.
    ByProcess,
    /// An operator, who may know more than we.
    ByOperator,
}

/// Enters the mode `restore`, and carries identifiers on after those that `outside` remembers. In that mode already (the
/// backup may be of then) everything is to be compared again, from now on. What else must not come back is ended by the
/// caller, in the same transaction. Nothing when another process has entered it for the same restore; an operator may have
/// resumed since.
pub async fn installation_restore_begin(
    tx: &mut WriteTx,
    outside: Option<&Outside>,
    because: &str,
    noticed: Noticed,
) -> Result<Option<Installation>, Failure> {
    let now = tx.db().ambient().now();
    let before = installation_lock(tx.conn()).await?;
    let highest = outside.map_or(0, |outside| outside.generation);
    // Counting alone does not get there: whoever entered skipped twice as many.
    if noticed == Noticed::ByProcess && before.generation >= highest + GENERATIONS_SKIPPED / 2 {
        return Ok(None);
    }
    if before.restored.is_none() {
        sqlx::query!("DELETE FROM restore_decisions").execute(tx.conn()).await?;
    }
    let row = sqlx::query_as!(
        Row,
        "UPDATE installation SET mode = 'restore', generation = greatest(generation, $1) + $2, generation_at = $3,
             restored_at = $3, restored_because = $4, restored_state_at = least(restored_state_at, generation_at),
             compared_at = NULL
         RETURNING id, generation, restored_at, restored_because, restored_state_at, compared_at",
        highest,
        GENERATIONS_SKIPPED,
        now,
        because,
    );
    let after = Installation::from(row.fetch_one(tx.conn()).await?);
    let remembered = outside.map_or(Value::Null, |outside| outside.identifiers.clone());
    sqlx::query_scalar!("SELECT identifiers_restore($1)", remembered).fetch_one(tx.conn()).await?;
    tx.record("installation", after.id, Some(&before.generation), Some(&after.generation))?;
    tx.invalidate(INSTALLATION_CHANGED.to_owned());
    Ok(Some(after))
}

/// All records were compared with all nodes since the restore that was noticed `restored_at`, from `began` on.
pub async fn installation_compared(
    db: &Db,
    restored_at: DateTime<Utc>,
    began: DateTime<Utc>,
) -> Result<(), Failure> {
    let mut upkeep = db.upkeep("the restored records were compared with the nodes").await?;
    sqlx::query!(
        "UPDATE installation SET compared_at = $2 WHERE mode = 'restore' AND restored_at = $1",
        restored_at,
        began,
    )
    .execute(upkeep.conn())
    .await?;
    Ok(())
}

/// Leaves the mode `restore`, in the transaction of whoever settled it.
pub async fn installation_resume(tx: &mut WriteTx) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE installation SET mode = 'normal', restored_at = NULL, restored_because = NULL, restored_state_at = NULL,
             compared_at = NULL, last_restored_at = restored_at"
    )
    .execute(tx.conn())
    .await?;
    tx.invalidate(INSTALLATION_CHANGED.to_owned());
    Ok(())
}
