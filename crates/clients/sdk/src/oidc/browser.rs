//! Authorization code with PKCE (S256), for a program that can open a browser.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{Issuer, PublicClient, SignInError, TokenSet, tokens};
use crate::random;

/// A secret of this sign-in, and what may be known of it.
pub struct Pkce {
    verifier: String,
    challenge: String,
}

impl Pkce {
    pub fn fresh() -> Self {
        let verifier = URL_SAFE_NO_PAD.encode(random::bytes::<32>());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        Self { verifier, challenge }
    }
}

/// A sign-in under way.
pub struct Authorization {
    issuer: String,
    client: PublicClient,
    redirect_uri: String,
    state: String,
    pkce: Pkce,
    url: Url,
}

impl Authorization {
    pub fn begin(
        issuer: &Issuer,
        client: &PublicClient,
        scope: &str,
        redirect_uri: &str,
    ) -> Result<Self, SignInError> {
        let Some(mut url) = issuer.authorization_endpoint.clone() else {
            return Err(SignInError::Issuer {
                issuer: issuer.issuer.clone(),
                reason: "it has no authorization endpoint".to_owned(),
            });
        };
        let (pkce, state) = (Pkce::fresh(), URL_SAFE_NO_PAD.encode(random::bytes::<16>()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", scope)
            .append_pair("state", &state)
            .append_pair("code_challenge", &pkce.challenge)
            .append_pair("code_challenge_method", "S256")
            .extend_pairs(client.target());
        let (client, redirect_uri) = (client.clone(), redirect_uri.to_owned());
        Ok(Self { issuer: issuer.issuer.clone(), client, redirect_uri, state, pkce, url })
    }

    /// Where the person signs in.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The code in a callback's query. `None` when the query is not an answer to this sign-in, which is
    /// then to be ignored: anything on the machine can call us.
    pub fn code(&self, query: &str) -> Option<Result<String, SignInError>> {
        let fields: std::collections::HashMap<String, String> = serde_urlencoded::from_str(query).ok()?;
        if fields.get("state") != Some(&self.state) {
            return None;
        }
        // An answer that says who it is from (RFC 9207) must be from whom we asked.
        if fields.get("iss").is_some_and(|iss| iss.trim_end_matches('/') != self.issuer.trim_end_matches('/'))
        {
            return None;
        }
        if let Some(code) = fields.get("code") {
            return Some(Ok(code.clone()));
        }
        let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
        Some(Err(SignInError::Refused { code: text("error"), description: text("error_description") }))
    }

    pub async fn exchange(
        self,
        http: &reqwest::Client,
        issuer: &Issuer,
        code: &str,
    ) -> Result<TokenSet, SignInError> {
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("client_id", self.client.id.as_str()),
            ("code", code),
            ("redirect_uri", self.redirect_uri.as_str()),
            ("code_verifier", self.pkce.verifier.as_str()),
        ];
        form.extend(self.client.target());
        tokens::post(http, &issuer.token_endpoint, &form).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization_for(audience: Option<&str>) -> Authorization {
        let issuer = Issuer {
            issuer: "http://issuer".to_owned(),
            authorization_endpoint: Some("http://issuer/authorize".parse().unwrap()),
            token_endpoint: "http://issuer/token".parse().unwrap(),
            device_authorization_endpoint: None,
        };
        let client = PublicClient { id: "cli".to_owned(), audience: audience.map(str::to_owned) };
        Authorization::begin(&issuer, &client, "openid", "http://127.0.0.1:1/callback").unwrap()
    }

    fn authorization() -> Authorization {
        authorization_for(None)
    }

    #[test]
    fn the_address_says_what_the_tokens_are_for() {
        let asked = |audience| {
            let url = authorization_for(audience).url().clone();
            let mut pairs = url.query_pairs().into_owned();
            pairs.find(|(name, _)| name == "resource" || name == "audience")
        };
        let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(
            asked(Some("https://gpu.example.org/api")),
            pair("resource", "https://gpu.example.org/api")
        );
        assert_eq!(asked(Some("gpuaas")), pair("audience", "gpuaas"));
        assert_eq!(asked(None), None);
    }

    #[test]
    fn the_address_shows_the_challenge_and_never_the_verifier() {
        let authorization = authorization();
        let url = authorization.url().as_str();
        assert!(url.contains(&authorization.pkce.challenge) && url.contains("code_challenge_method=S256"));
        assert!(!url.contains(&authorization.pkce.verifier));
    }

    #[test]
    fn only_the_answer_to_this_sign_in_counts() {
        let authorization = authorization();
        assert!(authorization.code("code=x&state=other").is_none());
        assert!(authorization.code("code=x").is_none());
        let good = format!("code=x&state={}", authorization.state);
        assert_eq!(authorization.code(&good).unwrap().unwrap(), "x");
        assert!(authorization.code(&format!("{good}&iss=http://other")).is_none());
        let refused = format!("error=access_denied&state={}", authorization.state);
        assert!(authorization.code(&refused).unwrap().is_err());
    }
}
