//! Signing in at an OpenID Connect issuer: authorization code with PKCE, device code, refresh, and service
//! accounts by client credentials.
//!
//! The issuer may be the built-in one or any other; all that is known of it comes from its discovery document.
//! Codes and tokens travel in request bodies only, never in an address that we make.

mod browser;
mod client;
mod device;
mod issuer;
mod tokens;

pub use browser::{Authorization, Pkce};
pub use client::PublicClient;
pub use device::DeviceCode;
pub use issuer::Issuer;
pub use tokens::{ServiceAccountKey, TokenSet};

/// Why a sign-in did not work.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    #[error("the issuer {issuer} cannot be used: {reason}")]
    Issuer { issuer: String, reason: String },
    /// The issuer said no (`error` and `error_description` of OAuth 2).
    #[error("the issuer refused: {description} ({code})")]
    Refused { code: String, description: String },
    #[error("the sign-in timed out; start again")]
    TimedOut,
    #[error("{0}")]
    Unusable(String),
    #[error("the issuer cannot be reached")]
    Network(#[source] reqwest::Error),
}

impl SignInError {
    /// True when the issuer knows the credential no more: signing in again is the only way.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused { code, .. }
            if matches!(code.as_str(), "invalid_grant" | "invalid_client" | "unauthorized_client"))
    }
}
