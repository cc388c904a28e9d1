//! Certificates of nodes: listed and revoked here, given in `enrollment`; and the event about those that end.

use chrono::{DateTime, Datelike as _, Utc};
use kernel::{Code, Failure, Page, Problem, ids::NodeId, text::Reason};
use pg::{ReadTx, WriteTx};

use super::{by_itself, census::ENDING_WITHIN, found, node_trust::invalidation_key};
use crate::{
    Fleet,
    model::{
        certificate::Certificate, events::NodeCertificateEnding, page::KeyPageQuery, text::CertificateSerial,
    },
    store,
};

/// Nodes per turn; more wait for the next.
const NOTIFIED_AT_ONCE: i64 = 100;

/// Newest first.
pub async fn node_certificates(
    fleet: &Fleet,
    tx: &mut ReadTx,
    node: NodeId,
    page: &KeyPageQuery,
) -> Result<Page<Certificate>, Failure> {
    found(store::nodes::get(tx.conn(), node).await?, "node")?;
    let now = fleet.db.ambient().now();
    let before = page.after().map(place).transpose()?;
    let certificates = store::certificates::list(tx.conn(), node, before, page.limit(), now).await?;
    Ok(page.page(certificates, |c| format!("{}.{}", c.not_after.timestamp_micros(), c.serial)))
}

fn place(cursor: &str) -> Result<(DateTime<Utc>, &str), Problem> {
    let read = |(micros, serial): (&str, _)| {
        let at = DateTime::from_timestamp_micros(micros.parse().ok()?)?;
        // A time that a certificate can have, and the database can compare.
        (1970..=9999).contains(&at.year()).then_some((at, serial))
    };
    let bad = || Problem::field("cursor", "not a cursor from an earlier page of this list");
    cursor.split_once('.').and_then(read).ok_or_else(bad)
}

/// Takes effect at once, on every gateway. The node needs a repair token to come back when none is left.
pub async fn node_certificate_revoke(
    tx: &mut WriteTx,
    node: NodeId,
    serial: Option<&CertificateSerial>,
    reason: &Reason,
) -> Result<Vec<Certificate>, Failure> {
    let now = tx.db().ambient().now();
    // The node's lock makes a renewal that is under way either come before this or be refused.
    found(store::nodes::lock(tx.conn(), node).await?, "node")?;
    let serial = serial.map(CertificateSerial::as_str);
    let revoked = store::certificates::revoke(tx.conn(), node, serial, reason.as_str(), now).await?;
    if revoked.is_empty() {
        let text = "The node has no valid certificate, or none with this serial number.";
        return Err(Problem::new(Code::InvalidTransition, text).into());
    }
    tx.record("node", node, None::<&()>, Some(&revoked))?;
    tx.invalidate(invalidation_key(node));
    Ok(revoked)
}

/// Emits an event for each certificate that expires soon and is not being renewed; answers for how many nodes.
pub async fn certificates_notify(fleet: &Fleet) -> Result<usize, Failure> {
    let then = fleet.db().ambient().now() + ENDING_WITHIN;
    let ending = {
        let mut read = fleet.db().read(&by_itself(fleet.db(), "find certificates that end")).await?;
        store::census::certificates_to_notify(read.conn(), then, NOTIFIED_AT_ONCE).await?
    };
    let mut notified = 0;
    for node in ending {
        let permit = by_itself(fleet.db(), "a certificate ends");
        let mut tx = fleet.db().write(permit, "node.certificate_ending").await?;
        // Another replica may have emitted it in this moment, or the node renewed it.
        let Some((region, ends_at)) = store::census::certificate_mark_notified(&mut tx, node, then).await?
        else {
            tx.roll_back().await;
            continue;
        };
        tx.emit(&NodeCertificateEnding { node_id: node, region, ends_at })?;
        tx.record("node", node, None::<&()>, None::<&()>)?;
        tx.commit(None).await?;
        notified += 1;
    }
    Ok(notified)
}
