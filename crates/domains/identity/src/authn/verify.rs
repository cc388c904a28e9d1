//! Verification of a token: the same for every issuer.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, Validation, dangerous::insecure_decode_claims, decode, decode_header};
use kernel::{Code, Failure, Problem};
use serde::Deserialize;

use super::{
    jwks::VerifyingKey,
    model::{Claims, Verified},
    remote::RemoteKeys,
};

/// The keys of the issuer in this process. A trait, so that `authn` does not depend on `issuer`, which verifies its own
/// tokens with `authn`.
#[async_trait]
pub trait OwnKeys: Send + Sync {
    async fn find(&self, kid: Option<&str>) -> Result<Option<Arc<VerifyingKey>>, Failure>;
}

/// Where an issuer's keys come from.
#[derive(Clone)]
pub enum KeySource {
    /// Fetched over HTTP by discovery.
    Http(Arc<RemoteKeys>),
    /// The built-in issuer's own.
    Local(Arc<dyn OwnKeys>),
}

impl KeySource {
    async fn find(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Option<Arc<VerifyingKey>>, Failure> {
        match self {
            Self::Http(keys) => keys.find(kid, algorithm).await,
            Self::Local(ring) => ring.find(kid).await,
        }
    }
}

/// An issuer whose tokens are accepted, when they were made for `audience`.
#[derive(Clone)]
pub struct TrustedIssuer {
    pub issuer: String,
    pub audience: String,
    pub keys: KeySource,
}

impl TrustedIssuer {
    /// An external issuer, found by its discovery document.
    pub fn external(
        issuer: impl Into<String>,
        audience: impl Into<String>,
        http: reqwest::Client,
        ambient: kernel::Ambient,
    ) -> Self {
        let issuer = issuer.into();
        let keys = KeySource::Http(RemoteKeys::new(issuer.clone(), http, ambient));
        Self { issuer, audience: audience.into(), keys }
    }

    pub(crate) fn is_builtin(&self) -> bool {
        matches!(self.keys, KeySource::Local(_))
    }
}

fn invalid() -> Failure {
    Problem::from_code(Code::TokenInvalid).into()
}

#[derive(Deserialize)]
struct IssuerOnly {
    iss: String,
}

/// Checks everything that the token alone can tell. `issuers` are few: a linear search is the fastest.
pub(crate) async fn verify(
    issuers: &[TrustedIssuer],
    token: &str,
    now: DateTime<Utc>,
) -> Result<Verified, Failure> {
    let header = decode_header(token).map_err(|_| invalid())?;
    let named: IssuerOnly = insecure_decode_claims(token).map_err(|_| invalid())?;
    let issuer = issuers.iter().find(|i| i.issuer == named.iss).ok_or_else(invalid)?;
    let key = issuer.keys.find(header.kid.as_deref(), header.alg).await?.ok_or_else(invalid)?;
    if !key.algorithms.contains(&header.alg) {
        return Err(invalid());
    }
    let mut validation = Validation::new(header.alg);
    // Time comes from our clock, and the audience is checked below: only the signature is checked here.
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    let claims: Claims = decode(token, &key.key, &validation).map_err(|_| invalid())?.claims;
    let expires_at = claims.valid_until(&issuer.issuer, &issuer.audience, now).ok_or_else(invalid)?;
    let verified = Verified::new(issuer.is_builtin(), claims, expires_at);
    check_expiry(&verified, now)?;
    Ok(verified)
}

pub(crate) fn check_expiry(verified: &Verified, now: DateTime<Utc>) -> Result<(), Failure> {
    if verified.is_expired(now) {
        return Err(Problem::from_code(Code::TokenExpired).into());
    }
    Ok(())
}
