//! Minting for SSH: a token for one connection to the machine's SSH server.

use capacity::api::{Entry, entry};
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::Caller;
use fleet::api::GrantRequest;
use identity::api::Where;
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, ProjectId},
    policy::{PolicyKey as _, SshWithoutRecording, TerminalRecording, keys},
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
    /// How long the connection may last.
    ttl_seconds: i64,
}

pub async fn ssh_token_create(
    terminals: &Terminals,
    tx: &mut WriteTx,
    caller: &Caller,
    (project, allocation): (ProjectId, AllocationId),
) -> Result<SshTokenIssued, Failure> {
    let entry = entry(tx.conn(), project, allocation, caller.principal()).await?;
    // Before the grant is signed: what policy says may have to be read over another connection.
    check_recording(terminals, &entry, caller).await?;
    let ttl_seconds = terminals.setting(keys::SSH_SESSION_MAX_TTL_SECONDS, &entry, caller).await?;
    let request = GrantRequest {
        node: entry.node_id,
        owner: Owner::Allocation { allocation_id: entry.allocation_id },
        target: Target::Tcp { port: SSH_PORT, ttl_seconds: u32::try_from(ttl_seconds).ok() },
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
    let minted = Minted { username: username.clone(), expires_at, ttl_seconds };
    created(tx, "allocation", allocation_id, &minted)?;
    Ok(SshTokenIssued {
        token: ShownOnce::new(token.text()),
        expires_at,
        url: format!("/ws/ssh/{allocation_id}"),
        username,
        host_keys: entry.host_keys,
    })
}

/// SSH is encrypted from end to end: whoever must be recorded uses a terminal, where policy says so.
async fn check_recording(terminals: &Terminals, entry: &Entry, caller: &Caller) -> Result<(), Failure> {
    let place = Where { org: Some(entry.org_id), project: Some(entry.project_id), user: caller.user() };
    let policies = &terminals.policies;
    let refuses = match policies.setting_at(keys::SSH_WHEN_RECORDING_REQUIRED, place).await? {
        SshWithoutRecording::Allow => false,
        SshWithoutRecording::Refuse => {
            policies.setting_at(keys::TERMINAL_RECORDING, place).await? != TerminalRecording::Off
        }
    };
    if !refuses {
        return Ok(());
    }
    let text = "Sessions on this machine are recorded, and SSH cannot be.";
    Err(Problem::new(Code::Unprocessable, text)
        .detail("policy", keys::SSH_WHEN_RECORDING_REQUIRED.definition().key)
        .suggest("Open a terminal, which is recorded: gpuaas terminal <allocation>")
        .into())
}
