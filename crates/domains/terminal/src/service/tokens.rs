//! Minting: who may enter gets a token, and the node a grant that only the token opens.

use capacity::api::{Entry, entry};
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::Caller;
use fleet::api::GrantRequest;
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, ProjectId, TerminalSessionId},
    policy::{TerminalRecording, keys},
    secret::ShownOnce,
};
use node_proto::grant::{Owner, PtyAccess, PtyTarget, Target};
use pg::{WriteTx, created};
use serde::Serialize;

use crate::{
    Terminals,
    model::{
        recording::Sealed,
        session::{Access, TerminalSession, TerminalTokenIssued},
        token::{Purpose, TerminalToken},
    },
    service::recordings::recording_order,
    store,
};

/// How long a token waits for its use.
pub const TOKEN_GOOD_FOR: TimeDelta = TimeDelta::seconds(60);
/// For so long after its end a node keeps the last output and the status of a session.
const LAST_OUTPUT: TimeDelta = TimeDelta::seconds(120);

/// What somebody wants into.
pub struct Wanted {
    pub project: ProjectId,
    pub allocation: AllocationId,
    /// None: a new session.
    pub session: Option<TerminalSessionId>,
    pub access: Access,
}

/// The session that a token leads to.
struct Place {
    session_id: TerminalSessionId,
    access: Access,
    /// Nobody was attached to it before.
    may_start: bool,
    lasts: TimeDelta,
}

/// As the audit trail keeps it.
#[derive(Serialize)]
struct Minted {
    allocation_id: AllocationId,
    session_id: TerminalSessionId,
    access: Access,
    recording: TerminalRecording,
    expires_at: DateTime<Utc>,
}

pub async fn token_create(
    terminals: &Terminals,
    tx: &mut WriteTx,
    caller: &Caller,
    wanted: Wanted,
) -> Result<TerminalTokenIssued, Failure> {
    let entry = entry(tx.conn(), wanted.project, wanted.allocation, caller.principal()).await?;
    if wanted.session.is_none() && wanted.access != Access::Write {
        let text = "Only an open session can be watched or taken over.";
        return Err(Problem::new(Code::ValidationError, text).suggest("Name it: session_id").into());
    }
    let Place { session_id, may_start, lasts, access } = match wanted.session {
        Some(id) => session_of_caller(terminals, tx, caller, &wanted, id).await?,
        None => session_start(terminals, tx, caller, &entry).await?,
    };
    let ambient = terminals.db.ambient();
    let now = ambient.now();
    let idle = terminals.setting(keys::TERMINAL_IDLE_SECONDS, &entry, caller).await?;
    // Before the grant is signed: what policy says may have to be read over another connection.
    let recording = recording_order(terminals, tx, &entry, caller, session_id).await?;
    let target = PtyTarget {
        session_id,
        access: access.into(),
        may_start,
        ttl_seconds: u32::try_from(lasts.num_seconds().max(1)).unwrap_or(u32::MAX),
        idle_seconds: u32::try_from(idle).unwrap_or(u32::MAX),
        recorded: recording.mode != TerminalRecording::Off,
    };
    let grant = grant_request(&entry, target);
    let grant = terminals.fleet.grant_sign(tx, grant).await?;
    let token = TerminalToken::random(ambient);
    let sealed_grant = Sealed { grant, recording }.seal(&token, ambient)?;
    let expires_at = now + TOKEN_GOOD_FOR;
    let new = store::tokens::NewToken {
        hash: token.hash(),
        org_id: entry.org_id.uuid(),
        project_id: entry.project_id,
        allocation_id: entry.allocation_id,
        purpose: Purpose::Terminal { session_id },
        sign_in: caller.sign_in(),
        sealed_grant: &sealed_grant,
        created_at: now,
        expires_at,
    };
    store::tokens::insert(tx, &new).await?;
    let allocation_id = entry.allocation_id;
    let minted =
        Minted { allocation_id, session_id, access: wanted.access, recording: recording.mode, expires_at };
    created(tx, "terminal_session", session_id, &minted)?;
    Ok(TerminalTokenIssued {
        token: ShownOnce::new(token.text()),
        session_id,
        expires_at,
        url: format!("/ws/terminal/{allocation_id}"),
    })
}

