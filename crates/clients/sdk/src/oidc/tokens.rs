//! The token endpoint.

use std::fmt;

use serde::Deserialize;
use url::Url;

use super::{Issuer, PublicClient, SignInError};

/// What a sign-in yields. It does not show its tokens.
#[derive(Clone, Deserialize)]
pub struct TokenSet {
    pub access_token: String,
    #[serde(default)]
    pub refresh_token: Option<String>,
    #[serde(default = "short")]
    pub expires_in: u64,
}

/// An issuer that does not say is assumed to be careful.
const fn short() -> u64 {
    300
}

impl fmt::Debug for TokenSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSet").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

pub(super) async fn post<T: serde::de::DeserializeOwned>(
    http: &reqwest::Client,
    endpoint: &Url,
    form: &[(&str, &str)],
) -> Result<T, SignInError> {
    let response = http.post(endpoint.clone()).form(form).send().await.map_err(SignInError::Network)?;
    let status = response.status();
    let body = response.bytes().await.map_err(SignInError::Network)?;
    if status.is_success() {
        return serde_json::from_slice(&body)
            .map_err(|_| SignInError::Unusable("the issuer's response is not valid".to_owned()));
    }
    match serde_json::from_slice::<Refusal>(&body) {
        Ok(Refusal { error, error_description }) => {
            let description = error_description.unwrap_or_else(|| "no reason was given".to_owned());
            Err(SignInError::Refused { code: error, description })
        }
        Err(_) => Err(SignInError::Unusable(format!("the issuer answered {status}"))),
    }
}

impl Issuer {
    /// New tokens for a refresh token. The old one may not work any more afterwards.
    pub async fn refresh(
        &self,
        http: &reqwest::Client,
        client: &PublicClient,
        refresh_token: &str,
    ) -> Result<TokenSet, SignInError> {
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("client_id", client.id.as_str()),
            ("refresh_token", refresh_token),
        ];
        form.extend(client.target());
        post(http, &self.token_endpoint, &form).await
    }

    /// A short-lived token for a service account.
    pub async fn service_account(
        &self,
        http: &reqwest::Client,
        key: &ServiceAccountKey,
    ) -> Result<TokenSet, SignInError> {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", key.id.as_str()),
            ("client_secret", key.text.as_str()),
        ];
        post(http, &self.token_endpoint, &form).await
    }
}

/// A key as it was shown once: `gpuaas_sak_<32 hex digits>_<secret>`.
#[derive(Clone)]
pub struct ServiceAccountKey {
    id: String,
    text: String,
}

impl ServiceAccountKey {
    pub fn parse(text: &str) -> Result<Self, SignInError> {
        let text = text.trim();
        let id = text
            .strip_prefix("gpuaas_")
            .and_then(|rest| rest.get(..36))
            .filter(|id| id.strip_prefix("sak_").is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit())))
            .filter(|id| text.len() > "gpuaas_".len() + id.len() + 1);
        match id {
            Some(id) => Ok(Self { id: id.to_owned(), text: text.to_owned() }),
            None => Err(SignInError::Unusable(
                "this is not a service account key; one starts with gpuaas_sak_".to_owned(),
            )),
        }
    }

    /// The part that may be shown.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for ServiceAccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceAccountKey").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_key_is_known_and_its_secret_is_not_shown() {
        let key = ServiceAccountKey::parse("gpuaas_sak_0123456789abcdef0123456789abcdef_hunter2\n").unwrap();
        assert_eq!(key.id(), "sak_0123456789abcdef0123456789abcdef");
        assert!(!format!("{key:?}").contains("hunter2"));
    }

    #[test]
    fn other_text_is_not_a_key() {
        for text in ["", "gpuaas_sak_", "gpuaas_sak_0123456789abcdef0123456789abcdef", "gpuaas_sak_é", "x"] {
            assert!(ServiceAccountKey::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_are_not_shown() {
        let tokens: TokenSet =
            serde_json::from_str(r#"{"access_token":"hunter2","refresh_token":"hunter3"}"#).unwrap();
        assert!(!format!("{tokens:?}").contains("hunter"));
    }
}
