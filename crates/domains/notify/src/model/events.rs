//! From events of other domains to what is said about them. Their payloads are read with small types of our own: what
//! we do not need may change.

use chrono::{DateTime, Utc};
use kernel::{
    event::Envelope,
    ids::{AdjustmentId, AllocationId, NodeId, OrgId, ProjectId, UserId},
    money::money,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::notice::{Audience, Notice, NoticeKind, ResourceKind, Target};

pub const BILLING: &[&str] = &[
    "billing.low_balance_warning",
    "billing.auto_release_pending",
    "billing.balance_depleted",
    "billing.balance_restored",
    "billing.budget_crossed",
    "billing.credit_posted",
    "billing.adjustment_waiting",
];
pub const PAYMENTS: &[&str] =
    &["payments.balance_credited", "payments.refunded", "payments.disputed", "payments.reconcile_failed"];
pub const PROVISIONING: &[&str] = &[
    "provisioning.requested",
    "provisioning.active",
    "provisioning.failed",
    "provisioning.releasing.requested",
    "provisioning.releasing.completed",
    "provisioning.release_failed",
];
pub const NODES: &[&str] = &["nodes.offline", "nodes.quarantined", "nodes.certificate_ending"];

/// What the platform's own people are told of, and no organization.
const OF_PLATFORM: &[&str] = &["payments.reconcile_failed", "billing.adjustment_waiting"];

/// What is sent when an organization tries its webhook.
pub const WEBHOOK_TEST: &str = "webhook.test";

/// The types that a webhook can ask for: whatever happens to an organization.
pub fn of_organizations() -> impl Iterator<Item = &'static str> {
    let all = BILLING.iter().chain(PAYMENTS).chain(PROVISIONING).copied();
    all.filter(|event_type| !OF_PLATFORM.contains(event_type))
}

