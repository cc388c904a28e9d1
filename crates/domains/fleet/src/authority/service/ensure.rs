//! What must be there before the first node: made once, by whichever replica comes first.

use events::fleet::{AuthorityChanged, SignerChanged};
use kernel::{Failure, ids::AuthorityId};
use node_proto::{Keyset, SignedKeyset, keyset::signing_bytes, text::Base64};
use pg::WriteTx;
use trust::{ca, signer::KeyCustody};

use super::super::{
    Signing, Trust, TrustError,
    model::{authority::AuthorityState, keyset, signer::SignerState},
    store,
};

const FIRST: &str = "the first of its kind";

impl Trust {
    /// Makes the first authority, and the first signer where this process signs, when there is none. What is there
    /// and not usable is reported and left alone: replacing it in silence would lose every node.
    pub async fn ensure(&self) -> Result<(), Failure> {
        self.ensure_authority().await?;
        if let Signing::Custody(custody) = &self.0.signing {
            self.ensure_signer(&**custody).await?;
            self.tidy().await?;
        }
        Ok(())
    }

    async fn ensure_authority(&self) -> Result<(), Failure> {
        if self.issuing().await.is_ok() {
            return Ok(());
        }
        let permit = self.system("make the first certificate authority");
        let mut tx = self.0.db.write(permit, "trust.authority.create").await?;
        store::lock(tx.conn()).await?;
        if store::authorities::any(tx.conn()).await? {
            let believed = store::authorities::believed(tx.conn()).await?;
            tx.roll_back().await;
            // Another replica may have been faster.
            self.cache_invalidate();
            let active = believed.iter().find(|row| row.state == AuthorityState::Active);
            if active.is_none_or(|row| self.open(row).is_none()) {
                tracing::error!(
                    "no certificate authority is usable: restore the master key that sealed the active one, or activate another"
                );
            }
            return Ok(());
        }
        let (id, state) = (self.0.db.ambient().id::<AuthorityId>(), AuthorityState::Active);
        let authority = self.authority_insert(&mut tx, id, state).await?;
        tx.record::<(), _>("authority", id, None, Some(&authority.root_pem()))?;
        tx.emit(&AuthorityChanged { authority_id: id, state, reason: FIRST.to_owned() })?;
        tx.invalidate(format!("authority:{}", id.uuid()));
        tx.commit(None).await?;
        tracing::info!(authority_id = %id, "made the first certificate authority");
        Ok(())
    }

    /// A new generation, sealed and stored.
    pub(super) async fn authority_insert(
        &self,
        tx: &mut WriteTx,
        id: AuthorityId,
        state: AuthorityState,
    ) -> Result<ca::Authority, Failure> {
        let ambient = self.0.db.ambient();
        let authority = ca::Authority::generate(ambient, &self.0.domain, id)?;
        let sealed = authority.seal(ambient, &self.0.sealer)?;
        store::authorities::insert(tx.conn(), &authority, &sealed, state, ambient.now()).await?;
        Ok(authority)
    }

    async fn ensure_signer(&self, custody: &dyn KeyCustody) -> Result<(), Failure> {
        if self.keyset().await.is_ok() {
            return Ok(());
        }
        let permit = self.system("make the first signer");
        let mut tx = self.0.db.write(permit, "trust.signer.create").await?;
        store::lock(tx.conn()).await?;
        if store::signers::highest(tx.conn()).await? != (0, 0) {
            let found = self.newest_keyset(tx.conn()).await?;
            tx.roll_back().await;
            self.cache_invalidate();
            if found.is_none() {
                tracing::error!(
                    "no keyset is signed by our key: restore the signing directory, or enrol every node again"
                );
            }
            return Ok(());
        }
        let (now, version) = (self.0.db.ambient().now(), 1);
        let public_key = custody.generate(version)?;
        let serial = next_serial(0, custody)?;
        let keyset = keyset::first(serial, now, version, &public_key);
        let state = SignerState::Active;
        store::signers::insert(tx.conn(), 1, state, &public_key, now).await?;
        self.keyset_publish(&mut tx, custody, &keyset).await?;
        tx.record::<(), _>("signer", version, None, Some(&keyset))?;
        let reason = FIRST.to_owned();
        tx.emit(&SignerChanged { signer_version: version, state, keyset_serial: serial, reason })?;
        tx.invalidate(format!("signer:{version}"));
        tx.commit(None).await?;
        tracing::info!(signer_version = version, keyset_serial = serial, "made the first signer");
        Ok(())
    }

    /// Signs the list and stores it.
    pub(super) async fn keyset_publish(
        &self,
        tx: &mut WriteTx,
        custody: &dyn KeyCustody,
        keyset: &Keyset,
    ) -> Result<SignedKeyset, Failure> {
        let document = node_proto::canonical::encode(keyset)?;
        let signature = custody.sign_keyset(keyset.serial, &signing_bytes(&document))?;
        let signed = SignedKeyset { document: Base64(document), signature: Base64(signature.to_vec()) };
        let serial = i64::try_from(keyset.serial).map_err(|_| TrustError::Exhausted)?;
        store::signers::keyset_insert(tx.conn(), serial, &signed, self.0.db.ambient().now()).await?;
        Ok(signed)
    }

    /// Destroys the keys of signers that nodes believe no more.
    pub async fn tidy(&self) -> Result<(), Failure> {
        let Signing::Custody(custody) = &self.0.signing else { return Ok(()) };
        let mut tx = self.0.db.read(&self.system("destroy keys of signers that are gone")).await?;
        let gone = store::signers::ended_versions(tx.conn()).await?;
        let Some(checked) = self.newest_keyset(tx.conn()).await? else { return Ok(()) };
        if checked.keyset.serial < custody.highest_serial()? {
            // A newer list was signed. It was not committed, or somebody has taken it away: then the keys that it
            // names are still needed, and what this older one does not name says nothing.
            return Ok(());
        }
        for version in gone.into_iter().filter_map(|version| u32::try_from(version).ok()) {
            if checked.keyset.public_key(version).is_none() {
                custody.destroy(version)?;
            }
        }
        Ok(())
    }
}

/// Above everything that was ever signed, also by a database that has forgotten it.
pub(super) fn next_serial(highest_stored: i64, custody: &dyn KeyCustody) -> Result<u64, Failure> {
    let stored = u64::try_from(highest_stored).unwrap_or_default();
    let next = stored.max(custody.highest_serial()?).checked_add(1);
    Ok(next.filter(|next| i64::try_from(*next).is_ok()).ok_or(TrustError::Exhausted)?)
}
