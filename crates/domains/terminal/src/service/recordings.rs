//! Recordings: who may see them, and who writes them.
//!
//! The person whose session it was sees its recording, and so do admins of the project. Reading the chunks takes a view, which
//! is opened by a request of its own, so that every look at a recording is in the audit trail once, however many requests the
//! chunks take.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use capacity::api::{Entry, machine};
use chrono::TimeDelta;
use endpoint::Caller;
use identity::api::Where;
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{AllocationId, OrgId, ProjectId, RecordingViewId, TerminalSessionId},
    policy::keys,
};
use pg::{Connection, ReadTx, WriteTx, created};
use recording::{Fault, Statement};

pub use crate::store::recordings::{NewRecording, Opened, Stored, Writes};
use crate::{
    Terminals,
    model::recording::{RecordingChunk, RecordingChunks, RecordingOrder, RecordingView, SessionRecording},
    service::recording_storage::{RecordingFolder, StorageError},
    store::{self, recordings::SealedAs},
};

/// How long chunks can be read before the recording has to be opened again.
const VIEW_LASTS: TimeDelta = TimeDelta::hours(1);
/// What one answer with chunks holds at most, and how many objects are asked for.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;
const ANSWER_CHUNKS: i64 = 256;

/// Which recording, and who asks.
pub struct Asked<'a> {
    pub project: ProjectId,
    pub allocation: AllocationId,
    pub session: TerminalSessionId,
    pub caller: &'a Caller,
    /// Whether the caller may see those of others.
    pub any: bool,
}

/// What a token for this session says about recording: what policy says, or what was recorded of the session before, whichever
/// is more.
pub async fn recording_order(
    terminals: &Terminals,
    tx: &mut WriteTx,
    entry: &Entry,
    caller: &Caller,
    session: TerminalSessionId,
) -> Result<RecordingOrder, Failure> {
    let place = Where { org: Some(entry.org_id), project: Some(entry.project_id), user: caller.user() };
    let mode = terminals.policies.setting_at(keys::TERMINAL_RECORDING, place).await?;
    let recorded = store::recordings::mode(tx.conn(), session).await?;
    let retention_days = terminals.setting(keys::TERMINAL_RECORDING_RETENTION_DAYS, entry, caller).await?;
    Ok(RecordingOrder {
        org_id: entry.org_id,
        mode: recorded.map_or(mode, |recorded| recorded.max(mode)),
        retention_days,
    })
}

pub async fn recording_list(
    tx: &mut ReadTx,
    (project, allocation): (ProjectId, AllocationId),
    (caller, any): (&Caller, bool),
    page: &PageQuery,
) -> Result<Page<SessionRecording>, Failure> {
    machine(tx.conn(), project, allocation).await?;
    let owner = (!any).then(|| caller.principal());
    let recordings = store::recordings::list(tx.conn(), allocation, owner, page).await?;
    Ok(page.page(recordings, |recording| recording.session_id.uuid()))
}

pub async fn recording_get(conn: &mut Connection, asked: &Asked<'_>) -> Result<SessionRecording, Failure> {
    Ok(recording_find(conn, asked).await?.1)
}

async fn recording_find(
    conn: &mut Connection,
    asked: &Asked<'_>,
) -> Result<(OrgId, SessionRecording), Failure> {
    let entry = machine(conn, asked.project, asked.allocation).await?;
    let recording = store::recordings::get(conn, asked.allocation, asked.session).await?;
    let recording = recording.ok_or_else(|| Problem::not_found("recording"))?;
    if !asked.any && recording.principal != asked.caller.principal() {
        let text = "Only the person whose session it was and admins of the project may see the recording.";
        return Err(Problem::new(Code::OwnershipRequired, text).into());
    }
    Ok((entry.org_id, recording))
}

fn refuse_deleted(recording: &SessionRecording) -> Result<(), Problem> {
    if recording.deleted_at.is_none() {
        return Ok(());
    }
    let text = "The recording was deleted when its retention was over.";
    Err(Problem::new(Code::Conflict, text).detail("reason", "deleted"))
}

/// Opens a view, which the audit trail keeps.
pub async fn view_create(
    terminals: &Terminals,
    tx: &mut WriteTx,
    asked: &Asked<'_>,
) -> Result<RecordingView, Failure> {
    let (org, recording) = recording_find(tx.conn(), asked).await?;
    refuse_deleted(&recording)?;
    let ambient = terminals.db.ambient();
    let (id, now) = (ambient.id(), ambient.now());
    let expires_at = now + VIEW_LASTS;
    let principal = asked.caller.principal();
    store::recordings::view_insert(tx, id, org, asked.session, principal, (now, expires_at)).await?;
    created(tx, "terminal_recording", asked.session, &recording)?;
    Ok(RecordingView { id, session_id: asked.session, expires_at, key: terminals.recordings.key() })
}

