//! Who a node is: one key and one certificate at any time, and a new key after each tenant of the whole machine.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{FindingId, NodeId},
};
use pg::{Origin, Permit, WriteTx};
use serde_json::json;

use super::{found, node_trust::invalidation_key, nodes::transition};
use crate::{
    Fleet,
    model::{events::FindingOpened, finding::Report, health_rule::HealthAction, node::NodeEvent},
    store::{self, findings::NewFinding},
};

/// The code of the finding about a certificate that was shown after a later one took its place.
pub const COPIED: &str = "identity.copied";

/// How it is known that somebody has a copy of a node's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEvidence {
    /// A certificate was shown after a later one took its place.
    Superseded,
    /// Two certificates from after the backup were shown after a restore; a node has one.
    SecondUnknown,
}

impl CopyEvidence {
    const fn message(self) -> &'static str {
        match self {
            Self::Superseded => {
                "A superseded certificate was used: a copy of the node's key exists. Determine who has it; \
                 if the node's current key may be known too, revoke its certificate and repair the node."
            }
            Self::SecondUnknown => {
                "Two certificates issued after the backup were used since the restore: one of them belongs \
                 to a copied key of the node. Revoke the node's certificate and repair the node."
            }
        }
    }
}

/// The node was heard with its certificate for the first time: from now on the one before is worth nothing.
pub async fn first_use(fleet: &Fleet, node: NodeId, serial: &str) -> Result<(), Failure> {
    let now = fleet.db().ambient().now();
    let mut upkeep = fleet.db().upkeep("the first use of a certificate").await?;
    store::certificates::first_used(upkeep.conn(), serial, now).await?;
    drop(upkeep);
    fleet.node_trust.fresh(node).await?;
    Ok(())
}

/// Somebody has the key of a certificate that the node itself no longer uses. Opens a finding and sets the node aside;
/// once, until somebody has resolved the finding.
pub async fn copied(
    fleet: &Fleet,
    node: NodeId,
    evidence: CopyEvidence,
    serial: &str,
    source: IpAddr,
    origin: &Origin,
) -> Result<(), Failure> {
    let known = {
        let mut read = fleet.db().read(&super::by_itself(fleet.db(), "whether a copy is known")).await?;
        store::findings::is_open(read.conn(), node, COPIED).await?
    };
    if known {
        return Ok(());
    }
    let permit = Permit::system("a copied certificate was shown", origin.clone());
    let mut tx = fleet.db().write(permit, "node.identity_copied").await?;
    match open(&mut tx, node, evidence, serial, source).await {
        Ok(true) => {
            tx.commit(None).await?;
            metrics::counter!("node_identities_copied_total").increment(1);
            tracing::error!(node_id = %node, serial, %source, ?evidence, "a copied certificate of a node was shown; the node is quarantined");
            Ok(())
        }
        Ok(false) => {
            tx.roll_back().await;
            Ok(())
        }
        Err(failure) => {
            tx.roll_back().await;
            Err(failure)
        }
    }
}

async fn open(
    tx: &mut WriteTx,
    node: NodeId,
    evidence: CopyEvidence,
    serial: &str,
    source: IpAddr,
) -> Result<bool, Failure> {
    let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<FindingId>());
    let before = found(store::nodes::lock(tx.conn(), node).await?, "node")?;
    let report = Report {
        code: COPIED.to_owned(),
        subject: "node".to_owned(),
        message: evidence.message().to_owned(),
        evidence: json!({ "serial": serial, "source": source.to_string() }),
        observed_at: now,
    };
    let action = HealthAction::Quarantine;
    let new = NewFinding { id, node, slot: None, report: &report, action, now };
    let Some(finding) = store::findings::open(tx.conn(), &new).await? else { return Ok(false) };
    tx.emit(&FindingOpened {
        finding_id: finding.id,
        node_id: node,
        slot_id: None,
        code: finding.code.clone(),
        subject: finding.subject.clone(),
        action,
        message: finding.message.clone(),
    })?;
    if before.after(NodeEvent::Quarantine).is_ok() {
        transition(tx, node, NodeEvent::Quarantine, "finding identity.copied on node").await?;
    }
    tx.record("node", node, None::<&()>, Some(&finding))?;
    Ok(true)
}

/// How far a node that is to make a new key has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rekey {
    /// No certificate from before counts any more: the node was heard with a key that it made since, or comes back by a
    /// token only.
    Done,
    /// It is asked from now on.
    Asked,
    /// It was asked before, and has not made one.
    Waiting,
}

/// Has the node make a new key, unless that was asked for after `unless_since` already.
pub async fn node_rekey(
    tx: &mut WriteTx,
    node: NodeId,
    unless_since: DateTime<Utc>,
) -> Result<Rekey, Failure> {
    let now = tx.db().ambient().now();
    let state = found(store::nodes::lock(tx.conn(), node).await?, "node")?.state;
    if !state.is_enrolled() {
        return Ok(Rekey::Done);
    }
    let Some(asked) = store::certificates::rekey(tx.conn(), node, unless_since, now).await? else {
        return Ok(Rekey::Done);
    };
    if store::certificates::rekeyed(tx.conn(), node, asked.since).await? {
        return Ok(Rekey::Done);
    }
    // Whoever waits for work on the node's behalf tells it.
    tx.invalidate(invalidation_key(node));
    Ok(if asked.newly { Rekey::Asked } else { Rekey::Waiting })
}
