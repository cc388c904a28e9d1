//! What people are told.

use chrono::{DateTime, Utc};
use kernel::{
    ids::{NotificationId, OrgId, ProjectId, UserId},
    policy::{BooleanKey, keys},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($variant:ident = $name:literal, $severity:ident;)*) => {
        lifecycle::named_enum! {
            /// What a notification is about. People choose by kind how they want to be told.
            NoticeKind = "kind of notification" { $($variant = $name),* }
        }

        impl NoticeKind {
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
    /// Nobody can say afterwards that they could not have known: these are always shown in the product.
    pub const fn always_in_app(self) -> bool {
        matches!(self, Self::AutoReleasePending | Self::BalanceDepleted)
    }

    /// The policy by which an organization is not told of it at all.
    pub const fn policy(self) -> Option<BooleanKey> {
        match self {
            Self::LowBalance => Some(keys::NOTIFY_LOW_BALANCE),
            Self::AutoReleasePending | Self::BalanceDepleted => Some(keys::NOTIFY_BALANCE_DEPLETED),
            _ => None,
        }
    }
}

lifecycle::named_enum! {
    Severity = "severity" as "NoticeSeverity" { Info = "info", Warning = "warning", Critical = "critical" }
}

lifecycle::named_enum! {
    /// What a notification can lead to.
    ResourceKind = "kind of resource" as "NoticeResourceKind" {
        Allocation = "allocation",
        Adjustment = "adjustment",
        Node = "node",
        Webhook = "webhook",
    }
}

/// The thing that a notification leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub org_id: Option<OrgId>,
    pub project_id: Option<ProjectId>,
    /// Its kind and its id, such as `allocation` and `alloc_…`.
    pub resource: Option<(ResourceKind, String)>,
}

impl Target {
    pub fn of_org(org: OrgId) -> Self {
        Self { org_id: Some(org), ..Self::default() }
    }

    pub fn with(mut self, kind: ResourceKind, id: impl ToString) -> Self {
        self.resource = Some((kind, id.to_string()));
        self
    }

    /// Where the console shows it.
    pub fn path(&self) -> String {
        match (&self.resource, self.project_id, self.org_id) {
            (Some((kind, id)), Some(project), _) => format!("/projects/{project}/{kind}s/{id}"),
            (Some((ResourceKind::Webhook, id)), None, Some(org)) => format!("/orgs/{org}/webhooks/{id}"),
            (None, Some(project), _) => format!("/projects/{project}/usage"),
            (_, None, Some(org)) => format!("/orgs/{org}/billing"),
            (Some((ResourceKind::Node, id)), None, None) => format!("/platform/nodes/{id}"),
            (Some((ResourceKind::Adjustment, id)), None, None) => {
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
    pub kind: NoticeKind,
    pub severity: Severity,
    pub title: String,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_kind: Option<ResourceKind>,
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
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
