//! What an issuer says of itself.

use serde::Deserialize;
use url::Url;

use super::SignInError;

/// The part of a discovery document that signing in needs.
#[derive(Clone, Debug, Deserialize)]
pub struct Issuer {
    pub issuer: String,
    pub authorization_endpoint: Url,
    pub token_endpoint: Url,
    #[serde(default)]
    pub device_authorization_endpoint: Option<Url>,
    #[serde(default)]
    pub revocation_endpoint: Option<Url>,
}

impl Issuer {
    pub async fn discover(http: &reqwest::Client, issuer: &str) -> Result<Self, SignInError> {
        let unusable =
            |reason: &str| SignInError::Issuer { issuer: issuer.to_owned(), reason: reason.to_owned() };
        let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let response = http.get(address).send().await.map_err(SignInError::Network)?;
        if !response.status().is_success() {
            return Err(unusable(&format!("its discovery document answers {}", response.status())));
        }
        let found: Self =
            response.json().await.map_err(|_| unusable("its discovery document cannot be read"))?;
        // An issuer that speaks for another one could collect its codes.
        if found.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(unusable("its discovery document names another issuer"));
        }
        let endpoints = [&found.authorization_endpoint, &found.token_endpoint]
            .into_iter()
            .chain(&found.device_authorization_endpoint)
            .chain(&found.revocation_endpoint);
        for endpoint in endpoints {
            let secure = endpoint.scheme() == "https";
            if !secure && (issuer.starts_with("https://") || endpoint.scheme() != "http") {
                return Err(unusable("one of its endpoints is not an https address"));
            }
        }
        Ok(found)
    }
}
