//! The device flow (RFC 8628), for a machine without a browser.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::{Issuer, PublicClient, SignInError, TokenSet, tokens};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// How much slower to ask when told to slow down.
const SLOWER: Duration = Duration::from_secs(5);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 60);

/// What to show to the person, and what to ask with.
#[derive(Deserialize)]
pub struct DeviceCode {
    device_code: String,
    pub user_code: String,
    pub verification_uri: String,
    #[serde(default)]
    pub verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default = "usual_interval")]
    interval: u64,
}

const fn usual_interval() -> u64 {
    5
}

impl DeviceCode {
    pub async fn request(
        http: &reqwest::Client,
        issuer: &Issuer,
        client: &PublicClient,
        scope: &str,
    ) -> Result<Self, SignInError> {
        let Some(endpoint) = &issuer.device_authorization_endpoint else {
            return Err(SignInError::Issuer {
                issuer: issuer.issuer.clone(),
                reason: "it has no device flow; sign in with a browser".to_owned(),
            });
        };
        let mut form = vec![("client_id", client.id.as_str()), ("scope", scope)];
        form.extend(client.target());
        tokens::post(http, endpoint, &form).await
    }

    /// Asks until the person has decided, as often as the issuer allows.
    pub async fn wait(
        self,
        http: &reqwest::Client,
        issuer: &Issuer,
        client: &PublicClient,
    ) -> Result<TokenSet, SignInError> {
        let deadline = Instant::now() + Duration::from_secs(self.expires_in).min(LONGEST_WAIT);
        let mut interval = Duration::from_secs(self.interval).clamp(Duration::from_secs(1), LONGEST_INTERVAL);
        let mut form = vec![
            ("grant_type", GRANT),
            ("client_id", client.id.as_str()),
            ("device_code", self.device_code.as_str()),
        ];
        form.extend(client.target());
        loop {
            if Instant::now() + interval > deadline {
                return Err(SignInError::TimedOut);
            }
            tokio::time::sleep(interval).await;
            match tokens::post(http, &issuer.token_endpoint, &form).await {
                Err(SignInError::Refused { code, .. }) if code == "authorization_pending" => {}
                Err(SignInError::Refused { code, .. }) if code == "slow_down" => {
                    interval = (interval + SLOWER).min(LONGEST_INTERVAL);
                }
                // One lost answer is no reason to give up; the deadline bounds how many may get lost.
                Err(SignInError::Network(error)) if error.is_timeout() || error.is_connect() => {
                    interval = (interval * 2).min(LONGEST_INTERVAL);
                }
                Err(SignInError::Refused { code, .. }) if code == "expired_token" => {
                    return Err(SignInError::TimedOut);
                }
                outcome => return outcome,
            }
        }
    }
}
