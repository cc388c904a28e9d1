//! Bootstrap and repair tokens: what a machine has before it has a certificate, or when it lost it.

use chrono::{DateTime, Utc};
use kernel::{
    Code,
    ids::{NodeId, NodeTokenId},
    secret::ShownOnce,
};
use node_proto::contract::JoinInfo;
use schemars::JsonSchema;
use serde::Serialize;

use super::node::{Node, NodeState};

lifecycle::named_enum! {
    TokenPurpose = "purpose of a token" { Bootstrap = "bootstrap", Repair = "repair" }
}

impl TokenPurpose {
    /// A bootstrap token makes a node; a repair token gives one that is in the fleet its identity back.
    pub fn fits(self, state: NodeState) -> bool {
        match self {
            Self::Bootstrap => state == NodeState::BootstrapIssued,
            Self::Repair => state.is_enrolled(),
        }
    }
}

/// A token as it lies in the database: its hash, and for whom it is.
#[derive(Clone, Debug)]
pub struct StoredToken {
    pub id: NodeTokenId,
    pub node_id: NodeId,
    pub purpose: TokenPurpose,
    pub expires_at: DateTime<Utc>,
    pub used_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Why a token is refused. Whoever presents it learns none of this; operators find it in the audit trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    Unknown,
    OtherNode,
    OtherHostname,
    Used,
    Revoked,
    Late,
    WrongState,
}

impl TokenRefusal {
    /// What the audit row says.
    pub const fn code(self) -> Code {
        match self {
            Self::Unknown => Code::TokenInvalid,
            Self::OtherNode => Code::OwnershipRequired,
            Self::OtherHostname => Code::Unprocessable,
            Self::Used => Code::InUse,
            Self::Revoked => Code::TokenRevoked,
            Self::Late => Code::TokenExpired,
            Self::WrongState => Code::InvalidTransition,
        }
    }
}

impl StoredToken {
    /// May `node`, which calls itself `hostname`, use this token now?
    pub fn check(
        &self,
        node: &Node,
        hostname: &str,
        now: DateTime<Utc>,
    ) -> Result<TokenPurpose, TokenRefusal> {
        if self.node_id != node.id {
            return Err(TokenRefusal::OtherNode);
        }
        if self.used_at.is_some() {
            return Err(TokenRefusal::Used);
        }
        if self.revoked_at.is_some() {
            return Err(TokenRefusal::Revoked);
        }
        if now >= self.expires_at {
            return Err(TokenRefusal::Late);
        }
        if node.hostname != hostname {
            return Err(TokenRefusal::OtherHostname);
        }
        if !self.purpose.fits(node.state) {
            return Err(TokenRefusal::WrongState);
        }
        Ok(self.purpose)
    }
}

/// A new token, shown once, with all that a machine needs to join.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "NodeTokenIssued")]
pub struct IssuedToken {
    pub id: NodeTokenId,
    pub purpose: TokenPurpose,
    pub token: ShownOnce,
    pub expires_at: DateTime<Utc>,
    pub join: JoinInfo,
    /// What to run on the machine; it asks for the token, which should not stand in a command line.
    pub install_command: String,
}

pub fn install_command(public_url: &str, join: &JoinInfo, purpose: TokenPurpose) -> String {
    let repair = if purpose == TokenPurpose::Repair { " --repair" } else { "" };
    format!(
        r#"sudo sh -c "$(curl -fsS {public_url}/install/agent.sh)" install --node {} --hostname {}{repair}"#,
        join.node_id, join.hostname,
    )
}
