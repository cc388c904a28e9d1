//! Every kind of mail as it is read. `GOLDEN=write cargo nextest run -p notify golden` writes them anew.

use chrono::{DateTime, Utc};
use kernel::event::Envelope;
use notify::model::{
    delivery::MailContent,
    events::notice_of,
    mail::render,
    notice::{Notice, NoticeKind, ResourceKind, Target},
};
use serde_json::{Value, json};
use uuid::Uuid;

fn samples() -> Vec<(&'static str, Value)> {
    let id = |prefix: &str| format!("{prefix}_00000000000000000000000000000001");
    let (org, project, allocation) = (id("org"), id("proj"), id("alloc"));
    let balance = json!({ "org_id": org, "balance_minor": 450, "threshold_minor": 500, "currency": "USD", "depletes_at": "2026-03-01T12:05:00Z" });
    let payment = json!({ "org_id": org, "payment_id": id("pay"), "amount_minor": 5000, "currency": "EUR", "to_card": true, "state": "open" });
    vec![
        ("billing.low_balance_warning", balance.clone()),
        ("billing.auto_release_pending", balance.clone()),
        ("billing.balance_depleted", balance.clone()),
        ("billing.balance_restored", balance),
        (
            "billing.budget_crossed",
            json!({ "org_id": org, "project_id": project, "action": "block", "amount_minor": 10000, "threshold_percent": 80, "spent_minor": 8012, "currency": "USD" }),
        ),
        (
            "billing.credit_posted",
            json!({ "org_id": org, "project_id": project, "allocation_id": allocation, "since": "2026-03-01T11:00:00Z", "credited_minor": 321, "currency": "USD", "reason": "a GPU reported errors <xid 79>" }),
        ),
        (
            "billing.adjustment_waiting",
            json!({ "adjustment_id": id("adj"), "org_id": org, "allocation_id": allocation, "kind": "credit", "amount_minor": 12_345, "currency": "USD", "reason": "faulty hardware (xid.79); the allocation had ended when it was heard of", "proposed_by": null }),
        ),
        ("payments.balance_credited", payment.clone()),
        ("payments.refunded", payment.clone()),
        ("payments.disputed", payment),
        (
            "payments.reconcile_failed",
            json!({ "day": "2026-02-28", "missing": 1, "extra": 0, "different": 2 }),
        ),
        (
            "provisioning.failed",
            json!({ "allocation_id": allocation, "project_id": project, "reason": "the machine did not come up" }),
        ),
        (
            "provisioning.releasing.requested",
            json!({ "allocation_id": allocation, "project_id": project, "cause": "depletion" }),
        ),
        (
            "nodes.offline",
            json!({ "node_id": id("node"), "region": "fsn-1", "reason": "three reports are missing" }),
        ),
        (
            "nodes.certificate_ending",
            json!({ "node_id": id("node"), "region": "fsn-1", "ends_at": "2026-03-01T12:20:00Z" }),
        ),
        ("nodes.quarantined", json!({ "node_id": id("node"), "region": "fsn-1", "reason": "a finding" })),
    ]
}

fn notice(event_type: &str, payload: Value) -> Notice {
    let occurred_at: DateTime<Utc> = "2026-03-01T12:00:00Z".parse().unwrap();
    let envelope = Envelope {
        event_id: Uuid::from_u128(1),
        event_type: event_type.to_owned(),
        version: 1,
        occurred_at,
        correlation_id: Uuid::from_u128(2),
        traceparent: None,
        org_id: Some(Uuid::from_u128(1)),
        project_id: None,
        payload,
    };
    notice_of(&envelope).unwrap().expect("somebody is notified").0
}

#[test]
fn mail_of_every_kind_reads_as_it_did() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let write = std::env::var("GOLDEN").is_ok_and(|how| how == "write");
    let mut notices: Vec<Notice> =
        samples().into_iter().map(|(kind, payload)| notice(kind, payload)).collect();
    notices.push(Notice {
        kind: NoticeKind::WebhookDisabled,
        title: "Webhook disabled".to_owned(),
        text: "Nothing arrived at the webhook x for 24 hours, so it was disabled.".to_owned(),
        target: Target::of_org(Uuid::from_u128(1).into()).with(ResourceKind::Webhook, "hook_1"),
    });
    for kind in NoticeKind::ALL {
        assert!(notices.iter().any(|notice| notice.kind == kind), "{kind:?} has no golden mail");
    }
    for notice in notices {
        let name = notice.kind.name();
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
            assert_eq!(now, golden, "{} differs; GOLDEN=write writes it anew", path.display());
        }
    }
}
