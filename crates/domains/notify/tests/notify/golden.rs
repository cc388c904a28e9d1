//! Every kind of mail as it is read. `UPDATE_GOLDEN=1 cargo nextest run -p notify golden` writes them.

use chrono::{DateTime, Utc};
use events::{
    billing::{
        AdjustmentKind, AdjustmentWaiting, AutoReleasePending, BalanceDepleted, BalanceRestored,
        BudgetAction, BudgetCrossed, CreditPosted, LowBalanceWarning, SpendCapReached,
    },
    capacity::{AllocationFailed, AllocationReleasing, ReleaseCause},
    fleet::{NodeCertificateEnding, NodeOffline, NodeQuarantined},
    payments::{BalanceCredited, DisputeState, PaymentDisputed, PaymentRefunded, ReconcileFailed},
};
use kernel::event::Envelope;
use notify::model::{
    delivery::MailContent,
    events::{BillingEvent, NodeEvent, Notable, PaymentEvent, ProvisioningEvent},
    mail::render,
    notice::{Notice, NoticeKind, ResourceKind, Target},
};
use serde_json::Value;
use uuid::Uuid;

fn id<T: From<Uuid>>() -> T {
    Uuid::from_u128(1).into()
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn usd() -> String {
    "USD".to_owned()
}

fn eur() -> String {
    "EUR".to_owned()
}

fn billing() -> Vec<BillingEvent> {
    let (org_id, balance_minor) = (id(), 450);
    vec![
        BillingEvent::LowBalanceWarning(LowBalanceWarning {
            org_id,
            balance_minor,
            threshold_minor: 500,
            currency: usd(),
            depletes_at: None,
        }),
        BillingEvent::AutoReleasePending(AutoReleasePending {
            org_id,
            balance_minor,
            currency: usd(),
            depletes_at: time("2026-03-01T12:05:00Z"),
        }),
        BillingEvent::BalanceDepleted(BalanceDepleted { org_id, balance_minor, currency: usd() }),
        BillingEvent::BalanceRestored(BalanceRestored { org_id, balance_minor, currency: usd() }),
        BillingEvent::BudgetCrossed(BudgetCrossed {
            org_id,
            project_id: id(),
            action: BudgetAction::Block,
            amount_minor: 10_000,
            threshold_percent: 80,
            spent_minor: 8012,
            currency: usd(),
        }),
        BillingEvent::SpendCapReached(SpendCapReached {
            org_id,
            project_id: id(),
            service_account_id: id(),
            amount_minor: 10_000,
            spent_minor: 10_012,
            currency: usd(),
        }),
        BillingEvent::CreditPosted(CreditPosted {
            org_id,
            project_id: id(),
            allocation_id: id(),
            finding_id: None,
            since: time("2026-03-01T11:00:00Z"),
            credited_minor: 321,
            currency: usd(),
            reason: "a GPU reported errors <xid 79>".to_owned(),
            creator_id: None,
        }),
        BillingEvent::AdjustmentWaiting(AdjustmentWaiting {
            adjustment_id: id(),
            org_id,
            allocation_id: Some(id()),
            kind: AdjustmentKind::Credit,
            amount_minor: 12_345,
            currency: usd(),
            reason: "faulty hardware (xid.79); the allocation had ended before the fault was reported"
                .to_owned(),
            proposed_by: None,
        }),
    ]
}

fn payments() -> Vec<PaymentEvent> {
    let (org_id, payment_id, amount_minor) = (id(), id(), 5000);
    vec![
        PaymentEvent::BalanceCredited(BalanceCredited { org_id, payment_id, amount_minor, currency: eur() }),
        PaymentEvent::PaymentRefunded(PaymentRefunded {
            org_id,
            payment_id,
            refund_id: id(),
            amount_minor,
            currency: eur(),
            to_card: true,
        }),
        PaymentEvent::PaymentDisputed(PaymentDisputed {
            org_id,
            payment_id,
            dispute_id: id(),
            amount_minor,
            currency: eur(),
            state: DisputeState::Open,
        }),
        PaymentEvent::ReconcileFailed(ReconcileFailed {
            day: "2026-02-28".to_owned(),
            missing: 1,
            extra: 0,
            different: 2,
        }),
    ]
}

fn provisioning() -> Vec<ProvisioningEvent> {
    vec![
        ProvisioningEvent::AllocationFailed(AllocationFailed {
            allocation_id: id(),
            project_id: id(),
            group_id: None,
            failure_code: None,
            reason: "the machine did not come up".to_owned(),
            creator_id: None,
        }),
        ProvisioningEvent::AllocationReleasing(AllocationReleasing {
            allocation_id: id(),
            project_id: id(),
            cause: ReleaseCause::Depletion,
            meter_opened_at: None,
            meter_closed_at: None,
            creator_id: None,
        }),
    ]
}

fn nodes() -> Vec<NodeEvent> {
    let (node_id, region) = (id(), "fsn-1".to_owned());
    let (offline, quarantined) = ("three reports are missing".to_owned(), "a finding".to_owned());
    vec![
        NodeEvent::NodeOffline(NodeOffline { node_id, region: region.clone(), reason: offline }),
        NodeEvent::NodeCertificateEnding(NodeCertificateEnding {
            node_id,
            region: region.clone(),
            ends_at: time("2026-03-01T12:20:00Z"),
        }),
        NodeEvent::NodeQuarantined(NodeQuarantined { node_id, region, reason: quarantined }),
    ]
}

fn notices<E: Notable>(events: Vec<E>) -> Vec<Notice> {
    let envelope = Envelope {
        event_id: id(),
        event_type: String::new(),
        version: 1,
        occurred_at: time("2026-03-01T12:00:00Z"),
        correlation_id: Uuid::from_u128(2),
        traceparent: None,
        org_id: Some(id()),
        project_id: None,
        payload: Value::Null,
    };
    events.iter().map(|event| event.notice(&envelope).expect("somebody is notified").0).collect()
}

#[test]
fn mail_of_every_kind_reads_as_it_did() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let write = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut notices =
        [notices(billing()), notices(payments()), notices(provisioning()), notices(nodes())].concat();
    notices.push(Notice {
        kind: NoticeKind::WebhookDisabled,
        title: "Webhook disabled".to_owned(),
        text: "All deliveries to the webhook x failed for 24 hours, so it was disabled.".to_owned(),
        target: Target::of_org(Uuid::from_u128(1).into()).with(ResourceKind::Webhook, "hook_1"),
    });
    for kind in NoticeKind::ALL {
        assert!(notices.iter().any(|notice| notice.kind == kind), "{kind:?} has no golden mail");
    }
    for notice in notices {
        // A kind may say more than one thing.
        let name = match notice.title.as_str() {
            "Spend cap reached" => "spend_cap_reached",
            _ => notice.kind.name(),
        };
        let link = format!("https://gpuaas.test{}", notice.target.path());
        let content = MailContent { name: "Ada".to_owned(), notice };
        let mail = render(&content, &link, "https://gpuaas.test/me/notifications");
        let text = format!("Subject: {}\n\n{}", mail.subject, mail.text);
        for (extension, now) in [("txt", text), ("html", mail.html)] {
            let path = dir.join(format!("{name}.{extension}"));
            if write {
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(&path, &now).unwrap();
            }
            let golden = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(now, golden, "{} differs; UPDATE_GOLDEN=1 writes it", path.display());
        }
    }
}
