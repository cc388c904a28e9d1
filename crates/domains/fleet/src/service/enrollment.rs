//! How a machine becomes a node: a token for a certificate; and how a node keeps its certificate: by having one.
//!
//! A token is looked at before anything is signed, and once more, under the node's lock, in the transaction that
//! uses it up and keeps the certificate: of any number that come with the same token, one gets its certificate.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Code, Failure, Problem, ids::NodeId, policy::keys};
use node_proto::contract::{self, EnrollRequest, Enrolled, IssuedCertificate, RenewRequest, Renewed};
use pg::{Actor, Connection, Origin, Permit, Refusal, Scope, WriteTx};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use trust::ca::Issued;

use super::{by_itself, found, node_trust::invalidation_key, nodes::transition, tokens::token_hash};
use crate::{
    Fleet,
    model::{
        node::{Node, NodeEvent},
        text::tame,
        token::{StoredToken, TokenPurpose, TokenRefusal},
    },
    store::{self, certificates::NewCertificate},
};

/// So many in an hour. A node that is given to tenants every few minutes stays below; one that renews more often is
/// broken.
const MOST_CERTIFICATES: i64 = 60;
const CERTIFICATES_WITHIN: TimeDelta = TimeDelta::hours(1);
const LONGEST_TOKEN: usize = 256;

/// Exchanges a bootstrap or repair token for a certificate. Every refusal looks the same from outside.
pub async fn enroll(fleet: &Fleet, request: &EnrollRequest, origin: &Origin) -> Result<Enrolled, Failure> {
    enroll_within(fleet, request, origin, || true).await
}

/// The same for strangers: a refusal is audited when `is_audited` says so, because they could fill the trail.
pub async fn enroll_within(
    fleet: &Fleet,
    request: &EnrollRequest,
    origin: &Origin,
    is_audited: impl Fn() -> bool,
) -> Result<Enrolled, Failure> {
    if let Err(refusal) = token_check(fleet, request).await? {
        return Err(refused(fleet, request, refusal, origin, is_audited()).await);
    }
    let issued = fleet.trust().issue_node(&request.csr_pem, request.node_id, lifetime(fleet).await?).await?;
    let trust = fleet.trust().for_nodes().await?;
    let heartbeat = fleet.policy(keys::FLEET_HEARTBEAT_SECONDS).await?.get();
    let permit = Permit::node("a machine enrols with its token", request.node_id, origin.clone());
    let mut tx = fleet.db().write(permit, "node.enroll").await?;
    match admit(&mut tx, request, &issued).await {
        Ok(Ok(())) => {
            tx.commit(None).await?;
            metrics::counter!("node_enrollments_total", "outcome" => "enrolled").increment(1);
        }
        Ok(Err(refusal)) => {
            tx.roll_back().await;
            return Err(refused(fleet, request, refusal, origin, is_audited()).await);
        }
        Err(failure) => {
            tx.roll_back().await;
            return Err(failure);
        }
    }
    Ok(Enrolled {
        node_id: request.node_id,
        certificate: certificate(&issued),
        trust,
        heartbeat_seconds: u32::try_from(heartbeat).unwrap_or(u32::MAX),
    })
}

async fn lifetime(fleet: &Fleet) -> Result<TimeDelta, Failure> {
    Ok(TimeDelta::hours(fleet.policy(keys::FLEET_CERTIFICATE_HOURS).await?.get()))
}

fn certificate(issued: &Issued) -> IssuedCertificate {
    IssuedCertificate {
        chain_pem: issued.chain_pem.clone(),
        not_before: issued.validity.not_before,
        not_after: issued.validity.not_after,
    }
}

/// Checks the token before anything is signed for an unauthenticated client.
async fn token_check(
    fleet: &Fleet,
    request: &EnrollRequest,
) -> Result<Result<TokenPurpose, TokenRefusal>, Failure> {
    if request.token.len() > LONGEST_TOKEN {
        return Ok(Err(TokenRefusal::Unknown));
    }
    let mut read = fleet.db().read(&by_itself(fleet.db(), "look at an enrolment token")).await?;
    let node = store::nodes::get(read.conn(), request.node_id).await?;
    let now = fleet.db().ambient().now();
    Ok(check(read.conn(), request, node.as_ref(), now).await?.map(|(_, purpose)| purpose))
}

