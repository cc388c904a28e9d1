//! What is done about recordings that nobody writes any longer: they are sealed, and deleted when their time is over.

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{StreamExt as _, stream};
use kernel::{
    CorrelationId, Failure,
    hex::Hex,
    ids::{AllocationId, OrgId, TerminalSessionId},
};
use objects::ObjectError;
use pg::{Origin, Permit};
use recording::{Fault, Recorder, Statement, Tail};

use super::{
    recording_storage::{RecordingFolder, StorageError},
    recordings::{Stored, recording_seal, seal_note, tampering_note},
};
use crate::{
    Terminals,
    store::{self, recording_upkeep::Unsealed},
};

/// A gateway that sees the end of a session seals within this time.
const SEALED_WITHIN: TimeDelta = TimeDelta::seconds(30);
/// How long it is known that there was a recording.
const KEPT: TimeDelta = TimeDelta::days(90);
const BATCH: i64 = 100;
/// Recordings that are sealed or deleted at the same time: a storage that does not answer makes each wait.
const AT_ONCE: usize = 8;
/// Forgotten at once.
const FORGET_BATCH: i64 = 500;
/// A slow gateway can be faster so often; then it is left to the next look.
const CLOSE_ATTEMPTS: usize = 3;

/// Seals recordings whose session ended while nobody was attached, or whose gateway died: they are not complete, as far as
/// anybody knows. Answers how many.
pub async fn recordings_seal_ended(terminals: &Terminals) -> Result<usize, Failure> {
    let unsealed = {
        let mut upkeep = terminals.db.upkeep("recordings that nobody sealed").await?;
        let now = store::recording_upkeep::earlier_now(upkeep.conn(), terminals.db.ambient().now()).await?;
        store::recording_upkeep::claim_unsealed(upkeep.conn(), (now - SEALED_WITHIN, now), BATCH).await?
    };
    let sealing = stream::iter(unsealed).map(async |one| {
        let session = one.session;
        let sealed = seal_ended(terminals, one).await;
        if let Err(failure) = &sealed {
            metrics::counter!("terminal_recording_failures_total", "reason" => "seal").increment(1);
            tracing::warn!(session_id = %session, error = ?failure, "a recording could not be sealed; trying again");
        }
        usize::from(sealed.is_ok())
    });
    Ok(sealing.buffer_unordered(AT_ONCE).fold(0, async |sum, count| sum + count).await)
}

