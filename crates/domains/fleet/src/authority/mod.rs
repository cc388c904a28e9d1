//! The authorities and signers that all trust in the fleet rests on.
//!
//! **Authorities** issue certificates to nodes. Their certificates and keys are sealed together in the database
//! under the master key; a row that does not open is reported and ignored, so a row that somebody else wrote is
//! worth nothing. **Signers** sign work. Their private keys are in custody outside the database, and which of
//! them nodes believe is said by a list (the keyset) that another key in the same custody signs. Here the list is
//! read back only with that signature checked; the rows of `signer_keys` merely show it.
//!
//! **Rotation.** Both go staged → active → grace → retired, or revoked from anywhere. A staged one is believed
//! before it is used, so that no node meets it unprepared; activating waits until every enrolled node in service
//! has confirmed it, unless forced with a reason; one in grace is still believed. Every change is one transaction
//! under one lock: rows, the new list, event, audit and invalidation.
//!
//! **Replicas.** What is in force is kept for at most three seconds, and dropped at once when any replica changes
//! it (`authority:` and `signer:`). A list with a lower serial than one already seen is never taken.
//!
//! **Crash.** A key is made in custody before the transaction that announces it; when that fails, the next attempt
//! finds the same key. A key is destroyed only after a list without it was committed and read back.

mod http;
pub mod model;
mod service;
mod store;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, RwLock, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use kernel::Secret;
use pg::Db;
use trust::{
    Sealer, ca,
    signer::{KeyCustody, KeysetKey},
};

pub use http::endpoints;
pub(crate) use service::BACKDATED;

/// What this process may do with signers.
#[derive(Clone)]
pub enum Signing {
    /// Sign, and rotate.
    Custody(Arc<dyn KeyCustody>),
    /// Only check what others signed.
    Checks(KeysetKey),
}

pub struct TrustSettings {
    /// The domain in the names of certificates: `spiffe://<domain>/node/<id>`.
    pub trust_domain: String,
    pub master_key: Secret<[u8; 32]>,
    pub signing: Signing,
}

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(
        "the trust domain {0:?} is not valid: use lower-case letters, digits, dots, hyphens and underscores"
    )]
    Domain(String),
    #[error("the master key cannot be used")]
    MasterKey,
    #[error(
        "the signing key of version {0} in custody is not the one in the keyset; restore the signing directory"
    )]
    ForeignKey(u32),
    #[error(
        "the serial numbers of keysets or versions of signers are exhausted; a row with a too high number was written"
    )]
    Exhausted,
    #[error("the row of the signer of version {0} differs from the signed keyset; restore the row")]
    RowDisagrees(u32),
}

struct Inner {
    db: Db,
    domain: String,
    sealer: Sealer,
    /// Of work orders.
    orders: Sealer,
    signing: Signing,
    snapshot: RwLock<Option<Arc<service::snapshot::Snapshot>>>,
    generation: AtomicU64,
    reading: tokio::sync::Mutex<()>,
    /// After a failed read: not before, in milliseconds since 1970.
    retry_at: AtomicI64,
    /// Digests of rows that were reported as not ours, so that each is reported once.
    reported: Mutex<HashSet<[u8; 32]>>,
}

/// The trust in force, for whoever issues, signs or checks. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Trust(Arc<Inner>);

impl Trust {
    pub fn new(db: Db, settings: TrustSettings) -> Result<Self, TrustError> {
        let domain = settings.trust_domain;
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
        if domain.is_empty() || domain.len() > 255 || !domain.chars().all(legal) {
            return Err(TrustError::Domain(domain));
        }
        let inner = Arc::new(Inner {
            sealer: ca::sealer(&settings.master_key).map_err(|_| TrustError::MasterKey)?,
            orders: Sealer::for_purpose(&settings.master_key, b"work orders")
                .map_err(|_| TrustError::MasterKey)?,
            signing: settings.signing,
            snapshot: RwLock::new(None),
            generation: AtomicU64::new(0),
            reading: tokio::sync::Mutex::new(()),
            retry_at: AtomicI64::new(0),
            reported: Mutex::default(),
            db: db.clone(),
            domain,
        });
        // Weak, because the database outlives what listens to it.
        let listener: Weak<Inner> = Arc::downgrade(&inner);
        db.on_invalidate(move |key| {
            let concerns = key == "*" || key.starts_with("authority:") || key.starts_with("signer:");
            if let Some(inner) = listener.upgrade().filter(|_| concerns) {
                inner.generation.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self(inner))
    }

    pub fn domain(&self) -> &str {
        &self.0.domain
    }

    /// The key that nodes pin, and that lists of signers are checked with.
    pub fn keyset_key(&self) -> KeysetKey {
        match &self.0.signing {
            Signing::Custody(custody) => KeysetKey::from_custody(&**custody),
            Signing::Checks(key) => *key,
        }
    }

    /// Whether this process can sign work and rotate signers.
    pub fn signs(&self) -> bool {
        matches!(self.0.signing, Signing::Custody(_))
    }
}
