//! The built-in OpenID Connect issuer: local accounts, so that one machine needs nothing else.
//!
//! It is an issuer like any other: discovery, JWKS with rotation, authorization code with PKCE, refresh,
//! device code, userinfo, revocation. Clients such as the CLI (the console when it comes) use it through the
//! same code path as an external one. It also exchanges the keys of service accounts for short-lived tokens (`client_credentials`), which
//! is why it keeps serving that even when people sign in elsewhere ([`IssuerConfig::people`] is false).
//!
//! **Who writes what.** Everything that changes who may do what is a write transaction with an audit row:
//! sign-in, sign-up, password change, device approval, issued sessions, revocation, key rotation. Counters
//! and rotation of refresh tokens are single statements without one. Codes, tokens and cookies are stored
//! as SHA-256, passwords as argon2id, private keys sealed with the master key.
//!
//! **Guessing.** A guess is counted before it is checked, so that concurrent guesses cannot outrun the
//! count; an unknown account costs as much time as a known one and gets the same answer; hashing has few
//! places, so guesses cannot take all processors; each address has a budget. Wrong passwords never lock an account:
//! they are held against the address, and against the address at that account ([`guesses`]).
//!
//! **Theft.** A code or refresh token that comes back after its use revokes the whole session. Revoking a
//! session also ends the browser sign-in that it was made from.

mod accounts;
mod config;
mod devices;
mod endpoints;
mod failure;
mod grants;
mod guesses;
mod http;
mod invitations;
mod key_exchange_document;
mod keys;
mod limits;
pub mod model;
mod passwords;
mod service_keys;
mod sessions;
mod store;
mod tidy;

use std::sync::Arc;

use endpoint::PolicySource;
use pg::Db;

pub use accounts::{NewAccount, OneTimePassword, SignUp, SignUpBy};
pub use config::{Argon2Params, IssuerConfig, Rates};
pub use endpoints::endpoints;
pub use key_exchange_document::{key_exchange_schemas, key_exchange_scheme};
pub use keys::{KeyError, KeyRing};
pub use sessions::sign_ins_end;

use crate::{
    authn::{Authn, KeySource, TrustedIssuer},
    model::invitation_link::InvitationLinks,
};

/// What access tokens of the built-in issuer are for.
pub const AUDIENCE: &str = "gpuaas";

pub(crate) struct Inner {
    pub db: Db,
    pub config: IssuerConfig,
    pub clients: Vec<model::Client>,
    pub ring: Arc<KeyRing>,
    pub passwords: passwords::Passwords,
    pub policies: Arc<dyn PolicySource>,
    pub limits: limits::Limits,
    /// Reads this issuer's own access tokens (userinfo, revocation).
    pub authn: Authn,
    pub csrf_key: aws_lc_rs::hmac::Key,
    pub links: InvitationLinks,
}

/// Cheap to clone; making one touches no database.
#[derive(Clone)]
pub struct Issuer(pub(crate) Arc<Inner>);

impl Issuer {
    pub fn new(db: Db, mut config: IssuerConfig, policies: Arc<dyn PolicySource>) -> Self {
        config.public_url = config.public_url.trim_end_matches('/').to_owned();
        let ring = KeyRing::new(db.clone(), &config);
        let trusted = trusted(&config, &ring);
        Self(Arc::new(Inner {
            clients: model::clients(&config.console_redirects),
            passwords: passwords::Passwords::new(config.argon2, db.ambient().clone()),
            limits: limits::Limits::new(config.rates),
            authn: Authn::new(db.clone(), vec![trusted]),
            csrf_key: trust::derive(&config.master_key, b"forms of the built-in issuer"),
            links: InvitationLinks::new(&config.master_key, &config.public_url, config.mails_invitations),
            ring,
            policies,
            config,
            db,
        }))
    }

    /// What [`Authn`] needs to accept this issuer's tokens.
    pub fn trusted(&self) -> TrustedIssuer {
        trusted(&self.0.config, &self.0.ring)
    }

    /// Its routes: `/.well-known/openid-configuration` and `/auth/…`.
    pub fn router(&self) -> axum::Router {
        http::router(self.clone())
    }

    pub fn keys(&self) -> &Arc<KeyRing> {
        &self.0.ring
    }
}

fn trusted(config: &IssuerConfig, ring: &Arc<KeyRing>) -> TrustedIssuer {
    TrustedIssuer {
        issuer: config.public_url.clone(),
        audience: AUDIENCE.to_owned(),
        keys: KeySource::Local(ring.clone()),
    }
}
