//! Checkpoints: the heads of the chains, signed once a day with a key that is not in the database.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use kernel::{
    CorrelationId, Failure,
    hex::Hex,
    ledger::{Checkpoint, key_id},
};
use pg::{Origin, Permit};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::{Billing, store};

/// Chains signed in one transaction.
const BATCH: i64 = 500;

/// A key that signs, or signed, checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct LedgerKey {
    pub key_id: String,
    /// Ed25519.
    pub public_key: Hex,
    /// Whether new checkpoints are signed with it.
    pub current: bool,
}

/// The keys whose signatures this installation trusts, the current one first.
pub fn keys(billing: &Billing) -> Result<Vec<LedgerKey>, Failure> {
    let current = signer(billing)?.public_key().as_ref().to_vec();
    let former = billing.former_keys.iter().cloned().map(|key| (key, false));
    let keys = std::iter::once((current, true)).chain(former);
    Ok(keys.map(|(key, current)| LedgerKey { key_id: key_id(&key), public_key: Hex(key), current }).collect())
}

/// Whether a signature is good and by one of these keys.
pub fn genuine(keys: &[LedgerKey], public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    keys.iter().any(|key| key.public_key.0 == public_key)
        && UnparsedPublicKey::new(&ED25519, public_key).verify(message, signature).is_ok()
}

fn signer(billing: &Billing) -> Result<Ed25519KeyPair, Failure> {
    Ok(Ed25519KeyPair::from_seed_unchecked(billing.settings.checkpoint_seed.expose())?)
}

/// Signs every chain that moved since it was signed, unless it was signed today. Answers how many were.
pub async fn checkpoints_sign(billing: &Billing) -> Result<usize, Failure> {
    let signer = signer(billing)?;
    let public_key = signer.public_key().as_ref().to_vec();
    let key_id = key_id(&public_key);
    let signed_at = billing.db.ambient().now();
    let day = signed_at.date_naive();
    let (mut after, mut count) = (Uuid::nil(), 0);
    loop {
        let origin = Origin::internal(CorrelationId(billing.db.ambient().uuid()));
        let permit = Permit::system("sign the ledger", origin);
        let due = store::checkpoints::due(billing.db.read(&permit).await?.conn(), day, after, BATCH).await?;
        let Some(last) = due.last() else { return Ok(count) };
        after = last.org.uuid();
        let mut signed = Vec::new();
        for chain in due {
            if !chain.sound {
                // What does not hold is not vouched for; whoever verifies the chain is told what is wrong.
                tracing::error!(org_id = %chain.org, seq = chain.seq, "the ledger failed verification and is not signed");
                continue;
            }
            let mut checkpoint = Checkpoint {
                org_id: chain.org,
                day,
                prev_seq: chain.prev_seq,
                seq: chain.seq,
                hash: chain.hash,
                signed_at,
                key_id: key_id.clone(),
                public_key: Hex(public_key.clone()),
                signature: Hex(Vec::new()),
            };
            checkpoint.signature = Hex(signer.sign(&checkpoint.message()).as_ref().to_vec());
            signed.push(checkpoint);
        }
        if signed.is_empty() {
            continue;
        }
        let mut tx = billing.db.write(permit, "ledger.checkpoint").await?;
        let key = (key_id.as_str(), public_key.as_slice());
        let added = store::checkpoints::add(&mut tx, day, signed_at, key, &signed).await?;
        tx.record("ledger_checkpoints", day, None::<&()>, Some(&signed))?;
        tx.commit(None).await?;
        count += usize::try_from(added)?;
    }
}
