//! The endpoint that gives tokens for SSH.

use endpoint::{Created, Empty, Endpoint, In, Lane, ScopeKind, Write, post};
use kernel::{Failure, Permission};

use super::{AllocationPath, ERRORS, caller};
use crate::{Terminals, model::ssh::SshTokenIssued, service::ssh_tokens::ssh_token_create};

/// The declaration is also what an open connection is checked against.
pub fn ssh_token_endpoint(terminals: &Terminals) -> Endpoint {
    post(
        "/api/v1/projects/{project_id}/allocations/{allocation_id}/ssh-token",
        "ssh_token_create",
        "Get a token for SSH",
    )
    .describe(
        "For whoever launched the machine and users with access to it. The token works once, within a minute, for a \
         WebSocket at `url` with the protocol `gpuaas.ssh.v1`, which carries one connection to the SSH server of the machine. \
         That server decides who signs in, by the SSH keys of the allocation.",
    )
    .in_scope(ScopeKind::Project)
    .lane(Lane::Ssh)
    .errors(ERRORS)
    .needs(Permission::AllocationOperate)
    .audited("terminal.ssh_token_create")
    .handle(terminals.clone(), create)
}

async fn create(
    terminals: Terminals,
    mut tx: Write,
    input: In<AllocationPath, Empty, ()>,
) -> Result<Created<SshTokenIssued>, Failure> {
    let caller = caller(&input)?;
    let machine = (input.path.project_id, input.path.allocation_id);
    Ok(Created(ssh_token_create(&terminals, &mut tx, &caller, machine).await?))
}
