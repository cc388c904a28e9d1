//! From events of other domains to what people are notified of.

use chrono::{DateTime, Utc};
use events::{
    EventSet,
    billing::{
        AdjustmentKind, AdjustmentWaiting, AutoReleasePending, BalanceDepleted, BalanceRestored,
        BudgetAction, BudgetCrossed, CreditPosted, LowBalanceWarning, SpendCapReached,
    },
    capacity::{
        AllocationActive, AllocationFailed, AllocationReleaseFailed, AllocationReleased, AllocationReleasing,
        AllocationRequested, ReleaseCause,
    },
    fleet::{NodeCertificateEnding, NodeOffline, NodeQuarantined},
    payments::{BalanceCredited, DisputeState, PaymentDisputed, PaymentRefunded, ReconcileFailed},
};
use kernel::{
    Event as _,
    event::Envelope,
    ids::{AllocationId, NodeId, OrgId, ProjectId, UserId},
    money::money,
};

use super::notice::{Audience, Notice, NoticeKind, ResourceKind, Target};

events::event_set! {
    pub BillingEvent {
        LowBalanceWarning, AutoReleasePending, BalanceDepleted, BalanceRestored, BudgetCrossed, SpendCapReached,
        CreditPosted, AdjustmentWaiting,
    }
}

events::event_set! {
    pub PaymentEvent { BalanceCredited, PaymentRefunded, PaymentDisputed, ReconcileFailed }
}

events::event_set! {
    pub ProvisioningEvent {
        AllocationRequested, AllocationActive, AllocationFailed, AllocationReleasing, AllocationReleased,
        AllocationReleaseFailed,
    }
}

events::event_set! {
    pub NodeEvent { NodeOffline, NodeQuarantined, NodeCertificateEnding }
}

/// What the platform's own people are notified of, and no organization.
const PLATFORM_ONLY: &[&str] = &[ReconcileFailed::TYPE, AdjustmentWaiting::TYPE];

/// What is sent when an organization tries its webhook.
pub const WEBHOOK_TEST: &str = "webhook.test";

/// The types that a webhook can ask for: whatever happens to an organization.
pub fn of_organizations() -> impl Iterator<Item = &'static str> {
    let all = BillingEvent::TYPES.iter().chain(PaymentEvent::TYPES).chain(ProvisioningEvent::TYPES).copied();
    all.filter(|event_type| !PLATFORM_ONLY.contains(event_type))
}

/// Events that people may be notified of.
pub trait Notable: EventSet {
    /// What they are told, and who; nothing when people are not notified of it.
    fn notice(&self, envelope: &Envelope) -> Option<(Notice, Audience)>;
}

/// Words of other domains, on one line and bounded, before they become part of ours.
pub(super) fn bounded_line(text: &str) -> String {
    const MOST_CHARS: usize = 400;
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARS).collect();
    line.trim().trim_end_matches('.').to_owned()
}