async fn seal_ended(terminals: &Terminals, one: Unsealed) -> Result<(), Failure> {
    let folder = terminals.recordings.folder(one.org, one.session)?;
    // Whoever sealed it may have died before it was noted.
    match folder.seal_find(&one.noted).await {
        Ok(None) => {}
        Ok(Some(seal)) => return seal_note(terminals, &seal.statement).await,
        Err(StorageError::Fault(fault)) => return seal_tampered(terminals, &folder, one, &fault).await,
        Err(error) => return Err(error.into()),
    }
    for _ in 0..CLOSE_ATTEMPTS {
        let tail = match tail_find(&folder, one.noted.clone(), one.tampering.as_deref()).await {
            Ok(tail) => tail,
            Err(StorageError::Fault(fault)) => return seal_tampered(terminals, &folder, one, &fault).await,
            Err(error) => return Err(error.into()),
        };
        let Some(tail) = tail else {
            // Nothing that a gateway was storing when it died.
            folder.delete().await?;
            let mut upkeep = terminals.db.upkeep("a recording of which nothing was stored").await?;
            return Ok(store::recording_upkeep::remove(upkeep.conn(), one.session).await?);
        };
        // Nobody knows what the session printed after the last chunk.
        let finished = Recorder::resume(tail).finish(one.ended_at, None, &one.reason);
        let mut closed = Ok(());
        for chunk in finished.chunks {
            closed = folder.chunk_put(chunk.index, chunk.bytes.into()).await;
        }
        match closed {
            Ok(()) => {
                let statement = finished.statement.with_tampering(one.tampering);
                return recording_seal(terminals, &folder, statement).await;
            }
            // A slow gateway stored one more: that one belongs to the recording.
            Err(StorageError::Object(ObjectError::AlreadyExists)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StorageError::Object(ObjectError::AlreadyExists).into())
}

async fn tail_find(
    folder: &RecordingFolder,
    noted: Stored,
    tampering: Option<&str>,
) -> Result<Option<Tail>, StorageError> {
    let mut walked = folder.tail_walk(noted, tampering).await?;
    while !walked.is_end {
        walked = folder.tail_walk(walked.stored, tampering).await?;
    }
    Ok(walked.tail)
}

/// Seals what was noted of a recording whose objects were changed: whoever verifies is told which one does not fit.
async fn seal_tampered(
    terminals: &Terminals,
    folder: &RecordingFolder,
    one: Unsealed,
    fault: &Fault,
) -> Result<(), Failure> {
    tampering_note(terminals, one.session, fault).await?;
    let statement = Statement {
        session_id: one.session,
        chunks: one.noted.chunks.unsigned_abs(),
        // Nothing was noted before the first chunk.
        head: Hex(one.noted.head.unwrap_or_else(|| vec![0; 32])),
        end_sequence: one.noted.end_sequence.unsigned_abs(),
        ended_at: one.ended_at,
        reason: one.reason,
        complete: false,
        gaps: Vec::new(),
        tampering: Some(one.tampering.unwrap_or_else(|| fault.code().to_owned())),
    };
    recording_seal(terminals, folder, statement).await
}

/// Deletes the objects of recordings whose retention is over. Answers how many recordings.
pub async fn recordings_delete_expired(terminals: &Terminals) -> Result<usize, Failure> {
    let (now, expired) = {
        let mut upkeep = terminals.db.upkeep("recordings whose retention is over").await?;
        let now = store::recording_upkeep::earlier_now(upkeep.conn(), terminals.db.ambient().now()).await?;
        store::recordings::view_forget_expired(upkeep.conn(), now, FORGET_BATCH).await?;
        store::recording_upkeep::forget_deleted(upkeep.conn(), now - KEPT, FORGET_BATCH).await?;
        (now, store::recording_upkeep::claim_expired(upkeep.conn(), now, BATCH).await?)
    };
    let deleting = stream::iter(expired).map(async |(session, allocation, org)| {
        let deleted = delete_expired(terminals, session, (allocation, org), now).await;
        if let Err(failure) = &deleted {
            metrics::counter!("terminal_recording_failures_total", "reason" => "delete").increment(1);
            tracing::warn!(session_id = %session, error = ?failure, "a recording could not be deleted; trying again");
        }
        usize::from(deleted.unwrap_or(false))
    });
    Ok(deleting.buffer_unordered(AT_ONCE).fold(0, async |sum, count| sum + count).await)
}

/// False when its first chunk says that it is to be kept longer than the database says.
async fn delete_expired(
    terminals: &Terminals,
    session: TerminalSessionId,
    (allocation, org): (AllocationId, OrgId),
    now: DateTime<Utc>,
) -> Result<bool, Failure> {
    let ambient = terminals.db.ambient();
    let folder = terminals.recordings.folder(org, session)?;
    if let Some(until) = folder.kept_until().await?
        && until > now
    {
        metrics::counter!("terminal_recording_failures_total", "reason" => "retention").increment(1);
        tracing::warn!(session_id = %session, %until, "a recording is to be kept longer than the database says; it is kept");
        let mut upkeep = terminals.db.upkeep("a recording is kept as long as it says itself").await?;
        store::recording_upkeep::keep_until(upkeep.conn(), session, until).await?;
        return Ok(false);
    }
    folder.delete().await?;
    let origin = Origin::internal(CorrelationId(ambient.uuid()));
    let permit = Permit::system("the retention of a recording is over", origin);
    let mut tx = terminals.db.write(permit, "terminal.recording_delete").await?;
    tx.audit_in_org(org);
    let before = store::recordings::get(tx.conn(), allocation, session).await?;
    let is_noted = store::recording_upkeep::note_deleted(&mut tx, session, now).await?;
    let Some(before) = before.filter(|_| is_noted) else {
        tx.roll_back().await;
        return Ok(false);
    };
    pg::removed(&mut tx, "terminal_recording", session, &before)?;
    tx.commit(None).await?;
    Ok(true)
}
