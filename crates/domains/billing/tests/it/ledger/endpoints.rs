//! The endpoints as clients meet them.

use billing::service::checkpoints::{checkpoints_sign, keys};
use http::StatusCode;

use super::{kit::verify_export, web::Kit};

async fn busy() -> Kit {
    let kit = Kit::new().await;
    kit.fund(100_000).await;
    kit.launch(0, "h200", 360, 2).await.unwrap();
    kit.pass(3600);
    kit.tick().await;
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 1);
    kit
}

#[tokio::test]
async fn the_owner_reads_lists_exports_and_verifies() {
    let kit = busy().await;
    let balance = kit.money("balance").await.ok();
    assert_eq!((&balance["total_minor"], &balance["burn_per_hour_minor"]), (&99_280.into(), &720.into()));
    assert_eq!((&balance["currency"], &balance["state"]), (&"USD".into(), &"healthy".into()));
    assert!(balance["projected_depletion_at"].is_string());
    let list = kit.money("ledger?page_size=2&kind=usage").await.ok();
    assert_eq!(list["items"][0]["kind"], "usage");
    let path =
        format!("ledger?project_id={}&from=2031-01-01T00:00:00Z&to=2032-01-01T00:00:00Z", kit.projects[0]);
    assert_eq!(kit.money(&path).await.ok()["items"].as_array().unwrap().len(), 2);
    let other = format!("ledger?project_id={}", kit.projects[1]);
    assert_eq!(kit.money(&other).await.ok()["items"].as_array().unwrap().len(), 0);
    let entry = kit.money("ledger/1").await.ok();
    assert_eq!(
        (&entry["posting"]["kind"], &entry["lines"][1]["account"]),
        (&"topup".into(), &"cash_stripe".into())
    );
    let export = kit.money("ledger/export").await;
    assert_eq!((export.status, export.content.as_str()), (StatusCode::OK, "application/x-ndjson"));
    let trusted = [keys(&kit.billing).unwrap().remove(0).public_key.0];
    let verified = verify_export(&export.text(), &trusted).unwrap();
    assert_eq!((verified.postings, verified.checkpoints), (3, 1));
    let found = kit.money("ledger/verify").await.ok();
    assert_eq!(
        (&found["ok"], &found["postings"], &found["head"]["seq"]),
        (&true.into(), &3.into(), &3.into())
    );
    assert_eq!(found["keys"][0]["current"], true);
}

#[tokio::test]
async fn an_administrator_verifies_every_ledger_and_sees_the_totals() {
    let kit = busy().await;
    let verify = async || kit.get(kit.admin, "/api/v1/platform/billing/ledger/verify").await.ok();
    let found = verify().await;
    assert_eq!((&found["ok"], &found["chains"], &found["broken"]), (&true.into(), &1.into(), &0.into()));
    let totals = kit.get(kit.admin, "/api/v1/platform/billing/totals").await.ok();
    assert_eq!(totals["ok"], true);
    kit.tamper("UPDATE ledger_lines SET amount_minor = amount_minor + 1 WHERE seq = 1 AND line = 2").await;
    let found = verify().await;
    assert_eq!((&found["ok"], &found["broken"]), (&false.into(), &1.into()));
    let fault = &found["faults"][0];
    assert_eq!((&fault["seq"], &fault["line"], &fault["reason"]), (&1.into(), &2.into(), &"changed".into()));
    assert_eq!(fault["org_id"], kit.org.to_string());
    assert_eq!(kit.get(kit.admin, "/api/v1/platform/billing/totals").await.ok()["ok"], false);
}

#[tokio::test]
async fn others_are_refused_and_nonsense_is_answered_as_such() {
    let kit = busy().await;
    for path in ["balance", "ledger", "ledger/1", "ledger/export", "ledger/verify"] {
        let path = format!("/api/v1/orgs/{}/billing/{path}", kit.org);
        let refused = kit.get(kit.viewer, &path).await.status;
        assert!(refused == StatusCode::FORBIDDEN || refused == StatusCode::NOT_FOUND, "{path}: {refused}");
    }
    for path in ["ledger/verify", "totals"] {
        let path = format!("/api/v1/platform/billing/{path}");
        assert_eq!(kit.get(kit.owner, &path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(kit.money("ledger/99").await.status, StatusCode::NOT_FOUND);
    for path in [
        "ledger/0",
        "ledger/-1",
        "ledger/x",
        "ledger/9223372036854775808",
        "ledger?kind=nothing",
        "ledger?from=never",
    ] {
        let answer = kit.money(path).await.status;
        assert!(answer.is_client_error() && answer != StatusCode::FORBIDDEN, "{path}: {answer}");
    }
}
