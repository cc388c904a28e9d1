//! Clients, redirects, PKCE, codes: what can be decided without the database.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Ambient, Secret,
    digest::sha256,
    ids::LocalAccountId,
    text::{Email, Name},
};
use serde::Serialize;
use subtle::ConstantTimeEq as _;

pub const ACCESS_TOKEN_LIFE: TimeDelta = TimeDelta::minutes(10);
pub const SERVICE_TOKEN_LIFE: TimeDelta = TimeDelta::minutes(15);
pub const SESSION_LIFE: TimeDelta = TimeDelta::days(30);
pub const BROWSER_SESSION_LIFE: TimeDelta = TimeDelta::hours(12);
pub const CODE_LIFE: TimeDelta = TimeDelta::seconds(60);
pub const DEVICE_CODE_LIFE: TimeDelta = TimeDelta::minutes(10);
pub const DEVICE_POLL_SECONDS: i32 = 5;
/// A retired key stays published until every token it signed has expired, clock differences included.
pub const KEY_OVERLAP: TimeDelta = TimeDelta::minutes(20);

pub const CLI: &str = "gpuaas-cli";
pub const CONSOLE: &str = "gpuaas-console";
const SCOPES: [&str; 4] = ["openid", "profile", "email", "offline_access"];

/// A program that may ask for tokens. All are public: PKCE is what binds a code to them.
#[derive(Clone, Debug)]
pub struct Client {
    pub id: &'static str,
    pub name: &'static str,
    redirects: Redirects,
}

#[derive(Clone, Debug)]
enum Redirects {
    /// `http://127.0.0.1:<any>/callback` and the same on `[::1]` (RFC 8252).
    Loopback,
    Exactly(Vec<String>),
}

pub fn clients(console_redirects: &[String]) -> Vec<Client> {
    vec![
        Client { id: CLI, name: "the gpuaas command line", redirects: Redirects::Loopback },
        Client {
            id: CONSOLE,
            name: "the console",
            redirects: Redirects::Exactly(console_redirects.to_vec()),
        },
    ]
}

impl Client {
    pub fn may_redirect_to(&self, uri: &str) -> bool {
        match &self.redirects {
            Redirects::Exactly(uris) => uris.iter().any(|u| u == uri),
            Redirects::Loopback => is_loopback(uri),
        }
    }

    /// Whether any program on the person's computer can pose as it (RFC 8252, 8.6): nobody but the person can
    /// tell who is asking.
    pub const fn is_unproven(&self) -> bool {
        matches!(self.redirects, Redirects::Loopback)
    }

    /// After signing out, a client may be returned to where it lives.
    pub fn lives_at(&self, uri: &str) -> bool {
        let Redirects::Exactly(uris) = &self.redirects else { return false };
        let Some(wanted) = origin_of(uri) else { return false };
        uris.iter().any(|u| origin_of(u).as_ref() == Some(&wanted))
    }
}

fn is_loopback(uri: &str) -> bool {
    // Compared as text up to the port, so that no parser's leniency widens what is accepted.
    let rest = ["http://127.0.0.1:", "http://[::1]:"].iter().find_map(|prefix| uri.strip_prefix(prefix));
    let Some((port, "callback")) = rest.and_then(|rest| rest.split_once('/')) else { return false };
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
}

/// `scheme://host[:port]` of a web address.
pub fn origin_of(uri: &str) -> Option<String> {
    let url = url::Url::parse(uri).ok()?;
    matches!(url.scheme(), "http" | "https").then(|| url.origin().ascii_serialization())
}

/// A challenge is the base64url SHA-256 of the verifier: always 43 characters.
pub fn is_code_challenge(text: &str) -> bool {
    text.len() == 43 && BASE64_URL_SAFE_NO_PAD.decode(text).is_ok()
}

pub fn verifier_matches(verifier: &str, challenge: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if !(43..=128).contains(&verifier.len()) || !verifier.bytes().all(allowed) {
        return false;
    }
    let computed = BASE64_URL_SAFE_NO_PAD.encode(sha256(verifier));
    computed.as_bytes().ct_eq(challenge.as_bytes()).into()
}

/// Of what was asked, what there is.
pub fn granted_scope(asked: &str) -> String {
    SCOPES.into_iter().filter(|s| asked.split(' ').any(|a| a == *s)).collect::<Vec<_>>().join(" ")
}

pub fn has_scope(scope: &str, wanted: &str) -> bool {
    scope.split(' ').any(|s| s == wanted)
}

