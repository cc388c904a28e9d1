//! Typed policy keys. A threshold in the product is one of these, never a literal: the functions that
//! enforce a limit take the [`Setting`] that was resolved for the caller's scope.

use serde_json::{Value, json};

/// What a policy value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Integer { min: i64, max: i64 },
    Boolean,
    Choice(&'static [&'static str]),
}

/// In which direction a narrower scope may move a `narrow_only` value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrowing {
    /// Any value within the bounds.
    Free,
    /// Integers may only become smaller; choices may only move to the right in the list.
    OnlyStricter,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    Integer(i64),
    Boolean(bool),
    Choice(&'static str),
}

#[derive(Debug)]
pub struct Definition {
    pub key: &'static str,
    pub kind: Kind,
    pub default: Default,
    pub narrowing: Narrowing,
    pub purpose: &'static str,
}

impl Definition {
    pub fn default_value(&self) -> Value {
        match self.default {
            Default::Integer(v) => json!(v),
            Default::Boolean(v) => json!(v),
            Default::Choice(v) => json!(v),
        }
    }

    /// Is `value` of the right type and within the bounds?
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let ok = match self.kind {
            Kind::Integer { min, max } => value.as_i64().is_some_and(|v| (min..=max).contains(&v)),
            Kind::Boolean => value.is_boolean(),
            Kind::Choice(choices) => value.as_str().is_some_and(|v| choices.contains(&v)),
        };
        if ok { Ok(()) } else { Err(format!("{} takes {}", self.key, self.describe())) }
    }

    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Boolean => "true or false".to_owned(),
            Kind::Choice(choices) => format!("one of {}", choices.join(", ")),
        }
    }

    /// May a narrower scope say `inner` when a wider one says `outer`?
    pub fn may_narrow(&self, outer: &Value, inner: &Value) -> bool {
        if self.narrowing == Narrowing::Free {
            return true;
        }
        match self.kind {
            Kind::Integer { .. } => inner.as_i64() <= outer.as_i64(),
            Kind::Boolean => outer.as_bool() == Some(true) || inner.as_bool() == Some(false),
            Kind::Choice(choices) => {
                let place = |v: &Value| v.as_str().and_then(|v| choices.iter().position(|c| *c == v));
                place(inner) >= place(outer)
            }
        }
    }
}

