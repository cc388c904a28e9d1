//! What is in force, read from the database and checked, kept for a moment.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Failure, digest::sha256};
use node_proto::{Keyset, SignedKeyset};
use pg::Connection;
use trust::{ca, peer::PeerVerifier};

use super::super::{
    Signing, Trust,
    model::authority::AuthorityState,
    store::{self, authorities::AuthorityRow, signers::KeysetRow},
};

const REMEMBERED_FOR: TimeDelta = TimeDelta::seconds(3);
const PATIENCE: Duration = Duration::from_secs(2);
/// After a failed attempt what is remembered is used so much longer before the next one.
const RETRY: TimeDelta = TimeDelta::seconds(1);
/// Lists are looked at in batches until one is genuine.
const BATCH: i64 = 100;
const BATCHES: usize = 100;
/// Rows that were reported; beyond that, they are reported again.
const REPORTED: usize = 10_000;

/// A generation that is believed.
pub struct Believed {
    pub state: AuthorityState,
    pub authority: Arc<ca::Authority>,
    sealed: Vec<u8>,
}

pub struct Checked {
    pub keyset: Keyset,
    pub signed: SignedKeyset,
}

pub struct Snapshot {
    at: DateTime<Utc>,
    generation: u64,
    pub authorities: Vec<Believed>,
    pub verifier: Arc<PeerVerifier>,
    pub keyset: Option<Arc<Checked>>,
}

impl Trust {
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, Failure> {
        if let Some(snapshot) = self.fresh() {
            return Ok(snapshot);
        }
        let _one_at_a_time = self.0.reading.lock().await;
        if let Some(snapshot) = self.fresh() {
            return Ok(snapshot);
        }
        let before = self.last();
        let now = self.0.db.ambient().now().timestamp_millis();
        if let Some(before) = before.as_ref().filter(|_| now < self.0.retry_at.load(Ordering::SeqCst)) {
            return Ok(before.clone());
        }
        // Callers may hold a connection while they wait for this one, so it must not wait for long.
        let read = tokio::time::timeout(PATIENCE, self.read(before.as_deref()));
        match read.await.unwrap_or_else(|late| Err(late.into())) {
            Ok(snapshot) => {
                let snapshot = Arc::new(snapshot);
                *self.0.snapshot.write().unwrap_or_else(|e| e.into_inner()) = Some(snapshot.clone());
                self.forget_keys(before.as_deref(), &snapshot);
                Ok(snapshot)
            }
            Err(error) => {
                let Some(snapshot) = before else { return Err(error) };
                tracing::warn!(error = ?error, "authorities and signers could not be read; using the cached ones");
                self.0.retry_at.store(now + RETRY.num_milliseconds(), Ordering::SeqCst);
                Ok(snapshot)
            }
        }
    }

