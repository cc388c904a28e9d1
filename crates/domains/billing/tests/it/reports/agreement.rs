//! Whatever happened: exports, reports, statements and the ledger agree to the minor unit.

use kernel::ids::AllocationId;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    kit::{Kit, minor, sum},
    paper,
};

#[derive(Clone, Debug)]
enum Step {
    Fund(i64),
    Credit(i64),
    Promo(i64),
    Correct(i64),
    Refund(i64),
    Launch { project: usize, sku: usize, price: i64, units: i32 },
    LaunchFails { price: i64 },
    Pass(i64),
    Close(usize),
    Pause(usize, i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (1i64..50_000).prop_map(Step::Fund),
        1 => (1i64..2_000).prop_map(Step::Credit),
        1 => (1i64..2_000).prop_map(Step::Promo),
        1 => prop_oneof![-2_000i64..-1, 1i64..2_000].prop_map(Step::Correct),
        1 => (1i64..500).prop_map(Step::Refund),
        3 => (0usize..2, 0usize..2, 1i64..3_000, 1i32..9)
            .prop_map(|(project, sku, price, units)| Step::Launch { project, sku, price, units }),
        1 => (1i64..3_000).prop_map(|price| Step::LaunchFails { price }),
        5 => (1i64..9_000).prop_map(Step::Pass),
        2 => (0usize..4).prop_map(Step::Close),
        1 => (0usize..4, 0i64..5_000).prop_map(|(which, ago)| Step::Pause(which, ago)),
    ];
    prop::collection::vec(step, 4..24)
}

async fn run(kit: &Kit, steps: &[Step]) {
    const SKUS: [&str; 2] = ["h200-slice", "=b200, \"whole\""];
    let mut running: Vec<AllocationId> = Vec::new();
    kit.fund(100_000).await;
    for step in steps {
        match step {
            Step::Fund(amount) => kit.fund(*amount).await,
            Step::Credit(amount) => {
                kit.adjust(
                    json!({ "kind": "credit", "amount_minor": amount, "reason": "<b>sorry</b> & thanks" }),
                )
                .await
                .ok();
            }
            Step::Promo(amount) => {
                kit.adjust(json!({ "kind": "promo", "amount_minor": amount })).await.ok();
            }
            Step::Correct(amount) => {
                let first: uuid::Uuid = kit.one("SELECT id FROM ledger_postings WHERE seq = 1").await;
                let first = kernel::ids::PostingId::from(first);
                kit.adjust(
                    json!({ "kind": "correction", "amount_minor": amount, "corrects_entry_id": first }),
                )
                .await
                .ok();
            }
            Step::Refund(amount) => {
                use billing::api::{Account, Line, PostingKind};
                let lines = vec![Line::new(Account::Prepaid, -amount), Line::new(Account::Refunds, *amount)];
                kit.post(PostingKind::Refund, "back to the card", lines).await;
            }
            Step::Launch { project, sku, price, units } => {
                // There may be too little for it.
                running.extend(kit.launch(*project, SKUS[*sku], *price, *units).await.ok());
            }
            Step::LaunchFails { price } => {
                if let Ok(allocation) = kit.hold_create(0, SKUS[0], *price, 1).await {
                    kit.fail(allocation).await;
                }
            }
            Step::Pass(seconds) => {
                kit.pass(*seconds);
                kit.tick().await;
            }
            Step::Close(which) if *which < running.len() => kit.close(running.remove(*which)).await,
            Step::Pause(which, ago) if *which < running.len() => kit.pause(running[*which], *ago).await,
            Step::Close(_) | Step::Pause(..) => {}
        }
    }
    kit.tick().await;
}

