//! What gateways note and forget: bookkeeping that nobody would audit.

use chrono::TimeDelta;
use kernel::{Failure, ids::TerminalSessionId};

pub use crate::store::{log_tokens::ConsumedLogToken, sessions::ToEnd, tokens::Consumed};
use crate::{Terminals, store};

/// Ended sessions stay in the list for so long.
const KEPT: TimeDelta = TimeDelta::days(90);
const BATCH: i64 = 500;
/// A gateway that could not end a session in this time leaves it to whoever comes next.
const CLAIM: TimeDelta = TimeDelta::seconds(30);

/// Uses a token up. Nothing when there is none: it never was, or was used.
pub async fn token_consume(terminals: &Terminals, hash: &[u8; 32]) -> Result<Option<Consumed>, Failure> {
    let mut upkeep = terminals.db.upkeep("a terminal token is used").await?;
    Ok(store::tokens::consume(upkeep.conn(), hash).await?)
}

/// The same for a token of a node's log.
pub async fn log_token_consume(
    terminals: &Terminals,
    hash: &[u8; 32],
) -> Result<Option<ConsumedLogToken>, Failure> {
    let mut upkeep = terminals.db.upkeep("a token for the log of a node is used").await?;
    Ok(store::log_tokens::consume(upkeep.conn(), hash).await?)
}

pub async fn session_note_attached(terminals: &Terminals, session: TerminalSessionId) -> Result<(), Failure> {
    let now = terminals.db.ambient().now();
    let mut upkeep = terminals.db.upkeep("a terminal was attached").await?;
    Ok(store::sessions::attached(upkeep.conn(), session, now).await?)
}

pub async fn session_note_end(
    terminals: &Terminals,
    session: TerminalSessionId,
    reason: &str,
    exit_status: Option<i32>,
) -> Result<(), Failure> {
    let now = terminals.db.ambient().now();
    let mut upkeep = terminals.db.upkeep("the end of a terminal session").await?;
    Ok(store::sessions::ended(upkeep.conn(), session, reason, exit_status, now).await?)
}

/// Has a session ended whose owner may not enter any more.
pub async fn session_end_ask(terminals: &Terminals, session: TerminalSessionId) -> Result<(), Failure> {
    let now = terminals.db.ambient().now();
    let mut upkeep = terminals.db.upkeep("a terminal of somebody without access").await?;
    Ok(store::sessions::end_ask(upkeep.conn(), session, now).await?)
}

/// Sessions that are to be ended, for this gateway alone for a while.
pub async fn session_ends_claim(terminals: &Terminals, most: usize) -> Result<Vec<ToEnd>, Failure> {
    let now = terminals.db.ambient().now();
    let mut upkeep = terminals.db.upkeep("sessions to end").await?;
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    Ok(store::sessions::end_claim(upkeep.conn(), (now, now + CLAIM), limit).await?)
}

/// Forgets and notes what is over. Answers how many rows were touched.
pub async fn terminals_tidy(terminals: &Terminals) -> Result<u64, Failure> {
    let now = terminals.db.ambient().now();
    let mut upkeep = terminals.db.upkeep("tidy terminal sessions").await?;
    let tokens = store::tokens::forget_expired(upkeep.conn(), now, BATCH).await?
        + store::log_tokens::forget_expired(upkeep.conn(), now, BATCH).await?;
    let over = store::sessions::end_over(upkeep.conn(), now, BATCH).await?;
    Ok(tokens + over + store::sessions::forget(upkeep.conn(), now - KEPT, BATCH).await?)
}
