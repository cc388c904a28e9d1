//! Who asks, and whether they may: looked at for every request.

use std::net::IpAddr;

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Code, Failure, Problem, ids::NodeId};
use trust::peer::{PeerCertificate, PeerRefusal};

use node_proto::contract::{Route, RouteId};
use pg::Origin;

use super::Shared;
use crate::{
    model::node::NodeState,
    service::{
        adoption::{Adoption, certificate_adopt},
        node_identity::{self, CopyEvidence},
        node_trust::{NodeTrust, Worth},
    },
};

/// What the peer of a connection showed, judged once.
pub enum Presented {
    Nothing,
    Node(PeerCertificate),
    Refused(PeerRefusal),
}

/// A connection as its requests see it.
pub struct Connection {
    pub presented: Presented,
    pub source: IpAddr,
    pub opened_at: DateTime<Utc>,
}

impl Connection {
    /// The node that the certificate proves, whatever became of it since.
    pub fn node(&self) -> Option<NodeId> {
        match &self.presented {
            Presented::Node(certificate) => Some(certificate.node_id),
            Presented::Nothing | Presented::Refused(_) => None,
        }
    }
}

/// A refusal: a short word for the metric, and the answer.
pub struct Refusal {
    pub reason: &'static str,
    pub problem: Problem,
}

/// The reason of a refusal that may mean that somebody has a copy of a key.
const SUPERSEDED: &str = "superseded";
const RENEWING: &str = "renewing";
const SECOND_UNKNOWN: &str = "second_unknown";
impl Refusal {
    /// A later certificate took the place of the one that was shown.
    pub fn is_replaced(&self) -> bool {
        matches!(self.reason, SUPERSEDED | RENEWING)
    }
}

/// The process that dated the use of the later certificate is not always the one that dated the connection, and their
/// clocks differ a little. A node is not to be taken for a thief of its own key because of that.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::seconds(5);
const REPAIR: &str = "Ask an operator for a repair token and enrol again.";

fn refuse(
    reason: &'static str,
    code: Code,
    text: impl Into<std::borrow::Cow<'static, str>>,
    what_to_do: &'static str,
) -> Refusal {
    Refusal { reason, problem: Problem::new(code, text).suggest(what_to_do) }
}

/// The certificate of a connection, if it counts now.
pub fn certificate(connection: &Connection, now: DateTime<Utc>) -> Result<&PeerCertificate, Refusal> {
    match &connection.presented {
        Presented::Nothing => Err(refuse(
            "no_certificate",
            Code::TokenMissing,
            "A client certificate of a node is required.",
            "Enrol first, and connect with the issued certificate.",
        )),
        Presented::Refused(PeerRefusal::Expired) => Err(expired()),
        Presented::Refused(refusal) => Err(refuse(
            refusal.name(),
            Code::TokenInvalid,
            format!("The client certificate is refused: {refusal}."),
            REPAIR,
        )),
        Presented::Node(certificate) if certificate.not_after <= now => Err(expired()),
        Presented::Node(certificate) => Ok(certificate),
    }
}

fn expired() -> Refusal {
    refuse("expired", Code::TokenExpired, "The client certificate has expired.", REPAIR)
}

/// The node in the path is the one that the certificate names.
pub fn own(certificate: &PeerCertificate, named: &str) -> Result<NodeId, Refusal> {
    match named.parse::<NodeId>() {
        Ok(node) if node == certificate.node_id => Ok(node),
        _ => Err(refuse(
            "other_node",
            Code::OwnershipRequired,
            "The node in the path is not the subject of the certificate.",
            "Use the id with which this node was enrolled.",
        )),
    }
}

impl Shared {
    /// Whether the node may still speak: by its one certificate that counts, by an authority in force, and as part of
    /// the fleet.
    pub async fn trust(
        &self,
        certificate: &PeerCertificate,
        route: &Route,
        origin: &Origin,
    ) -> Result<Result<NodeTrust, Refusal>, Failure> {
        let (node_trust, node) = (&self.fleet.node_trust, certificate.node_id);
        let serial = certificate.serial.as_str();
        let mut trust = node_trust.get(node).await?;
        // What is remembered may be older than the certificate, or than the use of it.
        if trust.as_ref().is_none_or(|known| known.worth(serial) != Worth::Live) {
            trust = node_trust.fresh(node).await?;
        }
        let Some(trust) = trust else {
            let text = "The node is not part of the fleet.";
            return Ok(Err(refuse("unknown_node", Code::TokenRevoked, text, "Enrol as a new node.")));
        };
        let worth = trust.worth(serial);
        match worth {
            Worth::Live | Worth::FirstUse | Worth::Unknown => {}
            Worth::Renewing if route.id == RouteId::Renew => {}
            Worth::Renewing => {
                let text = "A newer certificate was issued to replace this one, and was not used yet.";
                let what_to_do = "Renew again with the same key.";
                return Ok(Err(refuse(RENEWING, Code::TokenRevoked, text, what_to_do)));
            }
            Worth::Superseded { .. } => {
                let text = "The client certificate was superseded by a newer one.";
                return Ok(Err(refuse(SUPERSEDED, Code::TokenRevoked, text, REPAIR)));
            }
            Worth::Revoked => {
                let text = "The client certificate was revoked.";
                return Ok(Err(refuse("revoked", Code::TokenRevoked, text, REPAIR)));
            }
        }
        if !self.fleet.trust().believes(certificate.authority_id).await? {
            let text = "The authority of the client certificate is no longer trusted.";
            return Ok(Err(refuse("unknown_authority", Code::TokenInvalid, text, REPAIR)));
        }
        if matches!(trust.state, NodeState::Removing | NodeState::Deleted) {
            let text = "The node is no longer part of the fleet.";
            return Ok(Err(refuse("removed", Code::InsufficientPermissions, text, "Stop the agent.")));
        }
        // Only now: what is refused was not heard, and the certificate before must go on to count.
        match worth {
            Worth::FirstUse => node_identity::first_use(&self.fleet, node, serial).await?,
            Worth::Unknown => return Box::pin(self.unknown(certificate, origin)).await,
            Worth::Live | Worth::Renewing | Worth::Superseded { .. } | Worth::Revoked => {}
        }
        Ok(Ok(trust))
    }

