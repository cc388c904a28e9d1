//! What the issuer is told at start.

use std::num::NonZeroU32;

use chrono::TimeDelta;
use kernel::Secret;

/// Cost of hashing one password.
#[derive(Clone, Copy, Debug)]
pub struct Argon2Params {
    pub memory_kib: u32,
    pub iterations: u32,
    pub parallelism: u32,
}

impl Default for Argon2Params {
    fn default() -> Self {
        Self { memory_kib: 19_456, iterations: 2, parallelism: 1 }
    }
}

/// Requests a minute that one address may make. Kept per replica.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Passwords sent without being signed in: sign-in, sign-up; and device codes typed.
    pub sign_in: NonZeroU32,
    /// Everything else: tokens, pages, documents.
    pub other: NonZeroU32,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            sign_in: NonZeroU32::new(30).unwrap_or(NonZeroU32::MIN),
            other: NonZeroU32::new(600).unwrap_or(NonZeroU32::MIN),
        }
    }
}

#[derive(Clone, Debug)]
pub struct IssuerConfig {
    /// The origin that people and programs reach us at, such as `https://gpu.example.org`; the issuer's name.
    pub public_url: String,
    /// Seals the signing keys.
    pub master_key: Secret<[u8; 32]>,
    /// Whether people sign in here. When false only service accounts are served.
    pub people: bool,
    /// Whether anybody may make an account, without an invitation.
    pub self_signup: bool,
    /// Whether invitations are mailed. Then an account is made by the mailed link, not by the inviter's token.
    pub mails_invitations: bool,
    /// Redirect URIs of the console, matched exactly.
    pub console_redirects: Vec<String>,
    pub argon2: Argon2Params,
    pub rates: Rates,
    /// Signing keys older than this are replaced.
    pub key_max_age: TimeDelta,
}

impl IssuerConfig {
    pub fn new(public_url: impl Into<String>, master_key: Secret<[u8; 32]>) -> Self {
        Self {
            public_url: public_url.into(),
            master_key,
            people: true,
            self_signup: false,
            mails_invitations: false,
            console_redirects: Vec::new(),
            argon2: Argon2Params::default(),
            rates: Rates::default(),
            key_max_age: TimeDelta::days(30),
        }
    }
}
