//! Typed policy keys. A threshold in the product is one of these, never a literal: the functions that
//! enforce a limit take the [`Setting`] that was resolved for the caller's scope.
//!
//! A key carries the type of its values: an [`IntegerKey`] is read as a [`Setting`], a [`BooleanKey`] as a `bool`, a
//! [`ChoiceKey`] as its enum. Reading one as another does not compile:
//!
//! ```compile_fail,E0308
//! use kernel::policy::{PolicyKey as _, keys};
//! let enabled: bool = keys::QUOTA_GPUS_PER_ORG.default_setting();
//! ```

use lifecycle::Named;
use serde_json::{Value, json};

mod choices;

pub use choices::{IsolationModel, Packing, SshWithoutRecording, TerminalRecording};

/// What a policy value may be, and what it is when nobody set it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Integer { min: i64, max: i64, default: i64 },
    Boolean { default: bool },
    Choice { choices: &'static [&'static str], default: &'static str },
}

/// In which direction a narrower scope may move a `narrow_only` value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrowing {
    /// Any value within the bounds.
    Free,
    /// Integers may only become smaller; choices may only move to the right in the list.
    OnlyStricter,
}

/// What is known of a key without its type: enough to list it, to check a value and to resolve which one holds.
#[derive(Debug)]
pub struct Definition {
    pub key: &'static str,
    pub kind: Kind,
    pub narrowing: Narrowing,
    pub purpose: &'static str,
}

impl Definition {
    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Integer { default, .. } => json!(default),
            Kind::Boolean { default } => json!(default),
            Kind::Choice { default, .. } => json!(default),
        }
    }

    /// Is `value` of the right type and within the bounds?
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let ok = match self.kind {
            Kind::Integer { min, max, .. } => value.as_i64().is_some_and(|v| (min..=max).contains(&v)),
            Kind::Boolean { .. } => value.is_boolean(),
            Kind::Choice { choices, .. } => value.as_str().is_some_and(|v| choices.contains(&v)),
        };
        if ok { Ok(()) } else { Err(format!("{} takes {}", self.key, self.describe())) }
    }

    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Integer { min, max, .. } => format!("an integer from {min} to {max}"),
            Kind::Boolean { .. } => "true or false".to_owned(),
            Kind::Choice { choices, .. } => format!("one of {}", choices.join(", ")),
        }
    }

    /// May a narrower scope say `inner` when a wider one says `outer`?
    pub fn may_narrow(&self, outer: &Value, inner: &Value) -> bool {
        if self.narrowing == Narrowing::Free {
            return true;
        }
        match self.kind {
            Kind::Integer { .. } => inner.as_i64() <= outer.as_i64(),
            Kind::Boolean { .. } => outer.as_bool() == Some(true) || inner.as_bool() == Some(false),
            Kind::Choice { choices, .. } => {
                let place = |v: &Value| v.as_str().and_then(|v| choices.iter().position(|c| *c == v));
                place(inner) >= place(outer)
            }
        }
    }
}

/// A key with the type that its values are read as.
pub trait PolicyKey: Copy + Send + Sync + 'static {
    type Setting: Copy + Send;

    fn definition(self) -> &'static Definition;
    fn default_setting(self) -> Self::Setting;
    /// Reads a stored value; anything that the key does not take falls back to the default.
    fn read(self, value: &Value) -> Self::Setting;
}

/// A resolved threshold. It can only come from an [`IntegerKey`], so a literal cannot take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting(i64);

impl Setting {
    pub const fn get(self) -> i64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug)]
pub struct IntegerKey {
    definition: &'static Definition,
    default: i64,
}

impl PolicyKey for IntegerKey {
    type Setting = Setting;

    fn definition(self) -> &'static Definition {
        self.definition
    }

    fn default_setting(self) -> Setting {
        Setting(self.default)
    }

    fn read(self, value: &Value) -> Setting {
        let within = value.as_i64().filter(|_| self.definition.check(value).is_ok());
        Setting(within.unwrap_or(self.default))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct BooleanKey {
    definition: &'static Definition,
    default: bool,
}

impl PolicyKey for BooleanKey {
    type Setting = bool;

    fn definition(self) -> &'static Definition {
        self.definition
    }

    fn default_setting(self) -> bool {
        self.default
    }

    fn read(self, value: &Value) -> bool {
        value.as_bool().unwrap_or(self.default)
    }
}

/// A key whose values are the names of an enum, from the least strict to the strictest where that matters.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceKey<E> {
    definition: &'static Definition,
    default: E,
}

impl<E: Named + Send + Sync> PolicyKey for ChoiceKey<E> {
    type Setting = E;

    fn definition(self) -> &'static Definition {
        self.definition
    }

    fn default_setting(self) -> E {
        self.default
    }

    fn read(self, value: &Value) -> E {
        let named = value.as_str().and_then(|name| lifecycle::name_parse(name).ok());
        named.unwrap_or(self.default)
    }
}