pub(super) fn at(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

fn org_notice(org: OrgId, kind: NoticeKind, title: &str, text: String) -> (Notice, Audience) {
    let notice = Notice { kind, title: title.to_owned(), text, target: Target::of_org(org) };
    (notice, Audience::Org { org, creator: None })
}

impl Notable for BillingEvent {
    fn notice(&self, _: &Envelope) -> Option<(Notice, Audience)> {
        Some(match self {
            Self::LowBalanceWarning(e) => {
                let why = match e.depletes_at {
                    Some(end) => format!(" and lasts until about {} if everything keeps running", at(end)),
                    None => {
                        let threshold = money(e.threshold_minor, &e.currency);
                        format!(", at or below the warning threshold of {threshold}")
                    }
                };
                let text = format!(
                    "The balance is {}{why}. Top up: when the balance is used up, all running \
                     allocations are released.",
                    money(e.balance_minor, &e.currency)
                );
                org_notice(e.org_id, NoticeKind::LowBalance, "Low balance", text)
            }
            Self::AutoReleasePending(e) => {
                let text = format!(
                    "The balance is {} and will be used up at about {}. All running allocations are released \
                     then. Top up to keep them.",
                    money(e.balance_minor, &e.currency),
                    at(e.depletes_at)
                );
                org_notice(e.org_id, NoticeKind::AutoReleasePending, "Machines will be released", text)
            }
            Self::BalanceDepleted(e) => {
                let text = format!(
                    "The balance is used up ({}). All running allocations are being released. Top up to launch again.",
                    money(e.balance_minor, &e.currency)
                );
                org_notice(e.org_id, NoticeKind::BalanceDepleted, "Balance used up", text)
            }
            Self::BalanceRestored(e) => {
                let text = format!(
                    "The balance is {} again. Released allocations are not restarted automatically.",
                    money(e.balance_minor, &e.currency)
                );
                org_notice(e.org_id, NoticeKind::BalanceRestored, "Balance restored", text)
            }
            Self::BudgetCrossed(e) => budget_notice(e),
            Self::SpendCapReached(e) => spend_cap_notice(e),
            Self::CreditPosted(e) => credit_notice(e),
            Self::AdjustmentWaiting(e) => adjustment_notice(e),
        })
    }
}

fn budget_notice(e: &BudgetCrossed) -> (Notice, Audience) {
    let then = match e.action {
        BudgetAction::Block => {
            "New launches in the project are refused until the month ends or the budget is raised."
        }
        BudgetAction::Release => "Running allocations of the project are released.",
        BudgetAction::Notify => "Running allocations continue.",
    };
    let text = format!(
        "A project has spent {} of its monthly budget of {} (threshold {} %). {then}",
        money(e.spent_minor, &e.currency),
        money(e.amount_minor, &e.currency),
        e.threshold_percent
    );
    let target = Target { org_id: Some(e.org_id), project_id: Some(e.project_id), resource: None };
    let notice = Notice { kind: NoticeKind::BudgetCrossed, title: "Budget reached".to_owned(), text, target };
    (notice, Audience::Org { org: e.org_id, creator: None })
}

fn spend_cap_notice(e: &SpendCapReached) -> (Notice, Audience) {
    let text = format!(
        "The service account {} has spent {} of its monthly cap of {}. Its running allocations are released, and it launches \
         no more until the month ends or the cap is raised.",
        e.service_account_id,
        money(e.spent_minor, &e.currency),
        money(e.amount_minor, &e.currency),
    );
    let target = Target { org_id: Some(e.org_id), project_id: Some(e.project_id), resource: None };
    let title = "Spend cap reached".to_owned();
    (
        Notice { kind: NoticeKind::BudgetCrossed, title, text, target },
        Audience::Org { org: e.org_id, creator: None },
    )
}

fn credit_notice(e: &CreditPosted) -> (Notice, Audience) {
    let text = format!(
        "{} was credited for {}, which is not charged since {}: {}.",
        money(e.credited_minor, &e.currency),
        e.allocation_id,
        at(e.since),
        bounded_line(&e.reason)
    );
    let target = Target { org_id: Some(e.org_id), project_id: Some(e.project_id), resource: None };
    let target = target.with(ResourceKind::Allocation, e.allocation_id);
    let notice =
        Notice { kind: NoticeKind::CreditPosted, title: "Credit for an allocation".to_owned(), text, target };
    (notice, Audience::Org { org: e.org_id, creator: e.creator_id })
}

fn adjustment_notice(e: &AdjustmentWaiting) -> (Notice, Audience) {
    let what = match e.kind {
        AdjustmentKind::Correction => "A correction",
        AdjustmentKind::Promo => "Promotional credit",
        AdjustmentKind::Credit => "A credit",
    };
    let text = format!(
        "{what} of {} for {} needs approval: {}. Review it with `gpuaas platform billing adjustments show \
         {}`, then approve or reject it.",
        money(e.amount_minor, &e.currency),
        e.org_id,
        bounded_line(&e.reason),
        e.adjustment_id
    );
    let target = Target::default().with(ResourceKind::Adjustment, e.adjustment_id);
    let title = "An adjustment needs approval".to_owned();
    let notice = Notice { kind: NoticeKind::AdjustmentWaiting, title, text, target };
    (notice, Audience::MoneyApprovers { proposed_by: e.proposed_by })
}

impl Notable for PaymentEvent {
    fn notice(&self, _: &Envelope) -> Option<(Notice, Audience)> {
        Some(match self {
            Self::BalanceCredited(e) => {
                let paid = money(e.amount_minor, &e.currency);
                let text = format!("A payment of {paid} was received and added to the balance.");
                org_notice(e.org_id, NoticeKind::PaymentReceived, "Payment received", text)
            }
            Self::PaymentRefunded(e) => {
                let paid = money(e.amount_minor, &e.currency);
                let how = if e.to_card { "was refunded to the card" } else { "was converted to credit" };
                let text = format!("{paid} of a payment {how}.");
                org_notice(e.org_id, NoticeKind::PaymentRefunded, "Payment refunded", text)
            }
            Self::PaymentDisputed(e) => {
                let paid = money(e.amount_minor, &e.currency);
                let how = match e.state {
                    DisputeState::Won => "was won; the amount is available again",
                    DisputeState::Lost => "was lost; the amount was deducted",
                    DisputeState::Open => "was opened; the amount is frozen until it is decided",
                };
                let text = format!("A dispute about a payment of {paid} {how}.");
                org_notice(e.org_id, NoticeKind::PaymentDisputed, "Payment disputed", text)
            }
            Self::ReconcileFailed(e) => {
                let text = format!(
                    "The payments of {} at the provider differ from our records: {} missing, {} extra, {} \
                     different. See the billing findings.",
                    bounded_line(&e.day),
                    e.missing,
                    e.extra,
                    e.different
                );
                let title = "Payments do not reconcile".to_owned();
                let kind = NoticeKind::ReconcileFailed;
                (Notice { kind, title, text, target: Target::default() }, Audience::Platform)
            }
        })
    }
}

impl Notable for ProvisioningEvent {
    fn notice(&self, envelope: &Envelope) -> Option<(Notice, Audience)> {
        let org = envelope.org_id.map(OrgId::from)?;
        match self {
            Self::AllocationFailed(e) => {
                let text = format!(
                    "The launch of {} failed: {}. It was rolled back and is not charged.",
                    e.allocation_id,
                    bounded_line(&e.reason)
                );
                let about = (org, e.project_id, e.allocation_id);
                let notice = (NoticeKind::ProvisioningFailed, "Launch failed");
                Some(allocation_notice(about, e.creator_id, notice, text))
            }
            Self::AllocationReleasing(e) => {
                let used_up = match e.cause {
                    ReleaseCause::Depletion => "the balance",
                    ReleaseCause::Budget => "a budget or spend cap",
                    // What somebody released themselves they know.
                    ReleaseCause::User | ReleaseCause::Admin | ReleaseCause::Group => return None,
                };
                let text = format!("{} is being released because {used_up} is used up.", e.allocation_id);
                let about = (org, e.project_id, e.allocation_id);
                let notice = (NoticeKind::AllocationReleased, "Machine released");
                Some(allocation_notice(about, e.creator_id, notice, text))
            }
            // Only webhooks are.
            Self::AllocationRequested(_)
            | Self::AllocationActive(_)
            | Self::AllocationReleased(_)
            | Self::AllocationReleaseFailed(_) => None,
        }
    }
}

fn allocation_notice(
    (org, project, allocation): (OrgId, ProjectId, AllocationId),
    creator: Option<UserId>,
    (kind, title): (NoticeKind, &str),
    text: String,
) -> (Notice, Audience) {
    let target = Target { org_id: Some(org), project_id: Some(project), resource: None };
    let target = target.with(ResourceKind::Allocation, allocation);
    (Notice { kind, title: title.to_owned(), text, target }, Audience::Creator { org, creator })
}

impl Notable for NodeEvent {
    fn notice(&self, _: &Envelope) -> Option<(Notice, Audience)> {
        let (node, kind, title, text) = match self {
            Self::NodeOffline(e) => {
                let text = node_text(e.node_id, &e.region, "has not reported", &e.reason);
                (e.node_id, NoticeKind::NodeOffline, "Node offline", text)
            }
            Self::NodeQuarantined(e) => {
                let text = node_text(e.node_id, &e.region, "was quarantined", &e.reason);
                (e.node_id, NoticeKind::NodeQuarantined, "Node quarantined", text)
            }
            Self::NodeCertificateEnding(e) => {
                let text = format!(
                    "The certificate of {} in {} expires at {} and is not being renewed. Check the agent on \
                     the node, or repair it: gpuaas nodes repair-token {}.",
                    e.node_id,
                    bounded_line(&e.region),
                    at(e.ends_at),
                    e.node_id
                );
                (e.node_id, NoticeKind::CertificateEnding, "Certificate of a node expires", text)
            }
        };
        let target = Target::default().with(ResourceKind::Node, node);
        Some((Notice { kind, title: title.to_owned(), text, target }, Audience::Platform))
    }
}

fn node_text(node: NodeId, region: &str, what: &str, reason: &str) -> String {
    format!("{node} in {} {what}: {}.", bounded_line(region), bounded_line(reason))
}