/// An integer policy key: the only thing that can be resolved to an integer [`Setting`].
#[derive(Clone, Copy, Debug)]
pub struct IntegerKey(pub &'static Definition);

/// A resolved threshold. It can only come from a policy key, so a literal cannot take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting(i64);

impl IntegerKey {
    pub fn default_setting(self) -> Setting {
        match self.0.default {
            Default::Integer(v) => Setting(v),
            _ => Setting(0),
        }
    }

    /// Reads a stored value; anything that does not fit falls back to the default.
    pub fn read(self, value: &Value) -> Setting {
        match (self.0.check(value), value.as_i64()) {
            (Ok(()), Some(v)) => Setting(v),
            _ => self.default_setting(),
        }
    }
}

impl Setting {
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// "No limit" for quotas, as a number that no fleet reaches.
pub const UNLIMITED: i64 = 1_000_000_000;

macro_rules! definitions {
    ($($name:ident: $key:literal, $kind:expr, $default:expr, $narrowing:ident, $purpose:literal;)*) => {
        pub mod keys {
            use super::*;
            $(pub static $name: Definition =
                Definition { key: $key, kind: $kind, default: $default, narrowing: Narrowing::$narrowing, purpose: $purpose };)*
        }
        pub static ALL: &[&Definition] = &[$(&keys::$name),*];
    };
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Integer { min, max }
}

definitions! {
    BILLING_WINDOW_SECONDS: "billing.window_seconds", int(10, 3600), Default::Integer(60), Free, "Length of one metering window.";
    BILLING_LOW_BALANCE_THRESHOLD_MINOR: "billing.low_balance_threshold_minor", int(0, UNLIMITED), Default::Integer(500), Free, "Balance below which people are warned.";
    BILLING_MINIMUM_DEPOSIT_MINOR: "billing.minimum_deposit_minor", int(1, UNLIMITED), Default::Integer(1000), Free, "Smallest top-up.";
    BILLING_MAXIMUM_DEPOSIT_MINOR: "billing.maximum_deposit_minor", int(1, UNLIMITED), Default::Integer(100_000), Free, "Largest top-up.";
    BILLING_LAUNCH_HOLD_SECONDS: "billing.launch_hold_seconds", int(0, 86_400), Default::Integer(3600), Free, "Running time that the balance must cover before a launch.";
    BILLING_CLOCK_SKEW_SECONDS: "billing.clock_skew_seconds", int(1, 3600), Default::Integer(30), Free, "Difference between the clocks of a process and of the database above which the process does not accrue.";
    BILLING_ADJUSTMENT_APPROVAL_MINOR: "billing.adjustment_approval_minor", int(0, UNLIMITED), Default::Integer(100_000), Free, "Adjustments of the ledger above this need a second administrator.";
    BILLING_CREDIT_APPROVAL_MINOR: "billing.credit_approval_minor", int(0, UNLIMITED), Default::Integer(10_000), Free, "Credits for faulty hardware above this wait for an administrator.";
    ALLOCATION_MAX_CONCURRENT_PER_USER: "allocation.max_concurrent_per_user", int(0, UNLIMITED), Default::Integer(50), OnlyStricter, "Allocations one person may hold at once.";
    ALLOCATION_REFUND_WINDOW_DAYS: "allocation.refund_window_days", int(0, 365), Default::Integer(30), Free, "Days within which a payment can go back to the card.";
    ALLOCATION_ISOLATION_MODEL: "allocation.isolation_model", Kind::Choice(&["user-revoke", "full-reimage"]), Default::Choice("user-revoke"), OnlyStricter, "How a machine is cleaned between tenants.";
    RATE_API: "rate_limit.api_requests_per_minute", int(1, 10_000_000), Default::Integer(120), Free, "Ordinary API requests of one principal.";
    RATE_FINANCIAL: "rate_limit.financial_requests_per_minute", int(1, 10_000_000), Default::Integer(30), Free, "Requests of one principal that move money.";
    RATE_ADMIN: "rate_limit.admin_overview_requests_per_minute", int(1, 10_000_000), Default::Integer(600), Free, "Platform requests of one principal.";
    RATE_TERMINAL_TOKEN: "rate_limit.terminal_token_requests_per_minute", int(1, 10_000_000), Default::Integer(10), Free, "Terminal tokens that one principal may mint.";
    TERMINAL_SESSION_MAX_TTL_SECONDS: "terminal.session_max_ttl_seconds", int(60, 604_800), Default::Integer(14_400), OnlyStricter, "Longest terminal session.";
    TERMINAL_RECORDING: "terminal.recording", Kind::Choice(&["off", "output", "output_and_input"]), Default::Choice("output"), OnlyStricter, "What is recorded of a terminal session.";
    NOTIFY_LOW_BALANCE: "notification.low_balance_enabled", Kind::Boolean, Default::Boolean(true), Free, "Tell people about a low balance.";
    NOTIFY_BALANCE_DEPLETED: "notification.balance_depleted_enabled", Kind::Boolean, Default::Boolean(true), Free, "Tell people about a depleted balance.";
    NOTIFY_QUEUED_WEBHOOK_MESSAGES: "notification.queued_webhook_messages", int(1, 1_000_000), Default::Integer(10_000), OnlyStricter, "Messages to webhooks of one organization that may wait; events beyond that are dropped and counted.";
    QUOTA_GPUS_PER_PROJECT: "quota.gpus_per_project", int(0, UNLIMITED), Default::Integer(UNLIMITED), OnlyStricter, "GPUs that one project may hold.";
    QUOTA_GPUS_PER_ORG: "quota.gpus_per_org", int(0, UNLIMITED), Default::Integer(UNLIMITED), OnlyStricter, "GPUs that one organization may hold.";
    IDEMPOTENCY_RETENTION_DAYS: "api.idempotency_retention_days", int(1, 90), Default::Integer(7), Free, "Days for which a repeated request gets its first answer.";
    INVITATION_TTL_DAYS: "identity.invitation_ttl_days", int(1, 90), Default::Integer(7), Free, "Days after which an invitation expires.";
    INVITATIONS_PER_DAY: "identity.invitations_per_day", int(0, 1_000_000), Default::Integer(200), OnlyStricter, "People whom one organization may invite within 24 hours.";
    INVITATIONS_PER_ADDRESS_PER_DAY: "identity.invitations_per_address_per_day", int(1, 100), Default::Integer(3), OnlyStricter, "Invitations of one organization to one address within 24 hours.";
    SSH_KEYS_PER_USER: "identity.ssh_keys_per_user", int(1, 1000), Default::Integer(50), Free, "SSH public keys that one person may store.";
    KEYS_PER_SERVICE_ACCOUNT: "identity.keys_per_service_account", int(1, 100), Default::Integer(5), Free, "Live keys that one service account may have, so that they can be rotated with overlap.";
    SIGN_IN_ATTEMPTS: "identity.sign_in_attempts", int(1, 1000), Default::Integer(5), Free, "Wrong passwords at one account from one address before that address has to wait.";
    SIGN_IN_ATTEMPTS_PER_ADDRESS: "identity.sign_in_attempts_per_address", int(1, 1_000_000), Default::Integer(50), Free, "Wrong passwords from one address within identity.sign_in_lock_seconds before it has to wait.";
    REFUSALS_AUDITED_PER_MINUTE: "identity.refusals_audited_per_minute", int(1, 100_000), Default::Integer(60), Free, "Refused sign-ins and service-account keys of strangers that are audited in a minute, in all.";
    UNNAMED_SESSION_QUIET_HOURS: "identity.unnamed_session_quiet_hours", int(1, 720), Default::Integer(24), Free, "After a session was revoked whose issuer sends neither sid nor auth_time: hours without a token of it after which one is taken for a new sign-in.";
    FLEET_HEARTBEAT_SECONDS: "fleet.heartbeat_seconds", int(1, 300), Default::Integer(10), Free, "How often a node reports.";
    FLEET_HEARTBEATS_PER_MINUTE: "fleet.heartbeats_per_minute", int(60, 10_000), Default::Integer(120), Free, "Reports of one node that a gateway takes in a minute.";
    FLEET_LOG_BATCHES_PER_MINUTE: "fleet.log_batches_per_minute", int(1, 10_000), Default::Integer(120), Free, "Batches of log lines of one node that a gateway takes in a minute.";
    FLEET_FINDING_BACKDATE_SECONDS: "fleet.finding_backdate_seconds", int(0, 600), Default::Integer(300), Free, "How long before the previous report of its node a health finding may have begun.";
    FLEET_OFFLINE_AFTER_HEARTBEATS: "fleet.offline_after_heartbeats", int(2, 100), Default::Integer(3), Free, "Missed reports after which a node counts as offline.";
    FLEET_BOOTSTRAP_TTL_SECONDS: "fleet.bootstrap_ttl_seconds", int(30, 900), Default::Integer(900), Free, "How long a bootstrap or repair token of a node can be used.";
    FLEET_CERTIFICATE_HOURS: "fleet.certificate_hours", int(1, 168), Default::Integer(24), Free, "Lifetime of a node's certificate.";
    FLEET_TASK_LEASE_SECONDS: "fleet.task_lease_seconds", int(5, 600), Default::Integer(30), Free, "Time within which a node must say that it started a task it was given.";
    FLEET_LOG_LINES_PER_NODE: "fleet.log_lines_per_node", int(100, 100_000), Default::Integer(2000), Free, "Log lines kept of one node.";
    CAPACITY_PLACEMENT: "capacity.placement", Kind::Choice(&["pack", "spread"]), Default::Choice("pack"), Free, "Whether slices fill nodes up or spread over them.";
    CAPACITY_TASK_SECONDS: "capacity.task_seconds", int(1, 86_400), Default::Integer(300), Free, "How long a step of a launch or release waits for a node.";
    CAPACITY_REIMAGE_SECONDS: "capacity.reimage_seconds", int(1, 86_400), Default::Integer(3600), Free, "How long installing a machine anew may take.";
    SIGN_IN_LOCK_SECONDS: "identity.sign_in_lock_seconds", int(1, 86_400), Default::Integer(900), Free, "How long an address waits after too many wrong passwords at one account.";
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
        let quota = &keys::QUOTA_GPUS_PER_ORG;
        assert!(quota.may_narrow(&json!(8), &json!(4)));
        assert!(!quota.may_narrow(&json!(8), &json!(16)));
        let recording = &keys::TERMINAL_RECORDING;
        assert!(recording.may_narrow(&json!("output"), &json!("output_and_input")));
        assert!(!recording.may_narrow(&json!("output"), &json!("off")));
        assert!(keys::BILLING_WINDOW_SECONDS.may_narrow(&json!(10), &json!(60)));
    }
}