    /// Invalidates the cached snapshot.
    pub(super) fn cache_invalidate(&self) {
        self.0.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn last(&self) -> Option<Arc<Snapshot>> {
        self.0.snapshot.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn fresh(&self) -> Option<Arc<Snapshot>> {
        let now = self.0.db.ambient().now();
        let generation = self.0.generation.load(Ordering::SeqCst);
        self.last().filter(|s| s.generation == generation && s.at <= now && now - s.at < REMEMBERED_FOR)
    }

    async fn read(&self, before: Option<&Snapshot>) -> Result<Snapshot, Failure> {
        // Taken before reading: a change during the read outdates what it read.
        let generation = self.0.generation.load(Ordering::SeqCst);
        let at = self.0.db.ambient().now();
        let mut tx = self.0.db.read(&self.system("read authorities and signers")).await?;
        let mut authorities = Vec::new();
        for row in store::authorities::believed(tx.conn()).await? {
            let known = before.and_then(|b| {
                b.authorities.iter().find(|k| k.authority.id() == row.id() && k.sealed == row.sealed)
            });
            let authority = match known {
                Some(known) => Some(known.authority.clone()),
                None => self.open(&row).map(Arc::new),
            };
            if let Some(authority) = authority {
                authorities.push(Believed { state: row.state, authority, sealed: row.sealed });
            }
        }
        let roots: Vec<_> = authorities.iter().map(|known| known.authority.root()).collect();
        let verifier = Arc::new(PeerVerifier::new(&self.0.domain, &roots)?);
        let mut keyset = self.newest_keyset(tx.conn()).await?.map(Arc::new);
        if let Some(known) = before.and_then(|b| b.keyset.clone()) {
            let serial = keyset.as_ref().map(|k| k.keyset.serial);
            if serial.is_none_or(|serial| serial < known.keyset.serial) {
                tracing::error!(
                    keyset_serial = known.keyset.serial,
                    found_serial = serial,
                    "tampering: the newest keyset was removed from the database; using the cached one"
                );
                keyset = Some(known);
            }
        }
        Ok(Snapshot { at, generation, authorities, verifier, keyset })
    }

    /// The authority behind a row, or nothing: then the row is not ours.
    pub(super) fn open(&self, row: &AuthorityRow) -> Option<ca::Authority> {
        match ca::Authority::open(&self.0.sealer, row.id(), &row.sealed) {
            Ok(authority) => Some(authority),
            Err(error) => {
                let digest = sha256([row.id.as_bytes(), &row.sealed[..]].concat());
                self.report(digest, || {
                    tracing::error!(
                        authority_id = %row.id(), state = %row.state, error = %error,
                        "tampering, or another master key: this authority is ignored"
                    );
                });
                None
            }
        }
    }

    /// The newest list that the pinned key signed. Others are reported and passed over.
    pub(super) async fn newest_keyset(&self, conn: &mut Connection) -> Result<Option<Checked>, sqlx::Error> {
        let mut below = i64::MAX;
        for _ in 0..BATCHES {
            let rows = store::signers::keysets(conn, below, BATCH).await?;
            let Some(last) = rows.last() else { return Ok(None) };
            below = last.serial;
            if let Some(checked) = rows.into_iter().find_map(|row| self.check(row)) {
                return Ok(Some(checked));
            }
        }
        Ok(None)
    }

    /// The checked lists among the newest, oldest first.
    pub(super) async fn keyset_history(&self, conn: &mut Connection) -> Result<Vec<Keyset>, sqlx::Error> {
        let rows = store::signers::keysets(conn, i64::MAX, BATCH).await?;
        let mut history: Vec<Keyset> =
            rows.into_iter().filter_map(|row| self.check(row)).map(|checked| checked.keyset).collect();
        history.reverse();
        Ok(history)
    }

    fn check(&self, row: KeysetRow) -> Option<Checked> {
        let (serial, signed) = (row.serial, row.signed());
        let opened = signed.open(&self.keyset_key().bytes());
        if let Ok(keyset) = opened
            && i64::try_from(keyset.serial) == Ok(serial)
        {
            return Some(Checked { keyset, signed });
        }
        let digest = sha256([&serial.to_be_bytes(), &signed.document.0[..], &signed.signature.0].concat());
        self.report(digest, || {
            tracing::error!(
                keyset_serial = serial,
                "tampering: this keyset is not signed by our key; it is ignored"
            );
        });
        None
    }

    /// Each thing once, as long as there are not too many of them.
    pub(super) fn report(&self, digest: [u8; 32], log: impl FnOnce()) {
        let mut reported = self.0.reported.lock().unwrap_or_else(|e| e.into_inner());
        if reported.len() >= REPORTED {
            reported.clear();
        }
        if reported.insert(digest) {
            log();
        }
    }

    /// Signers that have left the list sign nothing any more, so their keys go too.
    fn forget_keys(&self, before: Option<&Snapshot>, now: &Snapshot) {
        let Signing::Custody(custody) = &self.0.signing else { return };
        let (Some(before), Some(now)) = (before.and_then(|b| b.keyset.as_ref()), now.keyset.as_ref()) else {
            return;
        };
        for signer in &before.keyset.signers {
            if now.keyset.public_key(signer.signer_version).is_none()
                && let Err(error) = custody.destroy(signer.signer_version)
            {
                let signer_version = signer.signer_version;
                tracing::error!(signer_version, error = %error, "the key of a removed signer could not be destroyed");
            }
        }
    }
}
