//! Service accounts and their keys.
//!
//! A key in the form people handle is `gpuaas_sak_<id>_<secret>`: the id finds the row, and the secret's
//! SHA-256 (32 random bytes need no slow hash) is what the row holds.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use kernel::{
    Code, Problem, Role, Secret,
    digest::sha256,
    ids::{ProjectId, ServiceAccountId, ServiceAccountKeyId},
    policy::Setting,
};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::ssh_key;

pub use events::identity::ServiceAccountState;

lifecycle::named_enum! {
    ServiceAccountKeyState = "service account key state" { Active = "active", Expired = "expired", Revoked = "revoked" }
}

lifecycle::named_enum! {
    /// What a service account may do in its project, from the least to the most.
    ServiceAccountRole = "service account role" {
        /// Read what a viewer of the project reads.
        Reader = "reader",
        /// Also launch, and operate what it launched.
        Launcher = "launcher",
    }
}

impl ServiceAccountRole {
    pub const fn role(self) -> Role {
        match self {
            Self::Reader => Role::ServiceAccountReader,
            Self::Launcher => Role::ServiceAccountLauncher,
        }
    }

    /// What an account may do whose role is stored as this text. One that this release does not know gives nothing.
    pub fn of_stored(stored: Option<&str>) -> Role {
        stored.and_then(|name| name.parse::<Self>().ok()).map_or(Role::ServiceAccount, Self::role)
    }
}

/// As many as a person may have by default.
const MOST_SSH_KEYS: usize = 20;

/// The keys of the machines that a service account launches, each once, in the form that is kept.
pub fn check_ssh_keys(given: &[String]) -> Result<Vec<String>, Problem> {
    const FIELD: &str = "ssh_public_keys";
    if given.len() > MOST_SSH_KEYS {
        return Err(Problem::field(FIELD, format!("must be at most {MOST_SSH_KEYS} keys")));
    }
    let mut keys = Vec::with_capacity(given.len());
    for text in given {
        let key = ssh_key::check_text(text).map_err(|message| Problem::field(FIELD, message))?.public_key;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServiceAccount {
    pub id: ServiceAccountId,
    pub project_id: ProjectId,
    pub name: String,
    /// Missing for an account from before there were roles, until somebody gives it one: it reads the project, its
    /// allocations and the catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<ServiceAccountRole>,
    /// Public keys that log in to the machines which the account launches.
    pub ssh_public_keys: Vec<String>,
    pub state: ServiceAccountState,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServiceAccountKey {
    pub id: ServiceAccountKeyId,
    pub service_account_id: ServiceAccountId,
    pub state: ServiceAccountKeyState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
}

/// What a key is worth at `now`.
pub fn key_state(
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> ServiceAccountKeyState {
    match (revoked_at, expires_at) {
        (Some(_), _) => ServiceAccountKeyState::Revoked,
        (None, Some(expires_at)) if expires_at <= now => ServiceAccountKeyState::Expired,
        _ => ServiceAccountKeyState::Active,
    }
}

/// May an account with `live` keys have one more?
pub fn another_key(live: i64, limit: Setting) -> Result<(), Problem> {
    if live < limit.get() {
        return Ok(());
    }
    Err(Problem::new(
        Code::QuotaExceeded,
        "The maximum number of active keys of the service account is reached.",
    )
    .detail("limit", limit.get())
    .suggest("Revoke a key that is no longer used."))
}

const KEY_PREFIX: &str = "gpuaas_sak_";

/// The key as it is shown once.
pub fn key_text(id: ServiceAccountKeyId, secret: &[u8; 32]) -> Secret {
    let secret = BASE64_URL_SAFE_NO_PAD.encode(secret);
    Secret::new(format!("{KEY_PREFIX}{}_{secret}", id.uuid().simple()))
}

/// The id and the hash of the secret in a presented key; nothing when it has another form.
pub fn key_parse(presented: &str) -> Option<(ServiceAccountKeyId, [u8; 32])> {
    let rest = presented.strip_prefix(KEY_PREFIX)?;
    let (id, secret) = rest.split_at_checked(32)?;
    let id = Uuid::try_parse(id).ok()?;
    let secret: [u8; 32] = BASE64_URL_SAFE_NO_PAD.decode(secret.strip_prefix('_')?).ok()?.try_into().ok()?;
    Some((ServiceAccountKeyId::from(id), key_hash(&secret)))
}

pub fn key_hash(secret: &[u8; 32]) -> [u8; 32] {
    sha256(secret)
}

#[cfg(test)]
mod tests {
    use kernel::policy::{PolicyKey as _, keys};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_shown_key_is_read_back(id in any::<u128>(), secret in any::<[u8; 32]>()) {
            let id = ServiceAccountKeyId::from(Uuid::from_u128(id));
            prop_assert_eq!(key_parse(key_text(id, &secret).expose()), Some((id, sha256(secret))));
        }

        #[test]
        fn other_text_is_not_a_key(text in "\\PC*") {
            prop_assert_eq!(key_parse(&text), None);
            prop_assert_eq!(key_parse(&format!("{KEY_PREFIX}{text}")), None);
        }
    }

    #[test]
    fn a_revoked_key_stays_revoked_after_it_expired() {
        let (now, later) = (DateTime::UNIX_EPOCH, DateTime::UNIX_EPOCH + chrono::TimeDelta::days(1));
        assert_eq!(key_state(None, None, now), ServiceAccountKeyState::Active);
        assert_eq!(key_state(Some(later), None, now), ServiceAccountKeyState::Active);
        assert_eq!(key_state(Some(now), None, now), ServiceAccountKeyState::Expired);
        assert_eq!(key_state(Some(now), Some(now), later), ServiceAccountKeyState::Revoked);
    }

    #[test]
    fn a_role_that_is_not_known_gives_what_none_gives() {
        for role in ServiceAccountRole::ALL {
            assert_eq!(ServiceAccountRole::of_stored(Some(role.name())), role.role());
        }
        for unknown in [None, Some("operator"), Some("")] {
            assert_eq!(ServiceAccountRole::of_stored(unknown), Role::ServiceAccount);
        }
    }

    #[test]
    fn keys_are_checked_and_kept_once() {
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let twice = [format!("{key} ci@host"), key.to_owned()];
        assert_eq!(check_ssh_keys(&twice).ok(), Some(vec![key.to_owned()]));
        assert!(check_ssh_keys(&["-----BEGIN OPENSSH PRIVATE KEY-----".to_owned()]).is_err());
        assert!(check_ssh_keys(&vec![key.to_owned(); MOST_SSH_KEYS]).is_ok());
        assert!(check_ssh_keys(&vec![key.to_owned(); MOST_SSH_KEYS + 1]).is_err());
    }

    #[test]
    fn an_account_has_as_many_live_keys_as_the_policy_says() {
        let limit = keys::KEYS_PER_SERVICE_ACCOUNT.read(&serde_json::json!(2));
        for (live, allowed) in [(0, true), (1, true), (2, false), (3, false)] {
            assert_eq!(another_key(live, limit).is_ok(), allowed, "{live}");
        }
    }
}
