//! What a token says, and what becomes of a newcomer.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Ambient,
    digest::sha256,
    text::{Email, Name, Slug},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `aud` is a string or a list of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    pub fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|a| a == wanted),
        }
    }
}

/// The claims that mean something to us. Others are ignored.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Claims {
    pub iss: String,
    pub sub: String,
    pub aud: Audience,
    #[serde(deserialize_with = "seconds")]
    pub exp: i64,
    #[serde(default, deserialize_with = "some_seconds")]
    pub nbf: Option<i64>,
    #[serde(default, deserialize_with = "some_seconds")]
    pub iat: Option<i64>,
    #[serde(default, deserialize_with = "some_seconds")]
    pub auth_time: Option<i64>,
    pub sid: Option<String>,
    pub azp: Option<String>,
    pub client_id: Option<String>,
    pub email: Option<String>,
    pub email_verified: Option<Value>,
    pub name: Option<String>,
    pub preferred_username: Option<String>,
    pub gpuaas_key: Option<String>,
    pub gpuaas_project: Option<String>,
}

/// Clocks of issuers and ours may differ by this much.
const LEEWAY: TimeDelta = TimeDelta::seconds(30);

impl Claims {
    /// When they expire, if they name somebody, come from `issuer`, are made for `audience`, and hold already.
    pub fn valid_until(&self, issuer: &str, audience: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let not_before = self.nbf.and_then(|at| DateTime::from_timestamp(at, 0));
        if self.iss != issuer || self.sub.is_empty() || !self.aud.contains(audience) {
            return None;
        }
        DateTime::from_timestamp(self.exp, 0).filter(|_| not_before.is_none_or(|at| at - LEEWAY <= now))
    }
}

/// JWT dates are numbers of seconds that may have a fraction.
fn seconds<'de, D: Deserializer<'de>>(d: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(d)?;
    let whole = number.as_i64().or_else(|| number.as_f64().map(|f| f.floor() as i64));
    whole.ok_or_else(|| serde::de::Error::custom("not a date"))
}

fn some_seconds<'de, D: Deserializer<'de>>(d: D) -> Result<Option<i64>, D::Error> {
    seconds(d).map(Some)
}

/// A token that passed every check it can be put to without the database.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    /// Signed by our own issuer.
    pub builtin: bool,
    pub claims: Claims,
    pub expires_at: DateTime<Utc>,
    /// The issuer's name for the session the token belongs to.
    pub sid: String,
    /// Names the session across issuers: what principals are cached by.
    pub session_key: [u8; 32],
}

impl Verified {
    pub fn new(builtin: bool, claims: Claims, expires_at: DateTime<Utc>) -> Self {
        let sid = session_name(&claims);
        let session_key = sha256(format!("{}\0{sid}", claims.iss));
        Self { builtin, claims, expires_at, sid, session_key }
    }

    pub fn is_expired(&self, now: DateTime<Utc>) -> bool {
        self.expires_at + LEEWAY <= now
    }

    /// Whether the issuer vouches for the address. Silence about it is not enough: an address that nobody verified
    /// proves nothing about its bearer.
    fn email_is_verified(&self) -> bool {
        match &self.claims.email_verified {
            Some(Value::Bool(verified)) => *verified,
            Some(Value::String(text)) => text == "true",
            _ => false,
        }
    }

    /// Whether the issuer says neither which session the token belongs to nor when its bearer signed in. Tokens of such
    /// an issuer are one session for each person and client: a refreshed token cannot be told from a new sign-in.
    pub fn is_unnamed(&self) -> bool {
        !self.builtin && sid(&self.claims).is_none() && self.claims.auth_time.is_none()
    }

    pub fn issued_at(&self) -> Option<DateTime<Utc>> {
        self.claims.iat.and_then(|at| DateTime::from_timestamp(at, 0))
    }

    pub fn identity(&self) -> Identity {
        let claims = &self.claims;
        let email =
            claims.email.clone().filter(|_| self.email_is_verified()).and_then(|e| Email::parse(e).ok());
        let names = [&claims.name, &claims.preferred_username].into_iter().flatten().cloned();
        Identity::new(&claims.iss, &claims.sub, email, names)
    }

    /// Whether another issuer than our own vouches that the bearer can be reached at `email`; addresses at the
    /// built-in issuer are what people typed.
    pub fn is_proven_to_be(&self, email: &Email) -> bool {
        let vouched = self.email_is_verified();
        let same =
            self.claims.email.as_ref().is_some_and(|claimed| claimed.eq_ignore_ascii_case(email.as_str()));
        !self.builtin && vouched && same
    }

    pub fn client(&self) -> Option<&str> {
        self.claims.azp.as_deref().or(self.claims.client_id.as_deref())
    }
}

