//! The endpoints.

pub mod logs;
mod recordings;
pub mod ssh;

use endpoint::{
    Created, Empty, Endpoint, Flag, Given, In, Json, Lane, NoContent, ScopeKind, Write, delete, get, post,
};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem,
    ids::{AllocationId, ProjectId, TerminalSessionId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Terminals,
    model::session::{Access, ENTERING, TerminalSession, TerminalTokenIssued},
    service::{
        sessions::{session_end, session_list},
        tokens::{Wanted, token_create},
    },
};

const ERRORS: &[Code] =
    &[Code::OwnershipRequired, Code::InvalidTransition, Code::Conflict, Code::Unprocessable];

pub fn endpoints(terminals: &Terminals) -> Vec<Endpoint> {
    const SESSIONS: &str = "/api/v1/projects/{project_id}/allocations/{allocation_id}/terminal-sessions";
    let mut all = recordings::endpoints(terminals);
    all.extend([
        token_endpoint(terminals),
        ssh::ssh_token_endpoint(terminals),
        logs::log_token_endpoint(terminals),
        get(SESSIONS, "terminal_session_list", "List terminal sessions of an allocation")
            .describe("Oldest first; includes ended ones, unless `open` is set.")
            .in_scope(ScopeKind::Project)
            .needs(Permission::AllocationRead)
            .handle(terminals.clone(), list),
        delete(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/terminal-sessions/{session_id}",
            "terminal_session_delete",
            "End a terminal session",
        )
        .describe(
            "The shell and everything that it started are ended within seconds. The session stays in the list. Admins of the \
             project may end sessions of others.",
        )
        .in_scope(ScopeKind::Project)
        .errors(ERRORS)
        .needs(Permission::AllocationOperate)
        .audited("terminal.session_end")
        .handle(terminals.clone(), end),
    ]);
    all
}

/// The declaration is also what an open terminal is checked against.
pub fn token_endpoint(terminals: &Terminals) -> Endpoint {
    post(
        "/api/v1/projects/{project_id}/allocations/{allocation_id}/terminal-token",
        "terminal_token_create",
        "Get a token for a terminal",
    )
    .describe(
        "For whoever launched the machine and users with access to it. The token works once, within a minute, for a \
         WebSocket at `url` with the protocol `gpuaas.terminal.v1`. Without `session_id` a new session starts; with it, the \
         client attaches to a session of its own and gets the output that it misses.",
    )
    .in_scope(ScopeKind::Project)
    .lane(Lane::Terminal)
    .errors(ERRORS)
    .needs(ENTERING)
    .audited("terminal.token_create")
    .handle(terminals.clone(), create)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AllocationPath {
    project_id: ProjectId,
    allocation_id: AllocationId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TerminalTokenCreate {
    /// A session of yours that is open; without it a new one starts.
    #[serde(default)]
    session_id: Given<TerminalSessionId>,
    #[serde(default)]
    access: Access,
}

fn caller<P, Q, B>(input: &In<P, Q, B>) -> Result<endpoint::Caller, Problem> {
    input.access.caller().cloned().ok_or_else(|| Problem::from_code(Code::TokenMissing))
}

async fn create(
    terminals: Terminals,
    mut tx: Write,
    input: In<AllocationPath, Empty, Json<TerminalTokenCreate>>,
) -> Result<Created<TerminalTokenIssued>, Failure> {
    let caller = caller(&input)?;
    let wanted = Wanted {
        project: input.path.project_id,
        allocation: input.path.allocation_id,
        session: input.body.0.session_id.0,
        access: input.body.0.access,
    };
    Ok(Created(token_create(&terminals, &mut tx, &caller, wanted).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SessionQuery {
    /// Only sessions that are open, as far as is known.
    #[serde(default)]
    open: Given<Flag>,
    #[serde(flatten)]
    page: PageQuery,
}

async fn list(
    _: Terminals,
    mut tx: ReadTx,
    input: In<AllocationPath, SessionQuery, ()>,
) -> Result<Json<Page<TerminalSession>>, Failure> {
    let (path, query) = (&input.path, &input.query);
    let open = query.open.0.is_some_and(|open| open.0);
    Ok(Json(session_list(&mut tx, path.project_id, path.allocation_id, open, &query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SessionPath {
    project_id: ProjectId,
    allocation_id: AllocationId,
    session_id: TerminalSessionId,
}

async fn end(
    terminals: Terminals,
    mut tx: Write,
    input: In<SessionPath, Empty, ()>,
) -> Result<NoContent, Failure> {
    let caller = caller(&input)?;
    let any = input.access.permissions().holds(Permission::AllocationOperateAny);
    let path = &input.path;
    let machine = (path.project_id, path.allocation_id);
    session_end(&terminals, &mut tx, (&caller, any), machine, path.session_id).await?;
    Ok(NoContent)
}
