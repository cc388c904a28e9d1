//! Emits an event, once per certificate, when a node certificate expires soon and is not being renewed: such a node
//! needs a repair token.

use std::time::Duration;

use bus::periodic::every;
use kernel::Failure;

use super::census::ENDING_WITHIN;
use crate::{Fleet, model::events::NodeCertificateEnding, service::by_itself, store::census};

const EVERY: Duration = Duration::from_secs(60);
/// Nodes per turn; more wait for the next.
const BATCH: i64 = 100;

pub async fn run(fleet: Fleet) {
    every(EVERY, "certificates of nodes end and are not renewed", || certificates_notify(&fleet)).await;
}

/// Answers for how many nodes an event was emitted.
pub async fn certificates_notify(fleet: &Fleet) -> Result<usize, Failure> {
    let then = fleet.db().ambient().now() + ENDING_WITHIN;
    let ending = {
        let mut read = fleet.db().read(&by_itself(fleet.db(), "find certificates that end")).await?;
        census::certificates_to_notify(read.conn(), then, BATCH).await?
    };
    let mut notified = 0;
    for node in ending {
        let permit = by_itself(fleet.db(), "a certificate ends");
        let mut tx = fleet.db().write(permit, "node.certificate_ending").await?;
        // Another replica may have emitted it in this moment, or the node renewed it.
        let Some((region, ends_at)) = census::certificate_mark_notified(&mut tx, node, then).await? else {
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