fn sid(claims: &Claims) -> Option<&String> {
    claims.sid.as_ref().filter(|s| !s.is_empty() && s.len() <= 200)
}

/// The claim `sid`; issuers without it get a name made of who, since when they are signed in, and through which client.
/// When a token was made is no part of it: a refreshed token belongs to the same session.
fn session_name(claims: &Claims) -> String {
    if let Some(sid) = sid(claims) {
        return sid.clone();
    }
    let since = claims.auth_time;
    let through = claims.azp.as_deref().or(claims.client_id.as_deref()).unwrap_or_default();
    let digest = sha256(serde_json::json!([claims.sub, since, through]).to_string());
    format!("derived:{}", hex::encode(&digest[..16]))
}

/// Who an issuer says somebody is.
#[derive(Clone, Debug)]
pub struct Identity {
    pub issuer: String,
    pub subject: String,
    pub email: Option<Email>,
    pub name: Name,
}

impl Identity {
    pub fn new(
        issuer: &str,
        subject: &str,
        email: Option<Email>,
        names: impl Iterator<Item = String>,
    ) -> Self {
        let local = email.as_ref().map(|e| e.as_str().split('@').next().unwrap_or_default().to_owned());
        let name = names.chain(local).find_map(|n| Name::parse(n.trim()).ok());
        // "Somebody" always parses; the other arm keeps the function total without a panic.
        let name = name.or_else(|| Name::parse("Somebody").ok()).unwrap_or_else(|| unreachable!());
        Self { issuer: issuer.to_owned(), subject: subject.to_owned(), email, name }
    }

