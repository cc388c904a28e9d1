//! What is done about recordings that nobody writes any longer: they are sealed, and deleted when their time is over.

use chrono::TimeDelta;
use kernel::Failure;
use recording::Recorder;

use super::recordings::recording_seal;
use crate::{
    Terminals,
    store::{self, recording_upkeep::Unsealed},
};

/// A gateway that sees the end of a session seals within this time.
const SEALED_WITHIN: TimeDelta = TimeDelta::seconds(30);
/// How long it is known that there was a recording.
const KEPT: TimeDelta = TimeDelta::days(90);
const BATCH: i64 = 100;
/// Forgotten at once.
const FORGET_BATCH: i64 = 500;

/// Seals recordings whose session ended while nobody was attached, or whose gateway died: they are not complete, as far as
/// anybody knows. Answers how many.
pub async fn recordings_seal_ended(terminals: &Terminals) -> Result<usize, Failure> {
    let before = terminals.db.ambient().now() - SEALED_WITHIN;
    let unsealed = {
        let mut upkeep = terminals.db.upkeep("recordings that nobody sealed").await?;
        store::recording_upkeep::claim_unsealed(upkeep.conn(), before, BATCH).await?
    };
    let mut count = 0;
    for one in unsealed {
        let session = one.session;
        match seal_ended(terminals, one).await {
            Ok(()) => count += 1,
            Err(failure) => {
                metrics::counter!("terminal_recording_failures_total", "reason" => "seal").increment(1);
                tracing::warn!(session_id = %session, error = ?failure, "a recording could not be sealed; trying again");
            }
        }
    }
    Ok(count)
}

async fn seal_ended(terminals: &Terminals, one: Unsealed) -> Result<(), Failure> {
    let folder = terminals.recordings.folder(one.org, one.session)?;
    let Some(tail) = folder.tail_find(one.chunks.unsigned_abs()).await? else {
        let mut upkeep = terminals.db.upkeep("a recording of which nothing was stored").await?;
        return Ok(store::recording_upkeep::remove(upkeep.conn(), one.session).await?);
    };
    // Nobody knows what the session printed after the last chunk.
    let statement = Recorder::resume(tail).finish(one.ended_at, None, &one.reason).statement;
    recording_seal(terminals, &folder, statement).await
}

/// Deletes the objects of recordings whose retention is over. Answers how many recordings.
pub async fn recordings_delete_expired(terminals: &Terminals) -> Result<usize, Failure> {
    let now = terminals.db.ambient().now();
    let expired = {
        let mut upkeep = terminals.db.upkeep("recordings whose retention is over").await?;
        store::recordings::view_forget_expired(upkeep.conn(), now, FORGET_BATCH).await?;
        store::recording_upkeep::forget_deleted(upkeep.conn(), now - KEPT, FORGET_BATCH).await?;
        store::recording_upkeep::list_expired(upkeep.conn(), now, BATCH).await?
    };
    let mut count = 0;
    for (session, org) in expired {
        if let Err(error) = terminals.recordings.folder(org, session)?.delete().await {
            metrics::counter!("terminal_recording_failures_total", "reason" => "delete").increment(1);
            tracing::warn!(session_id = %session, error = ?error, "a recording could not be deleted; trying again");
            continue;
        }
        let mut upkeep = terminals.db.upkeep("a recording was deleted").await?;
        store::recording_upkeep::note_deleted(upkeep.conn(), session, now).await?;
        count += 1;
    }
    Ok(count)
}