/// Chunks from this index on, as many as fit into an answer. A chunk that is missing is left out: whoever verifies is told.
pub async fn chunk_list(
    terminals: &Terminals,
    mut tx: ReadTx,
    asked: &Asked<'_>,
    view: RecordingViewId,
    from: i64,
) -> Result<RecordingChunks, Failure> {
    let (org, recording) = recording_find(tx.conn(), asked).await?;
    let (now, principal) = (terminals.db.ambient().now(), asked.caller.principal());
    if !store::recordings::view_is_open(tx.conn(), view, asked.session, principal, now).await? {
        return Err(Problem::not_found("view of the recording").into());
    }
    refuse_deleted(&recording)?;
    drop(tx);
    let folder = terminals.recordings.folder(org, asked.session)?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    for index in from..from.saturating_add(ANSWER_CHUNKS) {
        // One that is larger than any that was stored is as good as missing.
        let chunk = match folder.chunk_get(index.unsigned_abs()).await {
            Err(StorageError::Fault(_)) => None,
            found => found?,
        };
        let Some(chunk) = chunk else {
            if index < recording.chunks {
                continue;
            }
            let seal = folder.seal_get().await?.map(|seal| String::from_utf8_lossy(&seal).into_owned());
            return Ok(RecordingChunks { items, next: None, seal });
        };
        bytes += chunk.len();
        items.push(RecordingChunk { index, content: BASE64_STANDARD.encode(&chunk) });
        if bytes >= ANSWER_BYTES {
            return Ok(RecordingChunks { items, next: Some(index + 1), seal: None });
        }
    }
    Ok(RecordingChunks { items, next: Some(from.saturating_add(ANSWER_CHUNKS)), seal: None })
}

// ---- for the gateway that writes

pub async fn recording_open(terminals: &Terminals, new: &NewRecording) -> Result<Option<Opened>, Failure> {
    let mut upkeep = terminals.db.upkeep("a terminal is recorded").await?;
    Ok(store::recordings::open(upkeep.conn(), new).await?)
}

/// False when another gateway has taken over.
pub async fn recording_note(
    terminals: &Terminals,
    session: TerminalSessionId,
    epoch: i64,
    stored: &Stored,
    writes: Writes,
) -> Result<bool, Failure> {
    let mut upkeep = terminals.db.upkeep("what is stored of a recording").await?;
    Ok(store::recordings::note_stored(upkeep.conn(), session, epoch, stored, writes).await?)
}

/// What is stored, and whether the attachment with this epoch writes no more.
pub async fn recording_stored(
    terminals: &Terminals,
    session: TerminalSessionId,
    epoch: i64,
) -> Result<(Stored, bool), Failure> {
    let mut upkeep = terminals.db.upkeep("what is stored of a recording").await?;
    Ok(store::recordings::stored(upkeep.conn(), session, epoch).await?)
}

/// Somebody else changed what is stored: operators see it in the log and in a metric, and whoever looks at the recording.
pub async fn tampering_note(
    terminals: &Terminals,
    session: TerminalSessionId,
    fault: &Fault,
) -> Result<(), Failure> {
    tampering_report(session, fault);
    let mut upkeep = terminals.db.upkeep("a recording was changed by somebody else").await?;
    Ok(store::recordings::note_tampering(upkeep.conn(), session, fault.code()).await?)
}

fn tampering_report(session: TerminalSessionId, fault: &Fault) {
    metrics::counter!("terminal_recording_tampering_total").increment(1);
    tracing::error!(session_id = %session, code = fault.code(), error = %fault, "a stored recording was changed by somebody else");
}

/// Stores the seal, and notes it. What is stored is compared first: chunks that were changed are sealed as such, and a seal of
/// somebody else's is left where it is and not believed.
pub async fn recording_seal(
    terminals: &Terminals,
    folder: &RecordingFolder,
    mut statement: Statement,
) -> Result<(), Failure> {
    let session = statement.session_id;
    let tampered = |statement: Statement, fault: &Fault| {
        tampering_report(session, fault);
        statement.with_tampering(Some(fault.code().to_owned()))
    };
    if statement.tampering.is_none() {
        match folder.head_check(&statement).await {
            Ok(()) => {}
            Err(StorageError::Fault(fault)) => statement = tampered(statement, &fault),
            Err(error) => return Err(error.into()),
        }
    }
    let sealed = match folder.seal_put(statement.clone()).await {
        Ok(seal) => seal.statement,
        Err(StorageError::Fault(fault)) => tampered(statement, &fault),
        Err(error) => return Err(error.into()),
    };
    seal_note(terminals, &sealed).await?;
    // It goes with the recording later, if not now.
    if let Err(error) = folder.staged_remove().await {
        tracing::warn!(session_id = %session, error = ?error, "what a gateway left beside a recording could not be removed");
    }
    Ok(())
}

/// Notes a seal that is stored.
pub async fn seal_note(terminals: &Terminals, sealed: &Statement) -> Result<(), Failure> {
    let now = terminals.db.ambient().now();
    // A seal that counts more than can be is noted all the same: it is there, and would be tried for ever.
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let noted = SealedAs {
        chunks: number(sealed.chunks),
        end_sequence: number(sealed.end_sequence),
        head: &sealed.head.0,
        complete: sealed.complete,
        tampering: sealed.tampering.as_deref(),
    };
    let mut upkeep = terminals.db.upkeep("a recording is sealed").await?;
    Ok(store::recordings::note_sealed(upkeep.conn(), sealed.session_id, &noted, now).await?)
}