async fn check(
    conn: &mut Connection,
    request: &EnrollRequest,
    node: Option<&Node>,
    now: DateTime<Utc>,
) -> Result<Result<(StoredToken, TokenPurpose), TokenRefusal>, Failure> {
    let hash = token_hash(&request.token);
    let stored =
        store::tokens::find(conn, &hash).await?.filter(|(_, stored)| bool::from(stored[..].ct_eq(&hash)));
    let Some((token, _)) = stored else { return Ok(Err(TokenRefusal::Unknown)) };
    let Some(node) = node else { return Ok(Err(TokenRefusal::OtherNode)) };
    Ok(token.check(node, &request.hostname, now).map(|purpose| (token, purpose)))
}

async fn admit(
    tx: &mut WriteTx,
    request: &EnrollRequest,
    issued: &Issued,
) -> Result<Result<(), TokenRefusal>, Failure> {
    let (now, id) = (tx.db().ambient().now(), request.node_id);
    let node = store::nodes::lock(tx.conn(), id).await?;
    let (token, purpose) = match check(tx.conn(), request, node.as_ref(), now).await? {
        Ok(checked) => checked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if !store::tokens::spend(tx.conn(), token.id, now).await? {
        return Ok(Err(TokenRefusal::Used));
    }
    match purpose {
        TokenPurpose::Bootstrap => {
            drop(transition(tx, id, NodeEvent::Enroll, "enrolled with its bootstrap token").await?)
        }
        TokenPurpose::Repair => {
            store::certificates::revoke(tx.conn(), id, None, "replaced by a repair", now).await?;
        }
    }
    if store::certificates::key_is_known(tx.conn(), &issued.key_sha256).await? {
        return Err(known_key().into());
    }
    certificate_insert(tx, id, issued, None, now).await?;
    tx.invalidate(invalidation_key(id));
    let facts = json!({
        "purpose": purpose, "token_id": token.id, "serial": issued.serial, "authority_id": issued.authority_id,
        "not_after": issued.validity.not_after, "agent_version": tame(&request.agent_version, 64),
        "machine_id": tame(&request.machine_id, 64),
    });
    tx.record("node", id, None::<&()>, Some(&facts))?;
    Ok(Ok(()))
}

fn known_key() -> Problem {
    Problem::field("csr_pem", "a certificate was already issued for this key: create a new key")
}

async fn certificate_insert(
    tx: &mut WriteTx,
    node: NodeId,
    issued: &Issued,
    renewed_from: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), Failure> {
    let new = NewCertificate {
        serial: &issued.serial,
        node,
        authority: issued.authority_id.uuid(),
        fingerprint: &issued.fingerprint,
        key_sha256: &issued.key_sha256,
        chain_pem: &issued.chain_pem,
        renewed_from,
        not_before: issued.validity.not_before,
        not_after: issued.validity.not_after,
        now,
    };
    Ok(store::certificates::insert(tx.conn(), &new).await?)
}

/// One answer for every reason. The audit trail has the true one; failing to write it must not hide the refusal.
async fn refused(
    fleet: &Fleet,
    request: &EnrollRequest,
    refusal: TokenRefusal,
    origin: &Origin,
    is_audited: bool,
) -> Failure {
    metrics::counter!("node_enrollments_total", "outcome" => "refused").increment(1);
    if is_audited {
        note_refusal(fleet, request, refusal, origin).await;
    }
    Problem::new(Code::TokenInvalid, "The token is not valid for this node.")
        .suggest(
            "Ask an operator for a new token for this node, and use it on the named host before it expires.",
        )
        .into()
}

async fn note_refusal(fleet: &Fleet, request: &EnrollRequest, refusal: TokenRefusal, origin: &Origin) {
    tracing::warn!(node_id = %request.node_id, reason = ?refusal, "an enrolment was refused");
    let entry = Refusal {
        actor: Actor::ANONYMOUS,
        scope: Scope::Platform,
        action: "node.enroll",
        target: ("node", Some(request.node_id.to_string())),
        code: refusal.code(),
    };
    if let Err(error) = pg::refuse(fleet.db(), entry, origin).await {
        tracing::error!(%error, "a refused enrolment could not be audited");
    }
}

/// A new certificate for a node that proved who it is by the one it has, which has the serial number `shown`. It takes
/// the place of that one. When its answer is lost, the same request is answered with the same certificate, until the
/// node was heard with it.
pub async fn renew(
    fleet: &Fleet,
    node: NodeId,
    shown: &str,
    request: &RenewRequest,
    origin: &Origin,
) -> Result<Renewed, Failure> {
    let issued = fleet.trust().issue_node(&request.csr_pem, node, lifetime(fleet).await?).await?;
    let trust: contract::Trust = fleet.trust().for_nodes().await?;
    let permit = Permit::node("a node renews its certificate", node, origin.clone());
    let mut tx = fleet.db().write(permit, "node.renew").await?;
    match prolong(&mut tx, node, shown, &issued).await {
        Ok(Some(again)) => {
            tx.roll_back().await;
            Ok(Renewed { certificate: again, trust })
        }
        Ok(None) => {
            tx.commit(None).await?;
            Ok(Renewed { certificate: certificate(&issued), trust })
        }
        Err(failure) => {
            tx.roll_back().await;
            Err(failure)
        }
    }
}

/// What was given for this key already, and not used; or nothing, and the new one is kept.
async fn prolong(
    tx: &mut WriteTx,
    id: NodeId,
    shown: &str,
    issued: &Issued,
) -> Result<Option<IssuedCertificate>, Failure> {
    let now = tx.db().ambient().now();
    let node = found(store::nodes::lock(tx.conn(), id).await?, "node")?;
    // Under the node's lock: a revocation that came in between is seen here, also one of this certificate alone.
    let live = store::certificates::live(tx.conn(), id, now).await?;
    let Some(live) = live.filter(|_| node.state.is_enrolled()) else {
        return Err(enrollment_closed().into());
    };
    if live.serial != shown {
        let unheard = live.asked_by.iter().any(|asks| asks == shown);
        let same_key = live.key_sha256.as_deref() == Some(&issued.key_sha256[..]);
        // Given by a build that kept neither: it cannot be given once more.
        let not_kept = live.key_sha256.is_none();
        match live.chain_pem {
            Some(chain_pem) if unheard && same_key => {
                let (not_before, not_after) = (live.not_before, live.not_after);
                return Ok(Some(IssuedCertificate { chain_pem, not_before, not_after }));
            }
            _ if unheard && not_kept => {}
            _ => return Err(enrollment_closed().into()),
        }
    }
    if store::certificates::key_is_known(tx.conn(), &issued.key_sha256).await? {
        return Err(known_key().into());
    }
    if store::certificates::made_since(tx.conn(), id, now - CERTIFICATES_WITHIN).await? >= MOST_CERTIFICATES {
        let text = "The limit of certificates per hour of the node is reached.";
        return Err(Problem::new(Code::RateLimitExceeded, text).retry_after(600).into());
    }
    // It was used, whatever the records say: those before it may not ask for the new one.
    store::certificates::first_used(tx.conn(), shown, now).await?;
    certificate_insert(tx, id, issued, Some(shown), now).await?;
    tx.invalidate(invalidation_key(id));
    let facts = json!({
        "serial": issued.serial, "authority_id": issued.authority_id, "not_after": issued.validity.not_after,
    });
    tx.record("node", id, None::<&()>, Some(&facts))?;
    Ok(None)
}

fn enrollment_closed() -> Problem {
    Problem::new(Code::TokenRevoked, "The node's certificate is no longer valid.")
        .suggest("Ask an operator for a repair token.")
}