/// "No limit" for quotas, as a number that no fleet reaches.
pub const UNLIMITED: i64 = 1_000_000_000;

macro_rules! key_type {
    (integer $values:tt) => { IntegerKey };
    (boolean $values:tt) => { BooleanKey };
    (choice ($choices:ident::$default:ident)) => { ChoiceKey<$choices> };
}

macro_rules! key_kind {
    (integer ($min:expr, $max:expr, $default:expr)) => {
        Kind::Integer { min: $min, max: $max, default: $default }
    };
    (boolean ($default:expr)) => {
        Kind::Boolean { default: $default }
    };
    (choice ($choices:ident::$default:ident)) => {
        Kind::Choice { choices: <$choices as Named>::NAMES, default: $choices::$default.name() }
    };
}

macro_rules! key_value {
    (integer ($min:expr, $max:expr, $default:expr), $definition:expr) => {
        IntegerKey { definition: $definition, default: $default }
    };
    (boolean ($default:expr), $definition:expr) => {
        BooleanKey { definition: $definition, default: $default }
    };
    (choice ($choices:ident::$default:ident), $definition:expr) => {
        ChoiceKey { definition: $definition, default: $choices::$default }
    };
}

/// `integer(smallest, largest, default)`, `boolean(default)` or `choice(Enum::Default)`.
macro_rules! definitions {
    ($($name:ident = $key:literal, $form:ident $values:tt, $narrowing:ident, $purpose:literal;)*) => {
        pub mod keys {
            use super::*;
            $(pub const $name: key_type!($form $values) = {
                static DEFINITION: Definition = Definition {
                    key: $key,
                    kind: key_kind!($form $values),
                    narrowing: Narrowing::$narrowing,
                    purpose: $purpose,
                };
                key_value!($form $values, &DEFINITION)
            };)*
        }
        pub static ALL: &[&Definition] = &[$(keys::$name.definition),*];
    };
}