#[derive(Deserialize)]
struct Balance {
    org_id: OrgId,
    balance_minor: i64,
    currency: String,
    threshold_minor: Option<i64>,
    depletes_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct Budget {
    org_id: OrgId,
    project_id: ProjectId,
    action: String,
    amount_minor: i64,
    threshold_percent: i32,
    spent_minor: i64,
    currency: String,
}

#[derive(Deserialize)]
struct Credit {
    org_id: OrgId,
    project_id: ProjectId,
    allocation_id: AllocationId,
    since: DateTime<Utc>,
    credited_minor: i64,
    currency: String,
    reason: String,
    creator_id: Option<UserId>,
}

#[derive(Deserialize)]
struct Waiting {
    adjustment_id: AdjustmentId,
    org_id: OrgId,
    kind: String,
    amount_minor: i64,
    currency: String,
    reason: String,
    proposed_by: Option<UserId>,
}

#[derive(Deserialize)]
struct Payment {
    org_id: OrgId,
    amount_minor: i64,
    currency: String,
    to_card: Option<bool>,
    state: Option<String>,
}

#[derive(Deserialize)]
struct Reconciled {
    day: String,
    missing: i64,
    extra: i64,
    different: i64,
}

#[derive(Deserialize)]
struct Allocation {
    allocation_id: AllocationId,
    project_id: ProjectId,
    reason: Option<String>,
    cause: Option<String>,
    creator_id: Option<UserId>,
}

#[derive(Deserialize)]
struct Node {
    node_id: NodeId,
    region: String,
    reason: String,
}

#[derive(Deserialize)]
struct Certificate {
    node_id: NodeId,
    region: String,
    ends_at: DateTime<Utc>,
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

fn read<T: DeserializeOwned>(envelope: &Envelope) -> Result<T, serde_json::Error> {
    T::deserialize(&envelope.payload)
}

/// What is said of an event, and to whom; nothing when people are not told of it.
pub fn notice_of(envelope: &Envelope) -> Result<Option<(Notice, Audience)>, serde_json::Error> {
    let stream = envelope.event_type.split('.').next().unwrap_or_default();
    match stream {
        "billing" => of_billing(envelope),
        "payments" => of_payments(envelope),
        "provisioning" => of_provisioning(envelope),
        "nodes" => of_nodes(envelope),
        _ => Ok(None),
    }
}

type Told = Option<(Notice, Audience)>;

fn to_org(org: OrgId, kind: NoticeKind, title: &str, text: String) -> Told {
    let notice = Notice { kind, title: title.to_owned(), text, target: Target::of_org(org) };
    Some((notice, Audience::Org { org, creator: None }))
}

fn of_billing(envelope: &Envelope) -> Result<Told, serde_json::Error> {
    Ok(match envelope.event_type.as_str() {
        "billing.low_balance_warning" => {
            let e: Balance = read(envelope)?;
            let limit =
                e.threshold_minor.map(|t| format!(", at or below the warning of {}", money(t, &e.currency)));
            let text = format!(
                "The balance is {}{}. Top it up: when it is used up, everything that runs is released.",
                money(e.balance_minor, &e.currency),
                limit.unwrap_or_default()
            );
            to_org(e.org_id, NoticeKind::LowBalance, "Low balance", text)
        }
        "billing.auto_release_pending" => {
            let e: Balance = read(envelope)?;
            let when = e.depletes_at.map_or_else(|| "soon".to_owned(), |t| format!("at about {}", at(t)));
            let text = format!(
                "The balance is {} and will be used up {when}. Everything that runs is released then. Top it up to keep it.",
                money(e.balance_minor, &e.currency)
            );
            to_org(e.org_id, NoticeKind::AutoReleasePending, "Machines will be released", text)
        }
        "billing.balance_depleted" => {
            let e: Balance = read(envelope)?;
            let text = format!(
                "The balance is used up ({}). Everything that runs is being released. Top it up to launch again.",
                money(e.balance_minor, &e.currency)
            );
            to_org(e.org_id, NoticeKind::BalanceDepleted, "Balance used up", text)
        }
        "billing.balance_restored" => {
            let e: Balance = read(envelope)?;
            let text = format!(
                "The balance is {} again. What was released does not start again by itself.",
                money(e.balance_minor, &e.currency)
            );
            to_org(e.org_id, NoticeKind::BalanceRestored, "Balance restored", text)
        }
        "billing.budget_crossed" => Some(of_budget(read(envelope)?)),
        "billing.credit_posted" => Some(of_credit(read(envelope)?)),
        "billing.adjustment_waiting" => Some(of_waiting(read(envelope)?)),
        _ => None,
    })
}

fn of_budget(e: Budget) -> (Notice, Audience) {
    let then = match e.action.as_str() {
        "block" => "New launches in the project are refused until the month ends or the budget is raised.",
        "release" => "What runs in the project is released.",
        _ => "Nothing is stopped.",
    };
    let text = format!(
        "A project spent {} of its monthly budget of {} ({} % was to be told). {then}",
        money(e.spent_minor, &e.currency),
        money(e.amount_minor, &e.currency),
        e.threshold_percent
    );
    let target = Target { org_id: Some(e.org_id), project_id: Some(e.project_id), resource: None };
    let notice = Notice { kind: NoticeKind::BudgetCrossed, title: "Budget reached".to_owned(), text, target };
    (notice, Audience::Org { org: e.org_id, creator: None })
}

fn of_credit(e: Credit) -> (Notice, Audience) {
    let text = format!(
        "{} was given back for {}, which is not charged for since {}: {}.",
        money(e.credited_minor, &e.currency),
        e.allocation_id,
        at(e.since),
        bounded_line(&e.reason)
    );
    let target = Target { org_id: Some(e.org_id), project_id: Some(e.project_id), resource: None };
    let target = target.with(ResourceKind::Allocation, e.allocation_id);
    let notice =
        Notice { kind: NoticeKind::CreditPosted, title: "Credit for a machine".to_owned(), text, target };
    (notice, Audience::Org { org: e.org_id, creator: e.creator_id })
}

fn of_waiting(e: Waiting) -> (Notice, Audience) {
    let what = match e.kind.as_str() {
        "correction" => "A correction",
        "promo" => "Promotional credit",
        _ => "A credit",
    };
    let text = format!(
        "{what} of {} for {} waits for a second person: {}. Look at it with `gpuaas platform billing adjustments show {}`, \
         then approve or reject it.",
        money(e.amount_minor, &e.currency),
        e.org_id,
        bounded_line(&e.reason),
        e.adjustment_id
    );
    let target = Target::default().with(ResourceKind::Adjustment, e.adjustment_id);
    let title = "Money waits for your decision".to_owned();
    let notice = Notice { kind: NoticeKind::AdjustmentWaiting, title, text, target };
    (notice, Audience::MoneyApprovers { proposed_by: e.proposed_by })
}

fn of_payments(envelope: &Envelope) -> Result<Told, serde_json::Error> {
    if envelope.event_type == "payments.reconcile_failed" {
        let e: Reconciled = read(envelope)?;
        let text = format!(
            "The provider's list of {} differs from ours: {} missing, {} extra, {} different. Look at the findings of payments.",
            bounded_line(&e.day),
            e.missing,
            e.extra,
            e.different
        );
        let title = "Payments do not reconcile".to_owned();
        let notice = Notice { kind: NoticeKind::ReconcileFailed, title, text, target: Target::default() };
        return Ok(Some((notice, Audience::Platform)));
    }
    if !PAYMENTS.contains(&envelope.event_type.as_str()) {
        return Ok(None);
    }
    let e: Payment = read(envelope)?;
    let paid = money(e.amount_minor, &e.currency);
    Ok(match envelope.event_type.as_str() {
        "payments.balance_credited" => {
            let text = format!("A payment of {paid} arrived and is in the balance.");
            to_org(e.org_id, NoticeKind::PaymentReceived, "Payment received", text)
        }
        "payments.refunded" => {
            let how = if e.to_card == Some(false) { "became credit" } else { "went back to the card" };
            to_org(
                e.org_id,
                NoticeKind::PaymentRefunded,
                "Payment refunded",
                format!("{paid} of a payment {how}."),
            )
        }
        _ => {
            let how = match e.state.as_deref() {
                Some("won") => "was decided for you; the amount is free again",
                Some("lost") => "was lost; the amount is gone",
                _ => "was opened; the amount is frozen until it is decided",
            };
            let text = format!("A dispute about a payment of {paid} {how}.");
            to_org(e.org_id, NoticeKind::PaymentDisputed, "Payment disputed", text)
        }
    })
}

fn of_provisioning(envelope: &Envelope) -> Result<Told, serde_json::Error> {
    let Some(org) = envelope.org_id.map(OrgId::from) else { return Ok(None) };
    let (kind, title) = match envelope.event_type.as_str() {
        "provisioning.failed" => (NoticeKind::ProvisioningFailed, "Launch failed"),
        "provisioning.releasing.requested" => (NoticeKind::AllocationReleased, "Machine released"),
        _ => return Ok(None),
    };
    let e: Allocation = read(envelope)?;
    let id = e.allocation_id;
    let text = if kind == NoticeKind::ProvisioningFailed {
        let reason = e.reason.as_deref().map(bounded_line).unwrap_or_default();
        format!("The launch of {id} failed: {reason}. Everything was taken back and nothing is charged.")
    } else {
        // What somebody released themselves they know.
        match e.cause.as_deref() {
            Some("depletion") => {
                format!("{id} is being released because the balance is used up.")
            }
            Some("budget") => format!("{id} is being released because the project's budget is used up."),
            _ => return Ok(None),
        }
    };
    let target = Target { org_id: Some(org), project_id: Some(e.project_id), resource: None };
    let notice =
        Notice { kind, title: title.to_owned(), text, target: target.with(ResourceKind::Allocation, id) };
    Ok(Some((notice, Audience::Creator { org, creator: e.creator_id })))
}

fn of_nodes(envelope: &Envelope) -> Result<Told, serde_json::Error> {
    if envelope.event_type == "nodes.certificate_ending" {
        let e: Certificate = read(envelope)?;
        let text = format!(
            "The certificate of {} in {} ends at {} and is not being renewed. Look at the agent there, or give it a \
             repair token: gpuaas nodes repair-token {}.",
            e.node_id,
            bounded_line(&e.region),
            at(e.ends_at),
            e.node_id
        );
        let target = Target::default().with(ResourceKind::Node, e.node_id);
        let title = "Certificate of a node ends".to_owned();
        let notice = Notice { kind: NoticeKind::CertificateEnding, title, text, target };
        return Ok(Some((notice, Audience::Platform)));
    }
    let (kind, title, what) = match envelope.event_type.as_str() {
        "nodes.offline" => (NoticeKind::NodeOffline, "Node offline", "has not reported"),
        "nodes.quarantined" => (NoticeKind::NodeQuarantined, "Node quarantined", "was taken out of service"),
        _ => return Ok(None),
    };
    let e: Node = read(envelope)?;
    let text = format!("{} in {} {what}: {}.", e.node_id, bounded_line(&e.region), bounded_line(&e.reason));
    let target = Target::default().with(ResourceKind::Node, e.node_id);
    Ok(Some((Notice { kind, title: title.to_owned(), text, target }, Audience::Platform)))
}
