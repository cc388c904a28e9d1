//! What the gateway reads in the grant of an SSH connection. It believes none of it: the node verifies the grant.

use std::time::Duration;

use kernel::{
    ids::NodeId,
    policy::{PolicyKey as _, keys},
};
use node_proto::grant::{Grant, Owner, SignedGrant, Target};

use super::admit::Admitted;

/// No connection lasts longer, whatever its grant says.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

pub struct SshGrant {
    pub node: NodeId,
    pub actor: String,
    pub lasts: Duration,
}

/// What the token sealed. Nothing when it is for another machine than the row of the token says: then the right to enter that
/// one would be looked at later.
pub fn sealed_grant(admitted: &Admitted) -> Option<(SshGrant, SignedGrant)> {
    let grant = admitted.token.open(&admitted.consumed.sealed_grant)?;
    let Grant { node_id: node, owner, target, actor, .. } = serde_json::from_slice(&grant.payload.0).ok()?;
    let Target::Tcp { ttl_seconds, .. } = target else { return None };
    let allocation_id = admitted.consumed.allocation_id;
    let is_same = owner == Owner::Allocation { allocation_id };
    is_same.then_some((SshGrant { node, actor, lasts: time_to_live(ttl_seconds) }, grant))
}

/// A grant that names none is of a control plane that had no such policy yet. The node has the same limit.
fn time_to_live(seconds: Option<u32>) -> Duration {
    let default = || u64::try_from(keys::SSH_SESSION_MAX_TTL_SECONDS.default_setting().get()).unwrap_or(0);
    Duration::from_secs(seconds.map_or_else(default, u64::from)).min(LONGEST)
}