definitions! {
    BILLING_WINDOW_SECONDS = "billing.window_seconds", integer(10, 3600, 60), Free, "Length of one metering window.";
    BILLING_LOW_BALANCE_THRESHOLD_MINOR = "billing.low_balance_threshold_minor", integer(0, UNLIMITED, 500), Free, "Balance below which the organization is warned.";
    BILLING_MINIMUM_DEPOSIT_MINOR = "billing.minimum_deposit_minor", integer(1, UNLIMITED, 1000), Free, "Smallest top-up.";
    BILLING_MAXIMUM_DEPOSIT_MINOR = "billing.maximum_deposit_minor", integer(1, UNLIMITED, 100_000), Free, "Largest top-up.";
    BILLING_LAUNCH_HOLD_SECONDS = "billing.launch_hold_seconds", integer(0, 86_400, 3600), Free, "Running time that the balance must cover for a launch.";
    BILLING_CLOCK_SKEW_SECONDS = "billing.clock_skew_seconds", integer(1, 3600, 30), Free, "Clock skew between a process and the database above which the process does not accrue.";
    BILLING_ADJUSTMENT_APPROVAL_MINOR = "billing.adjustment_approval_minor", integer(0, UNLIMITED, 100_000), Free, "Adjustments of the ledger above this amount need the approval of a second administrator.";
    BILLING_CREDIT_APPROVAL_MINOR = "billing.credit_approval_minor", integer(0, UNLIMITED, 10_000), Free, "Credits for faulty hardware above this amount need the approval of an administrator.";
    ALLOCATION_MAX_CONCURRENT_PER_USER = "allocation.max_concurrent_per_user", integer(0, UNLIMITED, 50), OnlyStricter, "Live allocations of one user.";
    ALLOCATION_REFUND_WINDOW_DAYS = "allocation.refund_window_days", integer(0, 365, 30), Free, "Days within which a payment can be refunded to the card.";
    ALLOCATION_ISOLATION_MODEL = "allocation.isolation_model", choice(IsolationModel::UserRevoke), OnlyStricter, "How a machine is cleaned between tenants, and whether tenants get root.";
    RATE_API = "rate_limit.api_requests_per_minute", integer(1, 10_000_000, 120), Free, "Ordinary API requests of one principal per minute.";
    RATE_FINANCIAL = "rate_limit.financial_requests_per_minute", integer(1, 10_000_000, 30), Free, "Requests of one principal per minute that move money.";
    RATE_ADMIN = "rate_limit.admin_overview_requests_per_minute", integer(1, 10_000_000, 600), Free, "Platform requests of one principal per minute.";
    RATE_TERMINAL_TOKEN = "rate_limit.terminal_token_requests_per_minute", integer(1, 10_000_000, 10), Free, "Terminal tokens that one principal may mint.";
    RATE_SSH_TOKEN = "rate_limit.ssh_token_requests_per_minute", integer(1, 10_000_000, 120), Free, "SSH connections that one principal may open through the gateway.";
    RATE_WEBSOCKET = "rate_limit.websocket_attempts_per_minute", integer(1, 10_000_000, 600), Free, "WebSockets that clients of one network address may ask for, with whatever token.";
    TERMINAL_SESSION_MAX_TTL_SECONDS = "terminal.session_max_ttl_seconds", integer(60, 604_800, 14_400), OnlyStricter, "Longest terminal session.";
    TERMINAL_IDLE_SECONDS = "terminal.idle_seconds", integer(60, 604_800, 3600), OnlyStricter, "Time without input and output after which a terminal session ends.";
    TERMINAL_SESSIONS_PER_ALLOCATION = "terminal.sessions_per_allocation", integer(1, 64, 16), OnlyStricter, "Open terminal sessions of one allocation.";
    TERMINAL_RECORDING = "terminal.recording", choice(TerminalRecording::Output), OnlyStricter, "What is recorded of a terminal session.";
    TERMINAL_RECORDING_RETENTION_DAYS = "terminal.recording_retention_days", integer(1, 3650, 90), OnlyStricter, "Days for which recordings of terminal sessions are kept.";
    SSH_SESSION_MAX_TTL_SECONDS = "ssh.session_max_ttl_seconds", integer(10, 604_800, 43_200), OnlyStricter, "Longest SSH connection through a gateway.";
    SSH_WHEN_RECORDING_REQUIRED = "ssh.when_recording_required", choice(SshWithoutRecording::Allow), OnlyStricter, "Whether SSH, which is not recorded, is allowed through a gateway where terminal.recording is not off.";
    NOTIFY_LOW_BALANCE = "notification.low_balance_enabled", boolean(true), Free, "Notify people about a low balance.";
    NOTIFY_BALANCE_DEPLETED = "notification.balance_depleted_enabled", boolean(true), Free, "Notify people about a depleted balance.";
    NOTIFY_QUEUED_WEBHOOK_MESSAGES = "notification.queued_webhook_messages", integer(1, 1_000_000, 10_000), OnlyStricter, "Queued webhook messages of one organization; further events are dropped and counted.";
    QUOTA_GPUS_PER_PROJECT = "quota.gpus_per_project", integer(0, UNLIMITED, UNLIMITED), OnlyStricter, "GPUs in live allocations of one project.";
    QUOTA_GPUS_PER_ORG = "quota.gpus_per_org", integer(0, UNLIMITED, UNLIMITED), OnlyStricter, "GPUs in live allocations of one organization.";
    IDEMPOTENCY_RETENTION_DAYS = "api.idempotency_retention_days", integer(1, 90, 7), Free, "Days for which an idempotency key is stored: a retry gets the stored response.";
    INVITATION_TTL_DAYS = "identity.invitation_ttl_days", integer(1, 90, 7), Free, "Days after which an invitation expires.";
    INVITATIONS_PER_DAY = "identity.invitations_per_day", integer(0, 1_000_000, 200), OnlyStricter, "Invitations of one organization within 24 hours.";
    INVITATIONS_PER_ADDRESS_PER_DAY = "identity.invitations_per_address_per_day", integer(1, 100, 3), OnlyStricter, "Invitations of one organization to one address within 24 hours.";
    SSH_KEYS_PER_USER = "identity.ssh_keys_per_user", integer(1, 1000, 50), Free, "SSH public keys of one user.";
    KEYS_PER_SERVICE_ACCOUNT = "identity.keys_per_service_account", integer(1, 100, 5), Free, "Active keys of one service account; more than one allows rotation with overlap.";
    SIGN_IN_ATTEMPTS = "identity.sign_in_attempts", integer(1, 1000, 5), Free, "Wrong passwords for one account from one address before the address is locked out of the account.";
    SIGN_IN_ATTEMPTS_PER_ADDRESS = "identity.sign_in_attempts_per_address", integer(1, 1_000_000, 50), Free, "Wrong passwords from one address within identity.sign_in_lock_seconds before the address is locked out.";
    REFUSALS_AUDITED_PER_MINUTE = "identity.refusals_audited_per_minute", integer(1, 100_000, 60), Free, "Refused sign-ins and service account keys of unauthenticated clients that are audited per minute, in total.";
    UNNAMED_SESSION_QUIET_HOURS = "identity.unnamed_session_quiet_hours", integer(1, 720, 24), Free, "For issuers that send neither sid nor auth_time: hours without a token of a revoked session after which the next token counts as a new sign-in.";
    FLEET_HEARTBEAT_SECONDS = "fleet.heartbeat_seconds", integer(1, 300, 10), Free, "Interval of a node's heartbeats.";
    FLEET_HEARTBEATS_PER_MINUTE = "fleet.heartbeats_per_minute", integer(60, 10_000, 120), Free, "Reports of one node that a gateway accepts per minute.";
    FLEET_LOG_BATCHES_PER_MINUTE = "fleet.log_batches_per_minute", integer(1, 10_000, 120), Free, "Batches of log lines of one node that a gateway accepts per minute.";
    FLEET_FINDING_BACKDATE_SECONDS = "fleet.finding_backdate_seconds", integer(0, 600, 300), Free, "Maximum time between the start of a health finding and the previous report of its node.";
    FLEET_OFFLINE_AFTER_HEARTBEATS = "fleet.offline_after_heartbeats", integer(2, 100, 3), Free, "Missed heartbeats after which a node counts as offline.";
    FLEET_BOOTSTRAP_TTL_SECONDS = "fleet.bootstrap_ttl_seconds", integer(30, 900, 900), Free, "Lifetime of a bootstrap or repair token of a node.";
    FLEET_CERTIFICATE_HOURS = "fleet.certificate_hours", integer(1, 168, 24), Free, "Lifetime of a node's certificate.";
    FLEET_TASK_LEASE_SECONDS = "fleet.task_lease_seconds", integer(5, 600, 30), Free, "Time within which a node must report that it started a leased task.";
    FLEET_LOG_LINES_PER_NODE = "fleet.log_lines_per_node", integer(100, 100_000, 2000), Free, "Stored log lines of one node.";
    CAPACITY_PLACEMENT = "capacity.placement", choice(Packing::Pack), Free, "Whether placement packs slices on few nodes or spreads them.";
    CAPACITY_TASK_SECONDS = "capacity.task_seconds", integer(1, 86_400, 300), Free, "Timeout of a node task in a launch or release.";
    CAPACITY_REIMAGE_SECONDS = "capacity.reimage_seconds", integer(1, 86_400, 3600), Free, "Timeout of reinstalling a machine.";
    SIGN_IN_LOCK_SECONDS = "identity.sign_in_lock_seconds", integer(1, 86_400, 900), Free, "Lockout of an address after too many wrong passwords.";
}

