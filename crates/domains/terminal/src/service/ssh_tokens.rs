//! Minting for SSH: a token for one connection to the machine's SSH server.

use capacity::api::entry;
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::Caller;
use fleet::api::GrantRequest;
use kernel::{
    Failure,
    ids::{AllocationId, ProjectId},
    secret::ShownOnce,
};
use node_proto::grant::{Owner, SSH_PORT, Target};
use pg::{WriteTx, created};
use serde::Serialize;

use crate::{
    Terminals,
    model::{
        ssh::SshTokenIssued,
        token::{Purpose, TerminalToken},
    },
    store,
};

/// How long a token waits for its use.
const GOOD_FOR: TimeDelta = TimeDelta::seconds(60);

/// As the audit trail keeps it.
#[derive(Serialize)]
struct Minted {
    username: String,
    expires_at: DateTime<Utc>,
}

pub async fn ssh_token_create(
    terminals: &Terminals,
    tx: &mut WriteTx,
    caller: &Caller,
    (project, allocation): (ProjectId, AllocationId),
) -> Result<SshTokenIssued, Failure> {
    let entry = entry(tx.conn(), project, allocation, caller.principal()).await?;
    let request = GrantRequest {
        node: entry.node_id,
        owner: Owner::Allocation { allocation_id: entry.allocation_id },
        target: Target::Tcp { port: SSH_PORT },
        single_use: true,
        good_for: GOOD_FOR,
    };
    let grant = terminals.fleet.grant_sign(tx, request).await?;
    let ambient = terminals.db.ambient();
    let token = TerminalToken::random(ambient);
    let now = ambient.now();
    let expires_at = now + GOOD_FOR;
    let new = store::tokens::NewToken {
        hash: token.hash(),
        org_id: entry.org_id.uuid(),
        project_id: entry.project_id,
        allocation_id: entry.allocation_id,
        purpose: Purpose::Ssh,
        sign_in: caller.sign_in(),
        sealed_grant: &token.seal(ambient, &grant)?,
        created_at: now,
        expires_at,
    };
    store::tokens::insert(tx, &new).await?;
    let (allocation_id, username) = (entry.allocation_id, entry.username);
    created(tx, "allocation", allocation_id, &Minted { username: username.clone(), expires_at })?;
    Ok(SshTokenIssued {
        token: ShownOnce::new(token.text()),
        expires_at,
        url: format!("/ws/ssh/{allocation_id}"),
        username,
        host_keys: entry.host_keys,
    })
}
