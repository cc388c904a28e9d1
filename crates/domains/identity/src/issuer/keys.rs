//! The signing keys: one active, the ones before it still published until their tokens have expired.
//!
//! Replicas share the keys through the database. Each keeps what it read for three seconds, reads again
//! when another replica rotated (`issuer_keys`) or a token names a key it does not know, and goes on with
//! what it has while the database is away.

use std::sync::{
    Arc, RwLock,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use kernel::{CorrelationId, Failure, digest::sha256};
use pg::{Db, Origin, Permit};
use serde_json::{Value, json};

use trust::Sealer;

use super::{
    config::IssuerConfig,
    model::KEY_OVERLAP,
    store::keys::{self as store, KeyRow},
};
use crate::authn::{OwnKeys, VerifyingKey};

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a signing key cannot be made")]
    Make,
    #[error(
        "the signing key {0} cannot be opened with this master key; restore the master key, or rotate the keys"
    )]
    Sealed(String),
    #[error("the master key cannot be used")]
    Master,
    #[error("there is no signing key, and none could be made")]
    None,
}

const REMEMBERED_FOR: TimeDelta = TimeDelta::seconds(3);
/// A token with an unknown key causes one look at the database per this time.
const FLOOR: TimeDelta = TimeDelta::seconds(1);

struct Signer {
    kid: String,
    key: EncodingKey,
}

struct Ring {
    at: DateTime<Utc>,
    signer: Option<Result<Arc<Signer>, String>>,
    signer_since: Option<DateTime<Utc>>,
    verifying: Vec<Arc<VerifyingKey>>,
    jwks: Value,
}

pub struct KeyRing {
    db: Db,
    sealer: Option<Sealer>,
    max_age: TimeDelta,
    ring: RwLock<Option<Arc<Ring>>>,
    /// Another replica rotated.
    outdated: Arc<AtomicBool>,
    reading: tokio::sync::Mutex<()>,
}

impl KeyRing {
    pub(super) fn new(db: Db, config: &IssuerConfig) -> Arc<Self> {
        let outdated = Arc::new(AtomicBool::new(false));
        let flag = outdated.clone();
        db.on_invalidate(move |key| {
            if key == "issuer_keys" || key == "*" {
                flag.store(true, Ordering::SeqCst);
            }
        });
        Arc::new(Self {
            sealer: Sealer::new(&config.master_key).ok(),
            max_age: config.key_max_age,
            ring: RwLock::new(None),
            outdated,
            reading: tokio::sync::Mutex::new(()),
            db,
        })
    }

    /// The JWKS document.
    pub async fn jwks(&self) -> Result<Value, Failure> {
        self.signer().await?;
        Ok(self.ring(REMEMBERED_FOR).await?.jwks.clone())
    }

    pub(crate) async fn sign(&self, typ: &str, claims: &Value) -> Result<String, Failure> {
        let signer = self.signer().await?;
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some(typ.to_owned());
        header.kid = Some(signer.kid.clone());
        Ok(jsonwebtoken::encode(&header, claims, &signer.key)?)
    }

    async fn signer(&self) -> Result<Arc<Signer>, Failure> {
        let mut ring = self.ring(REMEMBERED_FOR).await?;
        if ring.signer.is_none() {
            self.rotate_if(true, "the first signing key").await?;
            ring = self.ring(TimeDelta::zero()).await?;
        }
        match &ring.signer {
            Some(Ok(signer)) => Ok(signer.clone()),
            Some(Err(kid)) => Err(KeyError::Sealed(kid.clone()).into()),
            None => Err(KeyError::None.into()),
        }
    }

    /// Makes a new active key now. The old one stays published until its tokens have expired.
    pub async fn rotate(&self) -> Result<(), Failure> {
        self.rotate_if(false, "rotate the signing keys").await
    }

    /// Makes a new active key when the current one is old enough; true when it did.
    pub async fn rotate_by_age(&self) -> Result<bool, Failure> {
        let ring = self.ring(REMEMBERED_FOR).await?;
        let now = self.db.ambient().now();
        let due = ring.signer_since.is_none_or(|since| now - since >= self.max_age);
        if due {
            self.rotate_if(true, "the signing key is old").await?;
        }
        Ok(due)
    }

    async fn rotate_if(&self, only_when_due: bool, reason: &'static str) -> Result<(), Failure> {
        let ambient = self.db.ambient().clone();
        let (jwk, kid, private) = new_key()?;
        let sealed = self.sealer.as_ref().ok_or(KeyError::Master)?.seal(&ambient, &kid, private.expose());
        let sealed = sealed.map_err(|_| KeyError::Make)?;
        let origin = Origin::internal(CorrelationId(ambient.uuid()));
        let mut tx = self.db.write(Permit::system(reason, origin), "issuer.keys.rotate").await?;
        store::lock(tx.conn()).await?;
        let now = ambient.now();
        let active_since = store::active_since(tx.conn()).await?;
        if only_when_due && active_since.is_some_and(|since| now - since < self.max_age) {
            // Another replica was faster.
            tx.roll_back().await;
            self.outdated.store(true, Ordering::SeqCst);
            return Ok(());
        }
        store::retire_active(tx.conn(), now, now + KEY_OVERLAP).await?;
        store::insert(tx.conn(), &kid, &jwk, &sealed, now).await?;
        tx.record::<(), _>("issuer_key", &kid, None, Some(&jwk))?;
        tx.invalidate("issuer_keys".to_owned());
        tx.commit(None).await?;
        Ok(())
    }