/// One stream, within the time in which a token can be used (and as far as clocks of nodes may differ).
fn grant_request(entry: &Entry, target: PtyTarget) -> GrantRequest {
    GrantRequest {
        node: entry.node_id,
        owner: Owner::Allocation { allocation_id: entry.allocation_id },
        good_for: TOKEN_GOOD_FOR,
        target: Target::Pty(target),
        single_use: true,
    }
}

/// The right to end a session, signed when it starts: it may be needed when its owner has lost the right to ask, and while its
/// node is away.
fn end_request(entry: &Entry, session_id: TerminalSessionId, lasts: TimeDelta) -> GrantRequest {
    let target = PtyTarget {
        session_id,
        access: PtyAccess::End,
        may_start: false,
        ttl_seconds: 1,
        idle_seconds: 1,
        recorded: false,
    };
    GrantRequest { good_for: lasts, ..grant_request(entry, target) }
}

async fn session_start(
    terminals: &Terminals,
    tx: &mut WriteTx,
    caller: &Caller,
    entry: &Entry,
) -> Result<Place, Failure> {
    let now = terminals.db.ambient().now();
    let most = terminals.setting(keys::TERMINAL_SESSIONS_PER_ALLOCATION, entry, caller).await?;
    store::sessions::starts_lock(tx, entry.allocation_id).await?;
    if store::sessions::count_open(tx.conn(), entry.allocation_id, now).await? >= most {
        let text = format!("The machine has {most} open terminal sessions, which is the limit.");
        let suggestion = "Attach to an open session, or end one: gpuaas allocations terminals list";
        return Err(Problem::new(Code::Unprocessable, text).detail("limit", most).suggest(suggestion).into());
    }
    let lasts = terminals.setting(keys::TERMINAL_SESSION_MAX_TTL_SECONDS, entry, caller).await?;
    let (id, lasts) = (terminals.db.ambient().id(), TimeDelta::seconds(lasts));
    let end_grant = terminals.fleet.grant_sign(tx, end_request(entry, id, lasts)).await?;
    let end_grant = serde_json::to_vec(&end_grant)?;
    store::sessions::insert(tx, id, entry, caller.principal(), (now, now + lasts), &end_grant).await?;
    Ok(Place { session_id: id, access: Access::Write, may_start: true, lasts })
}

/// A session of the caller that is open, or whose last output can still be read.
async fn session_of_caller(
    terminals: &Terminals,
    tx: &mut WriteTx,
    caller: &Caller,
    wanted: &Wanted,
    id: TerminalSessionId,
) -> Result<Place, Failure> {
    let session = session_find(tx, wanted.allocation, id).await?;
    if session.principal != caller.principal() {
        let text = "The session belongs to somebody else, and nobody else can attach to it.";
        let suggestion = "Start one of your own: gpuaas terminal <allocation>";
        return Err(Problem::new(Code::OwnershipRequired, text).suggest(suggestion).into());
    }
    let now = terminals.db.ambient().now();
    let left = session.expires_at - now;
    let has_just_ended = session.ended_at.is_some_and(|ended_at| now < ended_at + LAST_OUTPUT);
    if has_just_ended && session.exit_status.is_some() {
        // Whoever was cut off in the last moment learns how it ended. Who asks to write is recorded, and so gets what is not
        // recorded yet; a node lets nobody write to an ended session.
        return Ok(Place { session_id: id, access: wanted.access, may_start: false, lasts: LAST_OUTPUT });
    }
    if session.ended_at.is_some() || left <= TimeDelta::zero() {
        let reason = session.end_reason.unwrap_or_else(|| "expired".to_owned());
        let text = format!("The session has ended ({reason}).");
        let suggestion = "Start a new one: gpuaas terminal <allocation>";
        return Err(Problem::new(Code::Conflict, text).detail("reason", reason).suggest(suggestion).into());
    }
    let may_start = session.attachments == 0;
    Ok(Place { session_id: id, access: wanted.access, may_start, lasts: left })
}

pub(super) async fn session_find(
    tx: &mut WriteTx,
    allocation: AllocationId,
    id: TerminalSessionId,
) -> Result<TerminalSession, Failure> {
    let session = store::sessions::get(tx.conn(), allocation, id).await?;
    Ok(session.ok_or_else(|| Problem::not_found("terminal session"))?)
}
