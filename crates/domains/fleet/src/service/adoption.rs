//! After a restore: certificates that were given after the backup, and that the records do not know.
//!
//! Such a certificate is recorded as the live one of its node when the node shows it, and takes the place of the one of
//! the backup: the node can renew it. A node shows its last certificate only, so a second one that the records do not
//! know, or one after the node of the backup has renewed, means that somebody has a copy of a key. Whatever an operator did about the node since the restore (a repair, a
//! revocation) counts for more than the records of before: then nothing is taken over.

use chrono::TimeDelta;
use kernel::Failure;
use pg::{Origin, Permit, WriteTx};
use serde_json::json;
use trust::peer::PeerCertificate;

use super::{found, node_trust::invalidation_key};
use crate::{
    Fleet,
    authority::BACKDATED,
    store::{self, certificates::SinceRestore},
};

/// Between the processes that gave certificates and the one that dated the restore.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::minutes(1);

/// What became of a certificate that the records do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is recorded.
    Adopted,
    /// Somebody spoke for the node with another certificate since the restore.
    Second,
    Refused,
}

/// Takes a verified certificate over, if it was given after all of the node that the backup has, and before the restore
/// was noticed.
pub async fn certificate_adopt(
    fleet: &Fleet,
    shown: &PeerCertificate,
    origin: &Origin,
) -> Result<Adoption, Failure> {
    let node = shown.node_id;
    let permit = Permit::node("a node shows a certificate from after the backup", node, origin.clone());
    // Nothing is locked for whoever shows one while no database was ever restored.
    let noticed_at = store::certificates::restore_noticed_at(fleet.db().read(&permit).await?.conn()).await?;
    if noticed_at.is_none() {
        return Ok(Adoption::Refused);
    }
    let mut tx = fleet.db().write(permit, "node.certificate_adopt").await?;
    match adopt(&mut tx, shown).await {
        Ok(Adoption::Adopted) => {
            tx.commit(None).await?;
            tracing::warn!(node_id = %node, serial = shown.serial, "a certificate from after the backup is taken over");
            Ok(Adoption::Adopted)
        }
        other => {
            tx.roll_back().await;
            other
        }
    }
}

async fn adopt(tx: &mut WriteTx, shown: &PeerCertificate) -> Result<Adoption, Failure> {
    let (now, node) = (tx.db().ambient().now(), shown.node_id);
    let state = found(store::nodes::lock(tx.conn(), node).await?, "node")?.state;
    let Some(noticed_at) = store::certificates::restore_noticed_at(tx.conn()).await? else {
        return Ok(Adoption::Refused);
    };
    let issued_at = shown.not_before + BACKDATED;
    if issued_at > noticed_at + CLOCKS_DIFFER || !state.is_enrolled() {
        return Ok(Adoption::Refused);
    }
    let latest = issued_at + CLOCKS_DIFFER;
    match store::certificates::since_restore(tx.conn(), node, &shown.serial, latest, noticed_at).await? {
        SinceRestore::Nothing => {}
        SinceRestore::Another => return Ok(Adoption::Second),
        SinceRestore::Decided => return Ok(Adoption::Refused),
    }
    if store::certificates::key_is_known(tx.conn(), &shown.key_sha256).await? {
        return Ok(Adoption::Refused);
    }
    store::certificates::adopt(tx.conn(), shown, issued_at, now).await?;
    tx.invalidate(invalidation_key(node));
    let facts = json!({
        "serial": shown.serial, "authority_id": shown.authority_id, "not_before": shown.not_before,
        "not_after": shown.not_after,
    });
    tx.record("node", node, None::<&()>, Some(&facts))?;
    Ok(Adoption::Adopted)
}
