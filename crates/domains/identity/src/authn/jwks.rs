//! Public keys as issuers publish them.

use std::sync::Arc;

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use serde_json::Value;

/// A public key and the algorithms it may be used with.
pub struct VerifyingKey {
    pub(crate) kid: Option<String>,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) key: DecodingKey,
}

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

impl VerifyingKey {
    /// Nothing when the key is not an asymmetric signature key that we understand.
    pub fn from_jwk(jwk: &Jwk) -> Option<Self> {
        if jwk.common.public_key_use.as_ref().is_some_and(|u| *u != PublicKeyUse::Signature) {
            return None;
        }
        let possible: Vec<Algorithm> = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => RSA.to_vec(),
            AlgorithmParameters::EllipticCurve(p) if p.curve == EllipticCurve::P256 => vec![Algorithm::ES256],
            AlgorithmParameters::EllipticCurve(p) if p.curve == EllipticCurve::P384 => vec![Algorithm::ES384],
            AlgorithmParameters::OctetKeyPair(p) if p.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            _ => return None,
        };
        let algorithms: Vec<Algorithm> = match jwk.common.key_algorithm {
            None => possible,
            Some(declared) => {
                let declared = Algorithm::try_from(declared).ok()?;
                possible.into_iter().filter(|a| *a == declared).collect()
            }
        };
        if algorithms.is_empty() {
            return None;
        }
        Some(Self { kid: jwk.common.key_id.clone(), algorithms, key: DecodingKey::from_jwk(jwk).ok()? })
    }
}

/// The keys of one issuer at one time.
#[derive(Default)]
pub struct KeySet(Vec<Arc<VerifyingKey>>);

/// More keys than any issuer publishes; the rest is not looked at.
const MOST_KEYS: usize = 64;

impl KeySet {
    /// Reads a JWKS; keys that we cannot use are passed over.
    pub fn parse(document: &Value) -> Option<Self> {
        let keys = document.get("keys")?.as_array()?;
        let usable = keys.iter().take(MOST_KEYS).filter_map(|key| {
            let jwk = serde_json::from_value::<Jwk>(key.clone()).ok()?;
            VerifyingKey::from_jwk(&jwk).map(Arc::new)
        });
        Some(Self(usable.collect()))
    }

    pub fn from_keys(keys: Vec<Arc<VerifyingKey>>) -> Self {
        Self(keys)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A token without `kid` is matched only when a single key fits its algorithm.
    pub fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<VerifyingKey>> {
        match kid {
            Some(kid) => self.0.iter().find(|k| k.kid.as_deref() == Some(kid)).cloned(),
            None => {
                let mut fitting = self.0.iter().filter(|k| k.algorithms.contains(&algorithm));
                fitting.next().filter(|_| fitting.next().is_none()).cloned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ec(kid: &str) -> Value {
        json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": "AAAA", "y": "AAAA" })
    }

    #[test]
    fn symmetric_encryption_and_mislabelled_keys_are_passed_over() {
        let mut encryption = ec("enc");
        encryption["use"] = json!("enc");
        let mut mislabelled = ec("lie");
        mislabelled["alg"] = json!("HS256");
        let symmetric = json!({ "kty": "oct", "kid": "oct", "k": "AAAA" });
        let set =
            KeySet::parse(&json!({ "keys": [encryption, mislabelled, symmetric, ec("good"), 7] })).unwrap();
        for kid in ["enc", "lie", "oct"] {
            assert!(set.find(Some(kid), Algorithm::ES256).is_none(), "{kid}");
        }
        assert!(set.find(Some("good"), Algorithm::ES256).is_some());
    }

    #[test]
    fn a_token_without_kid_needs_a_single_fitting_key() {
        let one = KeySet::parse(&json!({ "keys": [ec("a")] })).unwrap();
        assert!(one.find(None, Algorithm::ES256).is_some());
        assert!(one.find(None, Algorithm::RS256).is_none());
        let two = KeySet::parse(&json!({ "keys": [ec("a"), ec("b")] })).unwrap();
        assert!(two.find(None, Algorithm::ES256).is_none());
    }
}