    /// A name for the personal organization that nobody else has.
    pub(crate) fn personal_slug(&self, ambient: &Ambient) -> String {
        let source = self.email.as_ref().map_or(self.name.as_str(), |e| e.as_str());
        let stem: String = source
            .split('@')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("-")
            .chars()
            .take(24)
            .collect();
        let suffix = hex::encode(ambient.bytes::<4>());
        let slug = format!("{}-{suffix}", stem.trim_matches('-'));
        Slug::parse(slug).map_or_else(|_| format!("personal-{suffix}"), Slug::into_string)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(extra: Value) -> Claims {
        let mut all = json!({ "iss": "i", "sub": "s", "aud": "a", "exp": 100 });
        for (key, value) in extra.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn claims_hold_for_their_issuer_audience_and_time_only() {
        let now = at(1000);
        let until = |extra: Value| claims(extra).valid_until("i", "a", now);
        assert_eq!(until(json!({})), Some(at(100)), "expiry is another question");
        assert_eq!(until(json!({ "aud": ["b", "a"] })), Some(at(100)));
        for foreign in
            [json!({ "iss": "j" }), json!({ "aud": "b" }), json!({ "aud": ["b"] }), json!({ "sub": "" })]
        {
            assert_eq!(until(foreign.clone()), None, "{foreign}");
        }
        assert_eq!(until(json!({ "nbf": 1030 })), Some(at(100)), "clocks may differ by half a minute");
        assert_eq!(until(json!({ "nbf": 1031 })), None);
        assert_eq!(until(json!({ "exp": i64::MAX })), None, "beyond the calendar");
    }

    #[test]
    fn a_token_expires_half_a_minute_after_it_says() {
        let verified = Verified::new(false, claims(json!({})), at(100));
        assert!(!verified.is_expired(at(129)) && verified.is_expired(at(130)));
        assert!(verified.is_expired(at(131)));
    }

    #[test]
    fn dates_are_whole_seconds_rounded_down() {
        let read = claims(json!({ "exp": 7.9, "nbf": -1.5, "iat": 3 }));
        assert_eq!((read.exp, read.nbf, read.iat, read.auth_time), (7, Some(-2), Some(3), None));
        let issued = |extra| Verified::new(false, claims(extra), at(100)).issued_at();
        assert_eq!((issued(json!({ "iat": 3 })), issued(json!({}))), (Some(at(3)), None));
        let odd =
            serde_json::from_value::<Claims>(json!({ "iss": "i", "sub": "s", "aud": "a", "exp": "soon" }));
        assert!(odd.is_err());
    }

    #[test]
    fn a_session_has_a_key_across_issuers_and_its_client() {
        let of = |builtin, extra| Verified::new(builtin, claims(extra), at(100));
        let named = of(false, json!({ "sid": "x", "azp": "cli", "client_id": "web" }));
        assert_eq!((named.sid.as_str(), named.client(), named.is_unnamed()), ("x", Some("cli"), false));
        assert_ne!(named.session_key, of(false, json!({ "sid": "x", "iss": "j" })).session_key);
        assert_eq!(named.session_key, of(false, json!({ "sid": "x" })).session_key);
        let by_client = of(false, json!({ "client_id": "web" }));
        assert_eq!((by_client.client(), by_client.is_unnamed()), (Some("web"), true));
        assert!(!of(true, json!({})).is_unnamed(), "the built-in issuer names its sessions");
        assert!(!of(false, json!({ "auth_time": 5 })).is_unnamed());
        // What is no name is as good as none.
        for odd in ["".to_owned(), "x".repeat(201)] {
            assert!(of(false, json!({ "sid": odd })).is_unnamed());
        }
        assert!(!of(false, json!({ "sid": "x".repeat(200) })).is_unnamed());
    }

    #[test]
    fn somebody_is_named_by_the_first_name_that_can_be_one() {
        let named = |extra| Verified::new(false, claims(extra), at(100)).identity();
        let both = named(json!({ "name": " Ann ", "preferred_username": "ann1" }));
        assert_eq!((both.issuer.as_str(), both.subject.as_str(), both.name.as_str()), ("i", "s", "Ann"));
        assert_eq!(named(json!({ "name": " ", "preferred_username": "ann1" })).name.as_str(), "ann1");
        let by_address = json!({ "email": "ann@example.org", "email_verified": true });
        assert_eq!(named(by_address).name.as_str(), "ann");
        assert_eq!(named(json!({})).name.as_str(), "Somebody");
    }

    #[test]
    fn a_session_is_named_by_sid_or_by_who_since_when_and_through_what() {
        assert_eq!(session_name(&claims(json!({ "sid": "x" }))), "x");
        let derived = |extra| session_name(&claims(extra));
        let base = derived(json!({ "auth_time": 5, "iat": 7, "azp": "cli" }));
        assert_eq!(
            base,
            derived(json!({ "auth_time": 5.5, "iat": 9, "azp": "cli" })),
            "refreshed tokens share it"
        );
        assert_ne!(base, derived(json!({ "auth_time": 6, "azp": "cli" })));
        let unnamed = derived(json!({ "iat": 7, "azp": "cli" }));
        assert_eq!(unnamed, derived(json!({ "iat": 9, "azp": "cli" })), "also where nothing says since when");
        assert_ne!(unnamed, derived(json!({ "iat": 7, "azp": "web" })));
        assert_ne!(base, derived(json!({ "auth_time": 5, "azp": "web" })));
    }

    #[test]
    fn an_unverified_address_is_not_believed() {
        let seen = |verified: Value| {
            let claims = claims(json!({ "email": "ann@example.org", "email_verified": verified }));
            Verified::new(false, claims, DateTime::UNIX_EPOCH).identity().email.is_some()
        };
        assert!(seen(json!(true)) && seen(json!("true")));
        assert!(!seen(json!(false)) && !seen(json!("false")) && !seen(json!(null)));
        let silent = claims(json!({ "email": "ann@example.org" }));
        assert!(Verified::new(false, silent, DateTime::UNIX_EPOCH).identity().email.is_none());
    }

    #[test]
    fn an_address_is_proven_only_when_another_issuer_vouches_for_it() {
        let ann = Email::parse("ann@example.org").unwrap();
        let proven = |builtin, extra| {
            Verified::new(builtin, claims(extra), DateTime::UNIX_EPOCH).is_proven_to_be(&ann)
        };
        let vouched = json!({ "email": "Ann@example.org", "email_verified": true });
        assert!(proven(false, vouched.clone()));
        assert!(!proven(true, vouched), "the built-in issuer sends no mail");
        assert!(!proven(false, json!({ "email": "ann@example.org" })), "nothing is said about it");
        assert!(!proven(false, json!({ "email": "bob@example.org", "email_verified": true })));
        assert!(!proven(false, json!({ "email_verified": true })));
        for unverified in [json!(false), json!("false"), json!(1), json!(null)] {
            assert!(!proven(false, json!({ "email": "ann@example.org", "email_verified": unverified })));
        }
    }

    #[test]
    fn personal_slugs_are_slugs_whatever_the_name() {
        let ambient = Ambient::system();
        for name in ["Ann Lee", "Ünïcode", "--", "x".repeat(80).as_str(), "漢字"] {
            let identity = Identity::new("i", "s", None, [name.to_owned()].into_iter());
            let slug = identity.personal_slug(&ambient);
            assert!(Slug::parse(slug.clone()).is_ok(), "{slug}");
        }
        let email = Email::parse("first.last+tag@example.org").ok();
        let slug = Identity::new("i", "s", email, std::iter::empty()).personal_slug(&ambient);
        assert!(slug.starts_with("first-last-tag-"), "{slug}");
    }
}
