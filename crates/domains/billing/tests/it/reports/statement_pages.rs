//! Statements with names, numbers, the seller and a tax, in every script.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use billing::{
    Billing,
    api::ResourceNames,
    model::particulars::{Seller, TaxRule},
    service::statement_numbers::statements_issue,
};
use kernel::{Failure, ids::AllocationId};
use pg::{Connection, Roles};
use serde_json::{Value, json};
use sqlx::Executor as _;
use testworld::Tenants;

use super::{kit::Kit, paper};

/// Every allocation and product has a name.
struct AllNamed;

#[async_trait]
impl ResourceNames for AllNamed {
    async fn allocation_names(
        &self,
        _: &mut Connection,
        ids: &[AllocationId],
    ) -> Result<HashMap<AllocationId, String>, Failure> {
        Ok(ids.iter().map(|id| (*id, "train-1".to_owned())).collect())
    }

    async fn product_names(
        &self,
        _: &mut Connection,
        skus: &[String],
    ) -> Result<HashMap<String, String>, Failure> {
        Ok(skus.iter().map(|sku| (sku.clone(), format!("{} SXM", sku.to_uppercase()))).collect())
    }
}

fn seller() -> Seller {
    Seller {
        name: "Rechenzentrum Köln GmbH".to_owned(),
        address: vec!["Straße 1".to_owned(), "50667 Köln".to_owned()],
        tax_id: Some("DE123456789".to_owned()),
        email: Some("billing@example.org".to_owned()),
    }
}

fn vat(included: bool) -> TaxRule {
    TaxRule { name: "VAT".to_owned(), rate_basis_points: 1900, included }
}

fn configured(billing: Billing) -> Billing {
    billing.with_seller(Some(seller()), Some(vat(true))).with_names(Arc::new(AllNamed))
}

async fn rename(kit: &Kit, name: &str) {
    kit.tamper(&format!("UPDATE organizations SET name = '{name}' WHERE id = '{}'", kit.org.uuid())).await;
}

/// A month of 119.00, of which the machine of a project was a part, and one given back for a fault.
async fn month() -> Kit {
    let kit = Kit::with("2031-05-06T07:00:00Z", configured).await;
    kit.policy("billing.launch_hold_seconds", 0).await;
    kit.fund(100_000).await;
    let machine = kit.launch(0, "h200", 11_900, 1).await.unwrap();
    kit.pass(3600);
    kit.close(machine).await;
    kit.tick().await;
    kit
}

async fn statement(kit: &Kit, month: &str) -> Value {
    kit.money(&format!("statements/{month}")).await.ok()
}

async fn read_pdf(kit: &Kit, month: &str) -> String {
    paper::of_pdf(&kit.money(&format!("statements/{month}/pdf")).await.bytes).join("\n")
}

#[tokio::test]
async fn a_statement_names_seller_customer_project_and_product_and_shows_the_tax() {
    let kit = month().await;
    rename(&kit, "Acme AG").await;
    let shown = statement(&kit, "2031-05").await;
    assert_eq!(
        (&shown["buyer"]["name"], &shown["seller"]["tax_id"]),
        (&json!("Acme AG"), &json!("DE123456789"))
    );
    let usage = &shown["usage"][0];
    assert_eq!((&usage["product_name"], &usage["amount_minor"]), (&json!("H200 SXM"), &json!(11_900)));
    let project: String =
        kit.one(&format!("SELECT name FROM projects WHERE id = '{}'", kit.projects[0].uuid())).await;
    assert_eq!(usage["project_name"], json!(project));
    let tax = json!({ "name": "VAT", "rate_percent": "19", "included": true, "net_minor": 10_000, "tax_minor": 1_900,
        "gross_minor": 11_900 });
    assert_eq!(shown["tax"], tax);
    // A provisional statement has no number, and no money was moved for the tax.
    assert!(shown.get("number").is_none() && shown["provisional"] == true);
    assert_eq!(shown["closing_minor"], 88_100);
    let text = read_pdf(&kit, "2031-05").await;
    let html = kit.money("statements/2031-05/html").await.text();
    for part in [
        "Rechenzentrum Köln GmbH",
        "50667 Köln",
        "Tax id DE123456789",
        "Acme AG",
        "H200 SXM",
        "VAT 19 %",
        "19.00",
    ] {
        assert!(text.contains(part), "{part}: {text}");
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(text.contains(&project) && !text.contains(&kit.projects[0].to_string()), "{text}");
}

#[tokio::test]
async fn the_ledger_says_how_much_in_which_direction_and_for_what() {
    let kit = month().await;
    let listed = kit.money("ledger").await.ok();
    let shown: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["amount_minor"].clone(), item["direction"].clone(), item["description"].clone()))
        .collect();
    let usage = json!("Usage: 1 × H200 SXM, allocation train-1 in project default");
    assert_eq!(shown[0], (json!(-11_900), json!("debit"), usage), "{listed}");
    assert_eq!(shown[1], (json!(100_000), json!("credit"), json!("Top-up: a test")), "{listed}");
    let about = &listed["items"][0]["allocations"][0];
    assert_eq!(
        (&about["allocation_name"], &about["sku"], &about["units"]),
        (&json!("train-1"), &json!("h200"), &json!(1))
    );
    // What is hashed is as it was.
    assert!(kit.money("ledger/verify").await.ok()["ok"] == true);
}

