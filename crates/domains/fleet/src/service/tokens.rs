//! Bootstrap and repair tokens: made here, shown once, kept as a hash.

use chrono::TimeDelta;
use kernel::{
    Code, Failure, Problem, Secret, digest,
    hex::Hex,
    ids::{NodeId, NodeTokenId},
    policy::keys,
    secret::ShownOnce,
};
use lifecycle::Named as _;
use pg::WriteTx;

use super::found;
use crate::{
    Fleet,
    model::{
        join_warning::{JoinWarning, join_warnings},
        node::{Node, NodeState},
        token::{IssuedToken, TokenPurpose, install_command},
    },
    store,
};

/// Tells a token from any other secret that somebody might paste.
pub const TOKEN_PREFIX: &str = "gnt_";

pub fn token_hash(token: &str) -> [u8; 32] {
    digest::sha256(token)
}

/// A new token; one that was not used yet no longer counts. Leaves the audit target alone.
pub(crate) async fn issue(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: &Node,
    purpose: TokenPurpose,
) -> Result<IssuedToken, Failure> {
    let ttl = TimeDelta::seconds(fleet.policy(keys::FLEET_BOOTSTRAP_TTL_SECONDS).await?.get());
    let join = fleet.trust().join_info(node.id, &node.hostname, &fleet.settings().node_url).await?;
    let ambient = tx.db().ambient().clone();
    let (now, id) = (ambient.now(), ambient.id::<NodeTokenId>());
    let token = Secret::new(format!("{TOKEN_PREFIX}{}", Hex(ambient.bytes::<32>().to_vec())));
    store::tokens::revoke_open(tx.conn(), node.id, now).await?;
    let (hash, expires_at) = (token_hash(token.expose()), now + ttl);
    store::tokens::insert(tx.conn(), id, (node.id, purpose), &hash, expires_at, now).await?;
    let install_command = install_command(&fleet.settings().public_url, &join, purpose);
    // A simulated machine is played by a program that is there already, beside the server.
    let warnings = if node.simulated { Vec::new() } else { warnings(fleet).await? };
    Ok(IssuedToken { id, purpose, token: ShownOnce::new(token), expires_at, join, install_command, warnings })
}

async fn warnings(fleet: &Fleet) -> Result<Vec<JoinWarning>, Failure> {
    let programs = fleet.programs().clone();
    // A directory that cannot be read offers nothing, either.
    let has_program =
        tokio::task::spawn_blocking(move || programs.list().is_ok_and(|found| !found.is_empty())).await?;
    let settings = fleet.settings();
    Ok(join_warnings(&settings.public_url, &settings.node_url, has_program))
}

/// Another bootstrap token for a node that has not enrolled yet; the one before is revoked.
pub async fn node_bootstrap_token(
    fleet: &Fleet,
    tx: &mut WriteTx,
    id: NodeId,
) -> Result<IssuedToken, Failure> {
    let node = found(store::nodes::lock(tx.conn(), id).await?, "node")?;
    if node.state != NodeState::BootstrapIssued {
        let text = "The node has already enrolled; a bootstrap token is for the first enrolment.";
        return Err(Problem::new(Code::InvalidTransition, text)
            .detail("state", node.state.name())
            .suggest("Use a repair token for a node that lost its certificate.")
            .into());
    }
    recorded(fleet, tx, &node, TokenPurpose::Bootstrap).await
}

/// For a node that lost its certificate. Using it revokes every earlier certificate of the node.
pub async fn node_repair_token(fleet: &Fleet, tx: &mut WriteTx, id: NodeId) -> Result<IssuedToken, Failure> {
    let node = found(store::nodes::lock(tx.conn(), id).await?, "node")?;
    if !node.state.is_enrolled() {
        let text = format!("The node is {}; only an enrolled node can be repaired.", node.state);
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", node.state.name()).into());
    }
    recorded(fleet, tx, &node, TokenPurpose::Repair).await
}

async fn recorded(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: &Node,
    purpose: TokenPurpose,
) -> Result<IssuedToken, Failure> {
    let issued = issue(fleet, tx, node, purpose).await?;
    let facts = serde_json::json!({
        "node_id": node.id, "purpose": issued.purpose, "expires_at": issued.expires_at,
    });
    tx.record("node_token", issued.id, None::<&()>, Some(&facts))?;
    Ok(issued)
}
