//! What people are told.

use chrono::{DateTime, Utc};
use kernel::{
    ids::{NotificationId, OrgId, ProjectId, UserId},
    policy::{Definition, keys},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($variant:ident = $name:literal, $severity:ident;)*) => {
        /// What a notification is about. People choose by kind how they want to be told.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum NoticeKind { $($variant),* }

        impl NoticeKind {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name),* } }
            pub const fn severity(self) -> Severity { match self { $(Self::$variant => Severity::$severity),* } }
        }
    };
}

kinds! {
    LowBalance = "low_balance", Warning;
    AutoReleasePending = "auto_release_pending", Critical;
    BalanceDepleted = "balance_depleted", Critical;
    BalanceRestored = "balance_restored", Info;
    BudgetCrossed = "budget_crossed", Warning;
    CreditPosted = "credit_posted", Info;
    AdjustmentWaiting = "adjustment_waiting", Warning;
    PaymentReceived = "payment_received", Info;
    PaymentRefunded = "payment_refunded", Info;
    PaymentDisputed = "payment_disputed", Warning;
    ProvisioningFailed = "provisioning_failed", Warning;
    AllocationReleased = "allocation_released", Warning;
    WebhookDisabled = "webhook_disabled", Warning;
    NodeOffline = "node_offline", Warning;
    NodeQuarantined = "node_quarantined", Warning;
    CertificateEnding = "certificate_ending", Warning;
    ReconcileFailed = "reconcile_failed", Critical;
}

impl NoticeKind {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Nobody can say afterwards that they could not have known: these are always shown in the product.
    pub const fn always_in_app(self) -> bool {
        matches!(self, Self::AutoReleasePending | Self::BalanceDepleted)
    }

    /// The policy by which an organization is not told of it at all.
    pub fn policy(self) -> Option<&'static Definition> {
        match self {
            Self::LowBalance => Some(&keys::NOTIFY_LOW_BALANCE),
            Self::AutoReleasePending | Self::BalanceDepleted => Some(&keys::NOTIFY_BALANCE_DEPLETED),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

impl Severity {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The thing that a notification leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub org_id: Option<OrgId>,
    pub project_id: Option<ProjectId>,
    /// Its kind and its id, such as `allocation` and `alloc_…`.
    pub resource: Option<(String, String)>,
}

impl Target {
    pub fn of_org(org: OrgId) -> Self {
        Self { org_id: Some(org), ..Self::default() }
    }

    pub fn with(mut self, kind: &str, id: impl ToString) -> Self {
        self.resource = Some((kind.to_owned(), id.to_string()));
        self
    }

    /// Where the console shows it.
    pub fn path(&self) -> String {
        match (&self.resource, self.project_id, self.org_id) {
            (Some((kind, id)), Some(project), _) => format!("/projects/{project}/{kind}s/{id}"),
            (Some((kind, id)), None, Some(org)) if kind == "webhook" => format!("/orgs/{org}/webhooks/{id}"),
            (None, Some(project), _) => format!("/projects/{project}/usage"),
            (_, None, Some(org)) => format!("/orgs/{org}/billing"),
            (Some((kind, id)), None, None) if kind == "node" => format!("/platform/nodes/{id}"),
            (Some((kind, id)), None, None) if kind == "adjustment" => {
                format!("/platform/billing/adjustments/{id}")
            }
            _ => "/".to_owned(),
        }
    }
}

/// One thing to tell, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub kind: NoticeKind,
    pub title: String,
    pub text: String,
    pub target: Target,
}

/// Who hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Owners and administrators of the organization, and whoever made the thing.
    Org { org: OrgId, creator: Option<UserId> },
    /// Whoever made the thing; without them, owners and administrators.
    Creator { org: OrgId, creator: Option<UserId> },
    /// Administrators and operators of the platform.
    Platform,
    /// Who may decide on money that waits, but not who proposed it.
    MoneyApprovers { proposed_by: Option<UserId> },
}

/// A notification as its person sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Notification {
    pub id: NotificationId,
    /// Counts this person's notifications; a stream goes on after the last one seen.
    pub seq: i64,
    pub kind: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    pub title: String,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_names_in_every_form() {
        for kind in NoticeKind::ALL {
            assert_eq!(NoticeKind::parse(kind.name()), Some(*kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