    async fn ring(&self, at_most: TimeDelta) -> Result<Arc<Ring>, Failure> {
        let usable = |this: &Self| {
            let now = this.db.ambient().now();
            let ring = this.ring.read().unwrap_or_else(|e| e.into_inner()).clone()?;
            let fresh = ring.at <= now && now - ring.at < at_most && !this.outdated.load(Ordering::SeqCst);
            fresh.then_some(ring)
        };
        if let Some(ring) = usable(self) {
            return Ok(ring);
        }
        let _one_at_a_time = self.reading.lock().await;
        if let Some(ring) = usable(self) {
            return Ok(ring);
        }
        self.outdated.store(false, Ordering::SeqCst);
        let before = self.ring.read().unwrap_or_else(|e| e.into_inner()).clone();
        match self.read(before.as_deref()).await {
            Ok(ring) => {
                let ring = Arc::new(ring);
                *self.ring.write().unwrap_or_else(|e| e.into_inner()) = Some(ring.clone());
                Ok(ring)
            }
            Err(error) => {
                self.outdated.store(true, Ordering::SeqCst);
                let Some(ring) = before else { return Err(error) };
                tracing::warn!(error = ?error, "signing keys could not be read; using the cached ones");
                Ok(ring)
            }
        }
    }

    async fn read(&self, before: Option<&Ring>) -> Result<Ring, Failure> {
        let at = self.db.ambient().now();
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        let mut read = self.db.read(&Permit::system("read the signing keys", origin)).await?;
        let rows = store::list(read.conn(), at).await?;
        let mut ring =
            Ring { at, signer: None, signer_since: None, verifying: Vec::new(), jwks: Value::Null };
        let mut published = Vec::new();
        for row in rows {
            if row.active {
                ring.signer_since = Some(row.created_at);
                ring.signer = Some(self.open(&row, before));
            }
            let jwk = serde_json::from_value::<Jwk>(row.public_jwk.clone()).ok();
            if let Some(key) = jwk.and_then(|jwk| VerifyingKey::from_jwk(&jwk)) {
                ring.verifying.push(Arc::new(key));
                published.push(row.public_jwk);
            }
        }
        ring.jwks = json!({ "keys": published });
        Ok(ring)
    }

    /// Opening a key costs little, but most reads find the one we have.
    fn open(&self, row: &KeyRow, before: Option<&Ring>) -> Result<Arc<Signer>, String> {
        if let Some(Some(Ok(known))) = before.map(|ring| &ring.signer)
            && known.kid == row.kid
        {
            return Ok(known.clone());
        }
        let opened = self.sealer.as_ref().and_then(|s| s.open(&row.kid, &row.private_sealed).ok());
        let private = opened.ok_or_else(|| row.kid.clone())?;
        Ok(Arc::new(Signer { kid: row.kid.clone(), key: EncodingKey::from_ec_der(private.expose()) }))
    }
}

#[async_trait]
impl OwnKeys for KeyRing {
    /// The public key of that name.
    async fn find(&self, kid: Option<&str>) -> Result<Option<Arc<VerifyingKey>>, Failure> {
        let Some(kid) = kid else { return Ok(None) };
        let found = |ring: &Ring| ring.verifying.iter().find(|k| k.kid.as_deref() == Some(kid)).cloned();
        let ring = self.ring(REMEMBERED_FOR).await?;
        if let Some(key) = found(&ring) {
            return Ok(Some(key));
        }
        Ok(found(&*self.ring(FLOOR).await?))
    }
}

/// (public JWK, kid, PKCS#8)
fn new_key() -> Result<(Value, String, kernel::Secret<Vec<u8>>), KeyError> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| KeyError::Make)?;
    let private = kernel::Secret::new(pair.to_pkcs8v1().map_err(|_| KeyError::Make)?.as_ref().to_vec());
    // An uncompressed point: 4, then both coordinates.
    let point = pair.public_key().as_ref();
    let (Some(x), Some(y)) = (point.get(1..33), point.get(33..65)) else { return Err(KeyError::Make) };
    let (x, y) = (BASE64_URL_SAFE_NO_PAD.encode(x), BASE64_URL_SAFE_NO_PAD.encode(y));
    // The name is the key's thumbprint (RFC 7638), so that no two keys share one.
    let thumbprint = sha256(format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#));
    let kid = BASE64_URL_SAFE_NO_PAD.encode(thumbprint);
    let jwk =
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": kid, "use": "sig", "alg": "ES256" });
    Ok((jwk, kid, private))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_signs_what_its_public_half_verifies() {
        let (jwk, kid, private) = new_key().unwrap();
        let key = VerifyingKey::from_jwk(&serde_json::from_value(jwk).unwrap()).unwrap();
        assert_eq!(key.kid.as_deref(), Some(kid.as_str()));
        let token = jsonwebtoken::encode(
            &Header::new(Algorithm::ES256),
            &json!({ "a": 1 }),
            &EncodingKey::from_ec_der(private.expose()),
        )
        .unwrap();
        let mut validation = jsonwebtoken::Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        let read = jsonwebtoken::decode::<Value>(&token, &key.key, &validation).unwrap();
        assert_eq!(read.claims["a"], 1);
    }
}
