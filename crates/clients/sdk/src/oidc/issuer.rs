//! What an issuer says of itself.

use serde::Deserialize;
use url::Url;

use super::SignInError;

/// The part of a discovery document that signing in needs.
#[derive(Clone, Debug, Deserialize)]
pub struct Issuer {
    pub issuer: String,
    /// Absent when people sign in elsewhere.
    #[serde(default)]
    pub authorization_endpoint: Option<Url>,
    pub token_endpoint: Url,
    #[serde(default)]
    pub device_authorization_endpoint: Option<Url>,
}

impl Issuer {
    /// The issuer of that name. One that calls itself otherwise is refused: it could collect another's codes.
    pub async fn discover(http: &reqwest::Client, issuer: &str) -> Result<Self, SignInError> {
        let found = Self::discover_at(http, issuer).await?;
        if found.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(unusable(issuer, "its discovery document names another issuer"));
        }
        Ok(found)
    }

    /// The issuer that a server brings along for its service accounts, by the address of that server, which may
    /// be another than the one it calls itself by.
    pub async fn discover_at(http: &reqwest::Client, address: &str) -> Result<Self, SignInError> {
        let document = format!("{}/.well-known/openid-configuration", address.trim_end_matches('/'));
        let response = http.get(document).send().await.map_err(SignInError::Network)?;
        if !response.status().is_success() {
            let reason = format!("its discovery document answers {}", response.status());
            return Err(unusable(address, &reason));
        }
        let found: Self =
            response.json().await.map_err(|_| unusable(address, "its discovery document cannot be read"))?;
        let endpoints = [&found.token_endpoint]
            .into_iter()
            .chain(&found.authorization_endpoint)
            .chain(&found.device_authorization_endpoint);
        for endpoint in endpoints {
            let secure = endpoint.scheme() == "https";
            if !secure && (address.starts_with("https://") || endpoint.scheme() != "http") {
                return Err(unusable(address, "one of its endpoints is not an https address"));
            }
        }
        Ok(found)
    }
}

fn unusable(issuer: &str, reason: &str) -> SignInError {
    SignInError::Issuer { issuer: issuer.to_owned(), reason: reason.to_owned() }
}
