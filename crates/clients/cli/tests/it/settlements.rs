//! Refunds of which nobody knows whether they were sent, settled by commands.

use serde_json::{Value, json};
use testkit::eventually;

use crate::{
    kit::{Gpuaas, text},
    money::Shop,
};

async fn refund(shop: &Shop, payment: &str, amount: &str) -> String {
    let create = ["platform", "billing", "refunds", "create", "--payment", payment, "--amount", amount];
    text(&shop.operator.json(&[&create[..], &["--reason", "too much"]].concat()).await["id"])
}

async fn show(person: &Gpuaas, refund: &str) -> Value {
    person.json(&["platform", "billing", "refunds", "show", refund]).await
}

/// The provider is away, and was asked for the first time so long ago that it has forgotten the key.
async fn unknown(shop: &Shop, payment: &str, amount: &str) -> String {
    let refund = refund(shop, payment, amount).await;
    let attempted =
        "SELECT count(*) FROM refunds WHERE state = 'pending' AND attempts > 0 AND leased_until IS NULL";
    eventually("the provider was asked", || async { (shop.world.count(attempted).await > 0).then_some(()) })
        .await;
    eventually("the worker gives up", || async {
        let day_later =
            "UPDATE refunds SET first_attempt_at = now() - interval '21 hours', next_attempt_at = now()
             WHERE state = 'pending' AND unknown_since IS NULL";
        shop.world.db.sql(day_later).await;
        show(&shop.operator, &refund).await["unknown_since"].is_string().then_some(())
    })
    .await;
    refund
}

async fn settle(person: &Gpuaas, refund: &str, outcome: &[&str]) -> crate::kit::Ran {
    let arguments = ["platform", "billing", "refunds", "settle", refund, "--reason", "seen in the dashboard"];
    person.run(&[&arguments[..], &["--outcome"], outcome].concat()).await
}

async fn findings(shop: &Shop) -> usize {
    let listed = shop.operator.json(&["platform", "billing", "findings", "list"]).await;
    let open = |finding: &&Value| finding["kind"] == "refund_unknown" && finding["resolved_at"].is_null();
    listed.as_array().unwrap().iter().filter(open).count()
}

#[tokio::test]
async fn unknown_refunds_are_settled_both_ways_and_the_ledger_agrees() {
    let mut shop = Shop::open().await;
    let second = shop.world.person("second").await;
    shop.world.grant_platform_role(&second, "platform_admin").await;
    let second =
        Gpuaas::new(&shop.world.server.base).env("GPUAAS_TOKEN", second.api.token.as_deref().unwrap());
    shop.topup("20.00").await;
    let payment = text(&shop.user.json(&["billing", "payments", "list"]).await[0]["id"]);
    shop.pay.kill();

    let lost = refund(&shop, &payment, "5.00").await;
    let said = settle(&second, &lost, &["not_sent"]).await.fails(5);
    assert!(said.contains("still in progress") && said.contains("unknown_since"), "{said}");
    let other = unknown(&shop, &payment, "3.00").await;
    // The first one was given up with it.
    eventually("both are unknown", || async { (findings(&shop).await == 2).then_some(()) }).await;
    let listed = second.run(&["platform", "billing", "refunds", "list"]).await.ok();
    assert!(
        listed.contains("UNKNOWN SINCE") && listed.contains(&lost) && listed.contains(&other),
        "{listed}"
    );
    let ran = second.run(&["platform", "billing", "refunds", "show", &lost]).await;
    assert!(ran.err.contains(&format!("gpuaas platform billing refunds settle {lost}")), "{ran:?}");
    assert_eq!(shop.balance().await["total_minor"], 1200);

    // Not sent: by another than who asked for it.
    let said = settle(&shop.operator, &lost, &["not_sent"]).await.fails(3);
    assert!(said.contains("another administrator"), "{said}");
    let said = settle(&second, &lost, &["sent"]).await.fails(1);
    assert!(said.contains("--provider-refund"), "{said}");
    let done = settle(&second, &lost, &["not_sent"]).await;
    assert!(done.err.contains("5.00 USD returned to the balance"), "{done:?}");
    assert!(done.ok().contains("failed"));
    assert_eq!(shop.balance().await["total_minor"], 1700);
    let said = settle(&second, &lost, &["not_sent"]).await.fails(5);
    assert!(said.contains("already failed"), "{said}");

    // Sent: also by who asked for it, since nothing comes back.
    let done = settle(&shop.operator, &other, &["sent", "--provider-refund", "re_seen"]).await;
    assert!(done.err.contains("Recorded as sent") && done.err.contains("re_seen"), "{done:?}");
    assert!(done.ok().contains("succeeded"));
    let shown = show(&second, &other).await;
    assert_eq!(
        (&shown["state"], &shown["provider_refund"], shown.get("unknown_since")),
        (&json!("succeeded"), &json!("re_seen"), None)
    );
    assert_eq!((shop.balance().await["total_minor"].as_i64(), findings(&shop).await), (Some(1700), 0));
    // No other refund can be the same one at the provider.
    let third = unknown(&shop, &payment, "1.00").await;
    let said = settle(&second, &third, &["sent", "--provider-refund", "re_seen"]).await.fails(5);
    assert!(said.contains("another refund"), "{said}");

    let postings = shop.user.json(&["ledger", "list"]).await;
    let postings: Vec<String> =
        postings.as_array().unwrap().iter().rev().map(|posting| text(&posting["kind"])).collect();
    assert_eq!(postings, ["topup", "refund", "refund", "correction", "refund"]);
    assert_eq!(shop.user.json(&["ledger", "verify"]).await["ok"], true);
    second.run(&["platform", "billing", "verify"]).await.ok();
}

#[tokio::test]
async fn a_refund_that_is_being_sent_is_not_settled_and_the_person_reads_how_long_to_wait() {
    let mut shop = Shop::open().await;
    let second = shop.world.person("second").await;
    shop.world.grant_platform_role(&second, "platform_admin").await;
    let second =
        Gpuaas::new(&shop.world.server.base).env("GPUAAS_TOKEN", second.api.token.as_deref().unwrap());
    shop.topup("20.00").await;
    let payment = text(&shop.user.json(&["billing", "payments", "list"]).await[0]["id"]);
    shop.pay.kill();
    let refund = unknown(&shop, &payment, "5.00").await;
    // A replica of an earlier release, which does not know that it is unknown, takes it to the provider.
    shop.world
        .db
        .sql("UPDATE refunds SET attempts = attempts + 1, next_attempt_at = now() + interval '90 seconds'")
        .await;
    let said = settle(&second, &refund, &["not_sent"]).await.fails(5);
    assert!(said.contains("may be sending the refund") && said.contains("seconds"), "{said}");
    assert_eq!(shop.balance().await["total_minor"], 1500);
    shop.world.db.sql("UPDATE refunds SET leased_until = now() - interval '1 second'").await;
    settle(&second, &refund, &["not_sent"]).await.ok();
    assert_eq!(shop.balance().await["total_minor"], 2000);
}