pub fn find(key: &str) -> Option<&'static Definition> {
    ALL.iter().copied().find(|d| d.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_own_bounds_and_keys_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for definition in ALL {
            assert_eq!(definition.check(&definition.default_value()), Ok(()), "{}", definition.key);
            assert!(seen.insert(definition.key));
        }
    }

    #[test]
    fn narrow_only_keys_refuse_to_be_widened() {
        let quota = keys::QUOTA_GPUS_PER_ORG.definition();
        assert!(quota.may_narrow(&json!(8), &json!(4)));
        assert!(!quota.may_narrow(&json!(8), &json!(16)));
        let recording = keys::TERMINAL_RECORDING.definition();
        assert!(recording.may_narrow(&json!("output"), &json!("output_and_input")));
        assert!(!recording.may_narrow(&json!("output"), &json!("off")));
        assert!(keys::BILLING_WINDOW_SECONDS.definition().may_narrow(&json!(10), &json!(60)));
    }

    /// The default of the typed key, of the definition and what is read of it are one.
    fn assert_default<K: PolicyKey<Setting: PartialEq + std::fmt::Debug>>(key: K) {
        let definition = key.definition();
        assert_eq!(key.read(&definition.default_value()), key.default_setting(), "{}", definition.key);
        for unfit in [json!(null), json!(-1), json!("unheard-of"), json!([true])] {
            assert!(definition.check(&unfit).is_err());
            assert_eq!(key.read(&unfit), key.default_setting(), "{} given {unfit}", definition.key);
        }
    }

    #[test]
    fn what_a_key_does_not_take_is_read_as_its_default() {
        assert_default(keys::BILLING_WINDOW_SECONDS);
        assert_default(keys::NOTIFY_LOW_BALANCE);
        assert_default(keys::ALLOCATION_ISOLATION_MODEL);
        assert_default(keys::CAPACITY_PLACEMENT);
        assert_default(keys::TERMINAL_RECORDING);
        assert_default(keys::SSH_WHEN_RECORDING_REQUIRED);
        assert_eq!(keys::BILLING_WINDOW_SECONDS.read(&json!(9)).get(), 60, "out of bounds");
    }

    #[test]
    fn a_value_is_read_as_the_type_of_its_key() {
        assert_eq!(keys::BILLING_WINDOW_SECONDS.read(&json!(10)).get(), 10);
        assert!(!keys::NOTIFY_LOW_BALANCE.read(&json!(false)));
        assert_eq!(
            keys::ALLOCATION_ISOLATION_MODEL.read(&json!("full-reimage")),
            IsolationModel::FullReimage
        );
    }
}