/// A random secret and the hash under which it is stored.
pub fn new_secret(ambient: &Ambient) -> (Secret, [u8; 32]) {
    let text = BASE64_URL_SAFE_NO_PAD.encode(ambient.bytes::<32>());
    let hash = sha256(&text);
    (Secret::new(text), hash)
}

/// Letters that are not mistaken for one another and make no words.
const USER_CODE_LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// Eight letters that a person types, such as `BCDF-GHJK`.
pub fn new_user_code(ambient: &Ambient) -> String {
    let mut code = String::with_capacity(9);
    while code.len() < 9 {
        if code.len() == 4 {
            code.push('-');
        }
        // Bytes from 240 up are drawn again, so that each letter is as likely as any other.
        let [byte] = ambient.bytes::<1>();
        if byte < 240 {
            code.push(char::from(USER_CODE_LETTERS[usize::from(byte % 20)]));
        }
    }
    code
}

/// What a person typed, in the form it is stored; nothing when it cannot be a code.
pub fn read_user_code(typed: &str) -> Option<String> {
    let letters: Vec<u8> =
        typed.bytes().filter(|b| *b != b'-' && *b != b' ').map(|b| b.to_ascii_uppercase()).collect();
    if letters.len() != 8 || !letters.iter().all(|b| USER_CODE_LETTERS.contains(b)) {
        return None;
    }
    let text = String::from_utf8(letters).ok()?;
    Some(format!("{}-{}", &text[..4], &text[4..]))
}

const PASSWORD_MIN: usize = 12;
const PASSWORD_MAX_BYTES: usize = 256;

/// Length is what makes a password hard to guess; nothing else is asked of it but not to be the address.
pub fn check_password(password: &str, email: &str) -> Result<(), &'static str> {
    if password.chars().count() < PASSWORD_MIN {
        return Err("The password must have at least 12 characters.");
    }
    if password.len() > PASSWORD_MAX_BYTES {
        return Err("The password must have at most 256 bytes.");
    }
    if password.eq_ignore_ascii_case(email) {
        return Err("The password must not be the e-mail address.");
    }
    Ok(())
}

/// A password that nobody chose: 100 random bits in groups that can be typed.
pub fn random_password(ambient: &Ambient) -> Secret {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let letters: Vec<char> =
        ambient.bytes::<20>().iter().map(|b| char::from(LETTERS[usize::from(b % 32)])).collect();
    Secret::new(letters.chunks(5).map(|g| g.iter().collect::<String>()).collect::<Vec<_>>().join("-"))
}

/// A person who signs in with a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Account {
    pub id: LocalAccountId,
    pub email: String,
    pub name: String,
    /// Whether it was proved that the address is its owner's: they opened a link that was mailed there.
    pub email_verified: bool,
    pub must_change_password: bool,
    /// Of earlier versions, which locked accounts; no longer set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
}

impl Account {
    /// Who the account is, as the rest of the product knows people.
    pub fn identity(&self, issuer: &str) -> crate::authn::model::Identity {
        let email = Email::parse(self.email.clone()).ok();
        crate::authn::model::Identity::new(
            issuer,
            &self.id.to_string(),
            email,
            std::iter::once(self.name.clone()),
        )
    }
}

pub fn account_name(given: Option<Name>, email: &Email) -> String {
    let local = || email.as_str().split('@').next().unwrap_or_default().to_owned();
    given.map_or_else(local, Name::into_string)
}

/// The answers of RFC 6749 and RFC 8628 to a request that gets no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    InvalidRequest(&'static str),
    InvalidClient(&'static str),
    InvalidGrant(&'static str),
    UnsupportedGrantType,
    AuthorizationPending,
    SlowDown,
    ExpiredToken,
    AccessDenied,
}

impl Refusal {
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidRequest(_) => "invalid_request",
            Self::InvalidClient(_) => "invalid_client",
            Self::InvalidGrant(_) => "invalid_grant",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::ExpiredToken => "expired_token",
            Self::AccessDenied => "access_denied",
        }
    }

    pub const fn description(self) -> &'static str {
        match self {
            Self::InvalidRequest(text) | Self::InvalidClient(text) | Self::InvalidGrant(text) => text,
            Self::UnsupportedGrantType => "This grant type is not supported.",
            Self::AuthorizationPending => "The code has not been approved yet.",
            Self::SlowDown => "Poll less often: increase the interval by five seconds.",
            Self::ExpiredToken => "The code has expired; start again.",
            Self::AccessDenied => "The sign-in was denied.",
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
