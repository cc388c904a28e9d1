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

use super::{
    join_warning::JoinWarning,
    node::{Node, NodeState},
};

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
    /// What keeps the machine from joining, as far as the server can tell.
    pub warnings: Vec<JoinWarning>,
}

pub fn install_command(public_url: &str, join: &JoinInfo, purpose: TokenPurpose) -> String {
    let repair = if purpose == TokenPurpose::Repair { " --repair" } else { "" };
    format!(
        r#"sudo sh -c "$(curl -fsS {public_url}/install/agent.sh)" install --node {} --hostname {}{repair}"#,
        join.node_id, join.hostname,
    )
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use lifecycle::Lifecycle as _;
    use uuid::Uuid;

    use super::super::{
        node::{NodeLifecycle, Serves},
        text::Labels,
    };
    use super::*;

    const EXPIRES_AT: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn node(state: NodeState) -> Node {
        Node {
            id: Uuid::from_u128(1).into(),
            hostname: "gpu-01".to_owned(),
            region: "eu-north".to_owned(),
            pool_id: None,
            labels: Labels::default(),
            sku_eligibility: Vec::new(),
            serves: Serves::Any,
            simulated: false,
            state,
            state_reason: String::new(),
            state_changed_at: EXPIRES_AT,
            cordon_reason: None,
            ssh_host: None,
            ssh_port: None,
            desired_version: 0,
            enrolled_at: None,
            version: 1,
            created_at: EXPIRES_AT,
            updated_at: EXPIRES_AT,
        }
    }

    fn token(purpose: TokenPurpose) -> StoredToken {
        StoredToken {
            id: Uuid::from_u128(2).into(),
            node_id: Uuid::from_u128(1).into(),
            purpose,
            expires_at: EXPIRES_AT,
            used_at: None,
            revoked_at: None,
        }
    }

    #[test]
    fn a_token_is_accepted_once_from_its_own_node_before_it_expires() {
        let before = EXPIRES_AT - TimeDelta::milliseconds(1);
        let good = token(TokenPurpose::Bootstrap);
        let other_node = StoredToken { node_id: Uuid::from_u128(3).into(), ..good.clone() };
        let used = StoredToken { used_at: Some(before), ..good.clone() };
        let revoked = StoredToken { revoked_at: Some(before), ..good.clone() };
        for (token, hostname, now, result) in [
            (&good, "gpu-01", before, Ok(TokenPurpose::Bootstrap)),
            (&good, "gpu-01", EXPIRES_AT, Err(TokenRefusal::Late)),
            (&good, "gpu-02", before, Err(TokenRefusal::OtherHostname)),
            (&other_node, "gpu-01", before, Err(TokenRefusal::OtherNode)),
            (&used, "gpu-01", before, Err(TokenRefusal::Used)),
            (&revoked, "gpu-01", before, Err(TokenRefusal::Revoked)),
        ] {
            let node = node(NodeState::BootstrapIssued);
            assert_eq!(token.check(&node, hostname, now), result, "{token:?} {hostname} {now}");
        }
    }

    #[test]
    fn bootstrap_is_for_nodes_that_never_enrolled_and_repair_for_those_that_did() {
        let before = EXPIRES_AT - TimeDelta::seconds(1);
        for state in NodeLifecycle::STATES.iter().copied() {
            for (purpose, fits) in [
                (TokenPurpose::Bootstrap, state == NodeState::BootstrapIssued),
                (TokenPurpose::Repair, state.is_enrolled()),
            ] {
                let expected = if fits { Ok(purpose) } else { Err(TokenRefusal::WrongState) };
                assert_eq!(
                    token(purpose).check(&node(state), "gpu-01", before),
                    expected,
                    "{purpose:?} {state:?}"
                );
            }
        }
    }

    #[test]
    fn the_command_names_the_node_and_only_that_of_a_repair_asks_for_one() {
        let join = JoinInfo {
            node_id: Uuid::from_u128(1).into(),
            hostname: "gpu-01".to_owned(),
            url: String::new(),
            root_sha256: Vec::new(),
            keyset_key: String::new(),
        };
        let bootstrap = install_command("https://example.org", &join, TokenPurpose::Bootstrap);
        assert_eq!(
            bootstrap,
            format!(
                r#"sudo sh -c "$(curl -fsS https://example.org/install/agent.sh)" install --node {} --hostname gpu-01"#,
                join.node_id
            )
        );
        let repair = install_command("https://example.org", &join, TokenPurpose::Repair);
        assert_eq!(repair, format!("{bootstrap} --repair"));
    }
}
