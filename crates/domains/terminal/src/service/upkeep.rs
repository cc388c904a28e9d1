//! What gateways note and forget: bookkeeping that nobody would audit.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Failure, ids::TerminalSessionId};
use tokio::time::Instant;

pub use crate::store::{log_tokens::ConsumedLogToken, sessions::ToEnd, tokens::Consumed};
use crate::{Terminals, store};

/// Ended sessions stay in the list for so long.
const KEPT: TimeDelta = TimeDelta::days(90);
/// Rows that one statement touches.
const BATCH: i64 = 100;
/// After so long the rest waits for the next turn.
const TIDY_WITHIN: Duration = Duration::from_secs(10);
/// A gateway that could not end a session in this time leaves it to whoever comes next.
const CLAIM: TimeDelta = TimeDelta::seconds(30);

/// What was found under a token.
pub trait Expires {
    fn expires_at(&self) -> DateTime<Utc>;
}

impl Expires for Consumed {
    fn expires_at(&self) -> DateTime<Utc> {
        self.expires_at
    }
}

impl Expires for ConsumedLogToken {
    fn expires_at(&self) -> DateTime<Utc> {
        self.expires_at
    }
}

/// Uses a token up. Nothing when there is none: it never was, or was used.
pub async fn token_consume(terminals: &Terminals, hash: [u8; 32]) -> Result<Option<Consumed>, Failure> {
    let mut upkeep = terminals.db.upkeep("a terminal token is used").await?;
    Ok(store::tokens::consume(upkeep.conn(), &hash).await?)
}

/// The same for a token of a node's log.
pub async fn log_token_consume(
    terminals: &Terminals,
    hash: [u8; 32],
) -> Result<Option<ConsumedLogToken>, Failure> {
    let mut upkeep = terminals.db.upkeep("a token for the log of a node is used").await?;
    Ok(store::log_tokens::consume(upkeep.conn(), &hash).await?)
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

/// Forgets and notes what is over, batch by batch until nothing is left or its time is up. Answers how many rows were touched.
pub async fn terminals_tidy(terminals: &Terminals) -> Result<u64, Failure> {
    let (now, stops_at) = (terminals.db.ambient().now(), Instant::now() + TIDY_WITHIN);
    let mut touched = 0;
    loop {
        // A connection per batch: nobody waits for the whole of it.
        let mut upkeep = terminals.db.upkeep("tidy terminal sessions").await?;
        let batches = [
            store::tokens::forget_expired(upkeep.conn(), now, BATCH).await?,
            store::log_tokens::forget_expired(upkeep.conn(), now, BATCH).await?,
            store::sessions::end_over(upkeep.conn(), now, BATCH).await?,
            store::sessions::end_reported(upkeep.conn(), now, BATCH).await?,
            store::sessions::forget(upkeep.conn(), now - KEPT, BATCH).await?,
        ];
        touched += batches.iter().sum::<u64>();
        if batches.iter().all(|batch| *batch < BATCH.unsigned_abs()) || Instant::now() >= stops_at {
            return Ok(touched);
        }
    }
}

/// Asks for the end of sessions whose owner may not enter any more, also of those that nobody is attached to. Answers how many.
pub async fn sessions_end_lost(terminals: &Terminals) -> Result<u64, Failure> {
    let (now, stops_at) = (terminals.db.ambient().now(), Instant::now() + TIDY_WITHIN);
    let roles = store::lost_access::RolesThatEnter::new();
    let mut asked = 0;
    loop {
        let mut upkeep = terminals.db.upkeep("terminals of people without access").await?;
        let batch = store::lost_access::end_ask(upkeep.conn(), &roles, now, BATCH).await?;
        asked += batch;
        if batch < BATCH.unsigned_abs() || Instant::now() >= stops_at {
            return Ok(asked);
        }
    }
}