/// The statement of a month, held against everything else; answers it.
async fn month_agrees(kit: &Kit, month: &str) -> Value {
    let charged = kit.charged(month).await;
    let focus = kit.money(&format!("focus/{month}")).await;
    assert_eq!(focus.content, "text/csv");
    let rows = focus.table();
    assert_eq!(rows.iter().map(|row| minor(&row["BilledCost"])).sum::<i64>(), charged, "FOCUS of {month}");
    for row in &rows {
        assert_eq!(&row["BillingPeriodStart"][..7], month);
        assert!(row["ChargePeriodStart"] < row["ChargePeriodEnd"], "{row:?}");
        let negative = matches!(row["ChargeCategory"].as_str(), "Credit");
        assert!(!negative || minor(&row["BilledCost"]) <= 0, "{row:?}");
    }
    let statement = kit.money(&format!("statements/{month}")).await.ok();
    let (changes, usage) = (&statement["changes"], statement["usage"].as_array().unwrap());
    let moved: i64 = changes.as_object().unwrap().values().map(|value| value.as_i64().unwrap()).sum();
    let (opening, closing) =
        (statement["opening_minor"].as_i64().unwrap(), statement["closing_minor"].as_i64().unwrap());
    assert_eq!(opening + moved, closing, "{statement}");
    assert_eq!(changes["holds_minor"], 0);
    assert_eq!(sum(usage, "amount_minor"), -changes["usage_minor"].as_i64().unwrap(), "{statement}");
    // Charges and gifts of the exports are those of the statement.
    let gifts = ["usage_minor", "credits_minor", "promo_minor", "corrections_minor"];
    assert_eq!(gifts.iter().map(|field| changes[field].as_i64().unwrap()).sum::<i64>(), -charged);
    let used: i64 = rows
        .iter()
        .filter(|row| row["ChargeCategory"] == "Usage" && row["ChargeClass"].is_empty())
        .map(|row| minor(&row["BilledCost"]))
        .sum();
    assert_eq!(used, sum(usage, "amount_minor"));
    // On screen and on paper are the same words and amounts.
    let page = kit.money(&format!("statements/{month}/html")).await;
    assert_eq!(page.content, "text/html");
    assert!(!page.text().contains("<b>"), "markup of people");
    let cells = paper::of_html(&page.text());
    for amount in [opening, closing, changes["usage_minor"].as_i64().unwrap(), sum(usage, "amount_minor")] {
        assert!(
            cells.iter().any(|cell| cell.ends_with(|c: char| c.is_ascii_digit())
                && cell.contains('.')
                && minor_of(cell) == Some(amount)),
            "{amount} in {cells:?}"
        );
    }
    let document = kit.money(&format!("statements/{month}/pdf")).await;
    assert_eq!(document.content, "application/pdf");
    let shown = paper::of_pdf(&document.bytes);
    let amounts = |texts: &[String]| -> Vec<i64> { texts.iter().filter_map(|text| minor_of(text)).collect() };
    assert_eq!(amounts(&shown), amounts(&cells), "paper and screen");
    statement
}

fn minor_of(text: &str) -> Option<i64> {
    let (whole, rest) = text.split_once('.')?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole.trim_start_matches('-')) && rest.len() == 2 && digits(rest)).then(|| minor(text))
}

async fn everything_agrees(kit: &Kit) {
    let first = month_agrees(kit, "2031-01").await;
    if kit.now().to_rfc3339().starts_with("2031-02") {
        let posted: i64 =
            kit.one("SELECT count(*) FROM ledger_postings WHERE posted_at >= '2031-02-01T00:00:00Z'").await;
        let second = month_agrees(kit, "2031-02").await;
        assert_eq!(second["opening_minor"], first["closing_minor"]);
        assert_eq!(second["opening"], first["closing"]);
        if posted == 0 {
            assert_eq!(second["closing"], first["closing"]);
        }
    }
    // CSV, records and reports are all of one sum, however they are cut.
    let used: i64 = kit.one("SELECT coalesce(sum(amount_minor), 0)::bigint FROM usage_records").await;
    let table = kit.money("usage/export").await.table();
    assert_eq!(table.iter().map(|row| row["amount_minor"].parse::<i64>().unwrap()).sum::<i64>(), used);
    let ledger: i64 = kit
        .one(
            "SELECT coalesce(sum(l.amount_minor), 0)::bigint FROM ledger_lines l JOIN ledger_postings p USING (org_id, seq, posted_at)
             WHERE l.account IN ('revenue', 'credits_granted') AND (p.kind = 'usage' OR l.meter_id IS NOT NULL)",
        )
        .await;
    assert_eq!(used, ledger, "usage and ledger");
    let mut records = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = kit.money(&format!("usage/records?page_size=7{cursor}")).await.ok();
        records.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((records.len(), sum(&records, "amount_minor")), (table.len(), used));
    for cut in [
        "",
        "group=project",
        "group=sku,project",
        "group=person&every=hour",
        "group=allocation&every=day",
        "every=month",
    ] {
        let mut rows = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = kit.money(&format!("usage?page_size=3&{cut}{cursor}")).await.ok();
            rows.extend(page["items"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(sum(&rows, "cost_minor"), used, "{cut}");
        assert_eq!(sum(&rows, "unit_seconds"), sum(&records, "unit_seconds"), "{cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn exports_reports_statements_and_ledger_agree_to_the_minor_unit(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            // Hours before the end of a month.
            let kit = Kit::at("2031-01-31T20:10:00.25Z").await;
            run(&kit, &steps).await;
            everything_agrees(&kit).await;
        });
    }
}