    /// A certificate of ours that the records do not know counts only when it was given after the backup from which the
    /// database was restored; then it is recorded.
    async fn unknown(
        &self,
        certificate: &PeerCertificate,
        origin: &Origin,
    ) -> Result<Result<NodeTrust, Refusal>, Failure> {
        let (node, serial) = (certificate.node_id, certificate.serial.as_str());
        let adoption = certificate_adopt(&self.fleet, certificate, origin).await?;
        if adoption == Adoption::Second {
            let text = "Another certificate of this node, issued after the backup, was used before.";
            return Ok(Err(refuse(SECOND_UNKNOWN, Code::TokenRevoked, text, REPAIR)));
        }
        // Another request with it may have come first.
        let trust = self.fleet.node_trust.fresh(node).await?;
        if let Some(trust) = trust.filter(|now| now.worth(serial) == Worth::Live) {
            return Ok(Ok(trust));
        }
        let text = "The client certificate is unknown.";
        let what_to_do = "If the database was restored from a backup, an operator must run `gpuaasd \
                          restore`; otherwise ask for a repair token and enrol again.";
        Ok(Err(refuse("unknown_certificate", Code::TokenRevoked, text, what_to_do)))
    }

    /// A connection that was opened with a certificate after a later one was used was not opened by the node: it would
    /// have used the later one. One that was open before is the node's own, and only over. Answers whether it is a copy.
    pub async fn note_copy(
        &self,
        connection: &Connection,
        refusal: &Refusal,
        origin: &Origin,
    ) -> Result<bool, Failure> {
        let Presented::Node(certificate) = &connection.presented else { return Ok(false) };
        let (node, serial) = (certificate.node_id, certificate.serial.as_str());
        if refusal.reason == SECOND_UNKNOWN {
            let evidence = CopyEvidence::SecondUnknown;
            node_identity::copied(&self.fleet, node, evidence, serial, connection.source, origin).await?;
            return Ok(true);
        }
        if refusal.reason != SUPERSEDED {
            return Ok(false);
        }
        let Some(trust) = self.fleet.node_trust.get(node).await? else { return Ok(false) };
        match trust.worth(serial) {
            Worth::Superseded { since } if connection.opened_at > since + CLOCKS_DIFFER => {
                let evidence = CopyEvidence::Superseded;
                node_identity::copied(&self.fleet, node, evidence, serial, connection.source, origin).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::{Ambient, ids::AuthorityId};

    use super::*;

    fn presenting(presented: Presented) -> Connection {
        let opened_at = Ambient::system().now();
        Connection { presented, source: [127, 0, 0, 1].into(), opened_at }
    }

    fn good(now: DateTime<Utc>) -> PeerCertificate {
        PeerCertificate {
            node_id: NodeId::from(uuid::Uuid::from_u128(1)),
            spiffe_id: String::new(),
            serial: "01".to_owned(),
            not_before: now - TimeDelta::hours(1),
            fingerprint: [0; 32],
            key_sha256: [0; 32],
            not_after: now + TimeDelta::hours(1),
            authority_id: AuthorityId::from(uuid::Uuid::from_u128(2)),
        }
    }

    #[test]
    fn only_a_certificate_that_counts_now_makes_a_node() {
        let now = Ambient::system().now();
        let code =
            |presented, at| certificate(&presenting(presented), at).map(drop).map_err(|r| r.problem.code);
        assert_eq!(code(Presented::Nothing, now), Err(Code::TokenMissing));
        assert_eq!(code(Presented::Refused(PeerRefusal::Expired), now), Err(Code::TokenExpired));
        assert_eq!(code(Presented::Refused(PeerRefusal::UnknownAuthority), now), Err(Code::TokenInvalid));
        assert_eq!(code(Presented::Node(good(now)), now), Ok(()));
        assert_eq!(code(Presented::Node(good(now)), now + TimeDelta::hours(1)), Err(Code::TokenExpired));
    }

    #[test]
    fn a_node_speaks_only_for_itself() {
        let certificate = good(Ambient::system().now());
        assert!(own(&certificate, &certificate.node_id.to_string()).is_ok());
        let other = NodeId::from(uuid::Uuid::from_u128(9)).to_string();
        for named in [other.as_str(), "", "node_x", "../x"] {
            let refusal = own(&certificate, named).unwrap_err();
            assert_eq!(refusal.problem.code, Code::OwnershipRequired, "{named}");
        }
    }
}