#[tokio::test]
async fn a_credit_names_the_allocation_that_it_is_for() {
    let kit = Kit::with("2031-05-06T07:00:00Z", configured).await;
    kit.policy("billing.launch_hold_seconds", 0).await;
    kit.fund(100_000).await;
    let machine = kit.launch(0, "h200", 600, 1).await.unwrap();
    kit.pass(3600);
    kit.tick().await;
    kit.pause(machine, 1800).await;
    let shown = statement(&kit, "2031-05").await;
    let credit = shown["movements"].as_array().unwrap().iter().find(|one| one["kind"] == "credit").unwrap();
    assert_eq!((&credit["allocation_name"], &credit["amount_minor"]), (&json!("train-1"), &json!(300)));
    assert!(read_pdf(&kit, "2031-05").await.contains("(allocation train-1)"));
}

#[tokio::test]
async fn numbers_follow_each_other_without_a_gap_over_all_organizations_and_keep_what_they_were_issued_with()
{
    let kit = month().await;
    assert_eq!(statements_issue(&kit.billing).await.unwrap(), 0, "the month has not ended");
    let other = Tenants::new(&kit.test.db).tenant("other").await;
    testmoney::TestMoney::new(&kit.test.db).fund(other.org, 500).await;
    rename(&kit, "Before").await;
    kit.pass(60 * 86_400);
    // Two workers at once, and again.
    // A number is for ever, and so would be the seller that is missing.
    let nobody = kit.billing.clone().with_seller(None, None);
    assert_eq!(statements_issue(&nobody).await.unwrap(), 0);
    let (a, b) = tokio::join!(statements_issue(&kit.billing), statements_issue(&kit.billing));
    assert_eq!(a.unwrap() + b.unwrap(), 4);
    assert_eq!(statements_issue(&kit.billing).await.unwrap(), 0);
    let gaps = "SELECT max(number) - count(*) FROM statement_numbers";
    assert_eq!(kit.one::<i64>(gaps).await, 0);
    rename(&kit, "After").await;
    let may = statement(&kit, "2031-05").await;
    assert_eq!((&may["buyer"]["name"], &may["provisional"]), (&json!("Before"), &json!(false)));
    let number = may["number"].as_str().unwrap();
    assert!(number.starts_with("S-00000"), "{number}");
    let text = read_pdf(&kit, "2031-05").await;
    assert!(
        text.contains(&format!("Statement 2031-05 {number}")) && text.contains("issued 2031-07-05"),
        "{text}"
    );
    let listed = kit.money("statements").await.ok();
    let numbers: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|item| item["number"].clone()).collect();
    assert_eq!((numbers.len(), &numbers[0], &numbers[2]), (3, &Value::Null, &json!(number)));
}

#[tokio::test]
async fn the_database_refuses_gaps_second_numbers_and_changes() {
    let kit = month().await;
    kit.pass(30 * 86_400);
    assert_eq!(statements_issue(&kit.billing).await.unwrap(), 1);
    let insert = |number: i64, month: &str| {
        format!(
            "INSERT INTO statement_numbers (number, org_id, month, issued_at, particulars)
             VALUES ({number}, '{}', '{month}', now(), '{{}}')",
            kit.org.uuid()
        )
    };
    let attempts = [
        (insert(3, "2031-06-01"), "statement_numbers_previous_fkey"),
        (insert(1, "2031-06-01"), "statement_numbers_pkey"),
        (insert(2, "2031-05-01"), "statement_numbers_by_org"),
        (insert(2, "2031-06-02"), "statement_numbers_month_check"),
        ("UPDATE statement_numbers SET issued_at = now()".to_owned(), ""),
        ("DELETE FROM statement_numbers".to_owned(), ""),
    ];
    for (sql, constraint) in attempts {
        let mut conn = kit.test.conn(Roles::Owner).await;
        let refused = conn.execute(sqlx::AssertSqlSafe(sql.clone())).await.map(|_| ()).unwrap_err();
        let violated = refused.as_database_error().and_then(|error| error.constraint()).unwrap_or_default();
        assert_eq!(violated, constraint, "{sql}: {refused}");
    }
}

#[tokio::test]
async fn names_of_every_script_are_letters_in_the_pdf() {
    let kit = month().await;
    let names = [
        "Ünïcode & Łódź “Ltd” €",
        "Ελληνική Εταιρεία",
        "Российская компания",
        "北京计算有限公司",
        "東京コンピュータ かな",
        "서울 컴퓨터",
        "कंप्यूटर",
        "ภาษาไทย",
        "Հայաստան",
        "საქართველო",
    ];
    for name in names {
        rename(&kit, name).await;
        let text = read_pdf(&kit, "2031-05").await;
        // A reader sees a gap where a mark takes no room.
        let letters = |text: &str| text.replace(' ', "");
        assert!(letters(&text).contains(&letters(name)), "{name}: {text}");
        assert!(!text.contains('\u{fffd}'), "{text}");
    }
    // From right to left: readers give the letters in one order or the other.
    for name in ["חברה בעמ", "شركة الحوسبة"] {
        rename(&kit, name).await;
        let text = read_pdf(&kit, "2031-05").await;
        for word in name.split(' ') {
            let turned: String = word.chars().rev().collect();
            assert!(text.contains(word) || text.contains(&turned), "{word}: {text}");
        }
    }
}

#[tokio::test]
async fn without_a_seller_and_a_tax_a_statement_says_nothing_of_them() {
    let kit = Kit::new().await;
    kit.fund(1000).await;
    let shown = statement(&kit, "2031-05").await;
    assert!(
        shown.get("seller").is_none() && shown.get("tax").is_none() && shown["buyer"]["name"].is_string()
    );
    let text = read_pdf(&kit, "2031-05").await;
    assert!(
        text.contains("Customer") && !text.contains("Seller") && !text.contains("Tax on usage"),
        "{text}"
    );
}
