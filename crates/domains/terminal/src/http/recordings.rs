//! Recordings of terminal sessions.

use endpoint::{Created, Empty, Endpoint, Given, In, Json, ScopeKind, Whole, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{AllocationId, ProjectId, RecordingViewId, TerminalSessionId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::caller;
use crate::{
    Terminals,
    model::recording::{RecordingChunks, RecordingView, SessionRecording},
    service::recordings::{Asked, chunk_list, recording_get, recording_list, view_create},
};

const RECORDINGS: &str = "/api/v1/projects/{project_id}/allocations/{allocation_id}/recordings";
const RECORDING: &str = "/api/v1/projects/{project_id}/allocations/{allocation_id}/recordings/{session_id}";
const VIEWS: &str = "/api/v1/projects/{project_id}/allocations/{allocation_id}/recordings/{session_id}/views";
const CHUNKS: &str = "/api/v1/projects/{project_id}/allocations/{allocation_id}/recordings/{session_id}/views/{view_id}/chunks";

pub fn endpoints(terminals: &Terminals) -> Vec<Endpoint> {
    vec![
        get(RECORDINGS, "terminal_recording_list", "List recordings of an allocation's terminal sessions")
            .describe("Oldest first. Your own, or all for admins of the project; includes deleted ones.")
            .in_scope(ScopeKind::Project)
            .needs(Permission::AllocationOperate)
            .handle(terminals.clone(), list),
        get(RECORDING, "terminal_recording_get", "Show a recording")
            .describe("For the person whose session it was, and admins of the project.")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::OwnershipRequired])
            .needs(Permission::AllocationOperate)
            .handle(terminals.clone(), show),
        post(VIEWS, "terminal_recording_view_create", "Open a recording")
            .describe(
                "Gives the key with which this installation seals recordings, and for an hour the right to read the chunks of \
                 this one. Every view is in the audit trail.",
            )
            .in_scope(ScopeKind::Project)
            .errors(&[Code::OwnershipRequired, Code::Conflict])
            .needs(Permission::AllocationOperate)
            .audited("terminal.recording_view")
            .handle(terminals.clone(), view),
        get(CHUNKS, "terminal_recording_chunk_list", "Read the chunks of a recording")
            .describe(
                "Chunks as they are stored, from index `from` on; `next` is where to go on. The last answer \
                 has the seal. The first line of a chunk is its \
                 header, the others are lines of an asciicast v2 file.",
            )
            .in_scope(ScopeKind::Project)
            .errors(&[Code::OwnershipRequired, Code::Conflict])
            .needs(Permission::AllocationOperate)
            .handle(terminals.clone(), chunks),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct RecordingsPath {
    project_id: ProjectId,
    allocation_id: AllocationId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct RecordingPath {
    project_id: ProjectId,
    allocation_id: AllocationId,
    session_id: TerminalSessionId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ViewPath {
    project_id: ProjectId,
    allocation_id: AllocationId,
    session_id: TerminalSessionId,
    view_id: RecordingViewId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ChunksQuery {
    /// The index of the first chunk.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    from: Given<Whole>,
}

/// Whether the caller may see recordings of others.
fn sees_any<P, Q, B>(input: &In<P, Q, B>) -> bool {
    input.access.permissions().holds(Permission::AllocationOperateAny)
}

async fn list(
    _: Terminals,
    mut tx: ReadTx,
    input: In<RecordingsPath, PageQuery, ()>,
) -> Result<Json<Page<SessionRecording>>, Failure> {
    let (caller, any) = (caller(&input)?, sees_any(&input));
    let machine = (input.path.project_id, input.path.allocation_id);
    Ok(Json(recording_list(&mut tx, machine, (&caller, any), &input.query).await?))
}

async fn show(
    _: Terminals,
    mut tx: ReadTx,
    input: In<RecordingPath, Empty, ()>,
) -> Result<Json<SessionRecording>, Failure> {
    let (caller, any) = (caller(&input)?, sees_any(&input));
    let RecordingPath { project_id: project, allocation_id: allocation, session_id: session } = input.path;
    let asked = Asked { project, allocation, session, caller: &caller, any };
    Ok(Json(recording_get(tx.conn(), &asked).await?))
}

async fn view(
    terminals: Terminals,
    mut tx: Write,
    input: In<RecordingPath, Empty, ()>,
) -> Result<Created<RecordingView>, Failure> {
    let (caller, any) = (caller(&input)?, sees_any(&input));
    let RecordingPath { project_id: project, allocation_id: allocation, session_id: session } = input.path;
    let asked = Asked { project, allocation, session, caller: &caller, any };
    Ok(Created(view_create(&terminals, &mut tx, &asked).await?))
}

async fn chunks(
    terminals: Terminals,
    tx: ReadTx,
    input: In<ViewPath, ChunksQuery, ()>,
) -> Result<Json<RecordingChunks>, Failure> {
    let (caller, any) = (caller(&input)?, sees_any(&input));
    let ViewPath { project_id: project, allocation_id: allocation, session_id: session, view_id } =
        input.path;
    let asked = Asked { project, allocation, session, caller: &caller, any };
    let from = input.query.from.0.map_or(0, |from| from.0);
    Ok(Json(chunk_list(&terminals, tx, &asked, view_id, from).await?))
}
