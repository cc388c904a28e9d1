//! Sessions of a machine: seen by its project, ended by their owners and by admins.

use capacity::api::machine;
use endpoint::Caller;
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{AllocationId, ProjectId, TerminalSessionId},
};
use pg::{ReadTx, WriteTx, removed};

use super::tokens::session_find;
use crate::{Terminals, model::session::TerminalSession, store};

pub async fn session_list(
    tx: &mut ReadTx,
    project: ProjectId,
    allocation: AllocationId,
    open: bool,
    page: &PageQuery,
) -> Result<Page<TerminalSession>, Failure> {
    machine(tx.conn(), project, allocation).await?;
    let sessions = store::sessions::list(tx.conn(), allocation, open, page).await?;
    Ok(page.page(sessions, |session| session.id.uuid()))
}

/// Asks a gateway to end it on its node. Ending what has ended changes nothing.
pub async fn session_end(
    terminals: &Terminals,
    tx: &mut WriteTx,
    (caller, any): (&Caller, bool),
    (project, allocation): (ProjectId, AllocationId),
    id: TerminalSessionId,
) -> Result<(), Failure> {
    machine(tx.conn(), project, allocation).await?;
    let session = session_find(tx, allocation, id).await?;
    if !any && session.principal != caller.principal() {
        let text = "Only the owner of the session or an admin of the project may end it.";
        return Err(Problem::new(Code::OwnershipRequired, text).into());
    }
    if session.ended_at.is_none() {
        let now = terminals.db.ambient().now();
        store::sessions::end_ask(tx.conn(), id, now).await?;
    }
    removed(tx, "terminal_session", id, &session)
}
