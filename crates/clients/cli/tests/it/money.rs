//! Money by commands alone: paid in, spent, given back, and checked without the server.

use serde_json::{Value, json};
use testkit::{PaySim, Person, ServerOptions, WEBHOOK_PATH, World, eventually};

use crate::kit::{Gpuaas, finish, line_of, text};

pub struct Shop {
    pub world: World,
    pub pay: PaySim,
    pub ada: Person,
    pub user: Gpuaas,
    pub operator: Gpuaas,
}

impl Shop {
    /// A platform that takes payments, and somebody with a project.
    pub async fn open() -> Self {
        let mut pay = PaySim::prepare();
        let config = pay.options().config;
        let world = World::start_with(ServerOptions { config, ..ServerOptions::default() }).await;
        pay.start(&format!("{}{WEBHOOK_PATH}", world.server.base), &[]).await;
        let ada = world.person("ada").await;
        let gpuaas = |token: &Option<String>| {
            Gpuaas::new(&world.server.base).env("GPUAAS_TOKEN", token.as_deref().unwrap())
        };
        let (user, operator) = (gpuaas(&ada.api.token), gpuaas(&world.admin.token));
        user.run(&["projects", "create", "lab"]).await.ok();
        Self { world, pay, ada, user, operator }
    }

    /// Pays money in, as a person at a browser does.
    pub async fn topup(&self, amount: &str) -> String {
        let arguments =
            ["billing", "topup", amount, "--no-browser", "--wait", "--timeout", "30", "-o", "json"];
        let mut child = self.user.start(&arguments);
        let line = line_of(&mut child, "/c/pay/").await;
        assert!(line.starts_with(&format!("Pay {amount} USD here: ")), "{line}");
        self.pay.press(line.trim().rsplit(' ').next().unwrap(), "pay").await;
        let ran = finish(child).await;
        assert!(ran.err.contains(&format!("{amount} USD added to the balance.")), "{ran:?}");
        let topup = ran.json();
        assert_eq!(topup["state"], "paid", "{topup}");
        text(&topup["id"])
    }

    pub async fn balance(&self) -> Value {
        self.user.json(&["billing", "balance"]).await
    }

    /// What an administrator gives.
    async fn give(&self, amount: &str) -> Value {
        let arguments =
            ["platform", "billing", "adjustments", "create", "--kind", "credit", "--amount", amount];
        let more = ["--reason", "welcome", "--org", &self.ada.org_id];
        self.operator.json(&[&arguments[..], &more].concat()).await
    }
}

#[tokio::test]
async fn money_is_paid_in_and_given_back_by_commands_alone() {
    let shop = Shop::open().await;
    assert_eq!(shop.balance().await["total_minor"], 0);
    let topup = shop.topup("20.00").await;
    let balance = shop.user.run(&["billing", "balance"]).await.ok();
    assert!(balance.contains("20.00 USD") && balance.contains("healthy"), "{balance}");
    let listed = shop.user.run(&["billing", "topups", "list"]).await.ok();
    assert!(listed.contains(&topup) && listed.contains("paid"), "{listed}");

    let payments = shop.user.json(&["billing", "payments", "list"]).await;
    let payment = text(&payments[0]["id"]);
    let create = ["platform", "billing", "refunds", "create", "--payment", &payment, "--amount", "5.50"];
    let refund = shop.operator.json(&[&create[..], &["--reason", "too much"]].concat()).await;
    let refund = text(&refund["id"]);
    eventually("the refund is done", || async {
        let now = shop.user.json(&["billing", "refunds", "show", &refund]).await;
        (now["state"] == "succeeded").then_some(())
    })
    .await;
    assert_eq!(shop.balance().await["total_minor"], 1450);
    // More than is left of the payment.
    let create = ["platform", "billing", "refunds", "create", "--payment", &payment, "--amount", "14.51"];
    let ran = shop.operator.run(&[&create[..], &["--reason", "too much"]].concat()).await;
    assert!(ran.code != Some(0) && ran.out.is_empty(), "{ran:?}");

    let kinds: Vec<String> = shop
        .user
        .json(&["ledger", "list"])
        .await
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|posting| text(&posting["kind"]))
        .collect();
    assert_eq!(kinds, ["topup", "refund"]);
    let shown = shop.user.run(&["ledger", "show", "1"]).await.ok();
    assert!(shown.contains("cash_stripe") && shown.contains("-20.00 USD"), "{shown}");
    let months = shop.user.json(&["billing", "statements", "list"]).await;
    assert_eq!(months.as_array().map(Vec::len), Some(1), "{months}");
    let totals = shop.operator.json(&["platform", "billing", "totals"]).await;
    assert!(totals.to_string().contains("cash_stripe"), "{totals}");
    let line =
        |text: &str| text.lines().find(|line| line.contains("cash_stripe")).unwrap_or_default().to_owned();
    let table = shop.operator.run(&["platform", "billing", "totals"]).await.ok();
    assert!(line(&table).ends_with(" USD") && line(&table).contains("cash_stripe  -"), "{table}");
    let csv = shop.operator.run(&["platform", "billing", "totals", "-o", "csv"]).await.ok();
    assert!(csv.starts_with("account,amount,currency\n"), "{csv}");
    let cells: Vec<String> = line(&csv).split(',').map(str::to_owned).collect();
    assert!(cells[1].parse::<f64>().is_ok_and(|amount| amount < 0.0) && cells[2] == "USD", "{csv}");
    shop.operator.run(&["platform", "billing", "verify"]).await.ok();
}

#[tokio::test]
async fn amounts_that_are_none_never_leave_the_machine_and_small_ones_are_refused() {
    let shop = Shop::open().await;
    for wrong in ["12.345", "ten", "1,50", ""] {
        let said = shop.user.run(&["billing", "topup", wrong, "--no-browser"]).await.fails(1);
        assert!(said.contains("is not an amount in USD"), "{wrong}: {said}");
    }
    let said = shop.user.run(&["billing", "topup", "0.50", "--no-browser"]).await.fails(1);
    assert!(said.contains("10.00") || said.contains("1000"), "says how much it must be: {said}");
    assert_eq!(shop.user.json(&["billing", "topups", "list"]).await, json!([]));
    // Unpaid, and given up.
    let topup = shop.user.json(&["billing", "topup", "15.00", "--no-browser"]).await;
    assert!(text(&topup["url"]).contains("/c/pay/"), "{topup}");
    shop.user.run(&["billing", "topups", "cancel", &text(&topup["id"])]).await.ok();
    assert_eq!(shop.balance().await["total_minor"], 0);
}

#[tokio::test]
async fn the_same_key_pays_once_however_often_the_command_is_repeated() {
    let shop = Shop::open().await;
    let command = ["billing", "topup", "15.00", "--no-browser", "--idempotency-key", "april-1"];
    let first = shop.user.json(&command).await;
    let again = shop.user.json(&command).await;
    assert_eq!(first["id"], again["id"]);
    assert_eq!(shop.user.json(&["billing", "topups", "list"]).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_flipped_byte_in_an_export_of_the_ledger_is_found_and_its_posting_named() {
    let shop = Shop::open().await;
    for amount in ["25.00", "30.00", "35.00"] {
        assert_eq!(shop.give(amount).await["state"], "posted");
    }
    assert_eq!(shop.user.json(&["ledger", "verify"]).await["ok"], true);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ledger.ndjson");
    let file = file.to_str().unwrap();
    shop.user.run(&["ledger", "export", "-f", file]).await.ok();
    let export = std::fs::read_to_string(file).unwrap();
    assert_eq!(shop.user.run(&["ledger", "export"]).await.ok(), export);

    // Offline: a program that knows no server.
    let offline = Gpuaas::new("http://127.0.0.1:1");
    let found = offline.json(&["ledger", "verify", "--file", file]).await;
    assert_eq!((&found["ok"], &found["postings"]), (&json!(true), &json!(3)), "{found}");
    let piped = offline.run_with(&["ledger", "verify", "--file", "-", "-o", "json"], &export).await.json();
    assert_eq!(piped, found);
    let changed = export.replacen("\"amount_minor\":3000", "\"amount_minor\":9000", 1);
    assert_ne!(changed, export);
    let said = offline.run_with(&["ledger", "verify", "--file", "-"], &changed).await.fails(1);
    assert!(said.contains(&shop.ada.org_id) && said.contains("posting 2 "), "{said}");
    let shorter: String = export
        .lines()
        .filter(|line| !line.contains("9000") && !line.contains("3500"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_ne!(shorter, export);
    offline.run_with(&["ledger", "verify", "--file", "-"], &shorter).await.fails(1);

    // In the database, behind everybody's back.
    let change = "SET session_replication_role = replica;
        UPDATE ledger_lines SET amount_minor = amount_minor * 2 WHERE seq = 2";
    shop.world.db.sql(change).await;
    let ran = shop.user.run(&["ledger", "verify"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("posting 2 "), "{ran:?}");
}

#[tokio::test]
async fn a_budget_is_set_shown_and_taken_away() {
    let shop = Shop::open().await;
    let user = &shop.user;
    user.run(&["billing", "budgets", "show", "-p", "lab"]).await.fails(4);
    let set = ["billing", "budgets", "set", "-p", "lab", "--amount", "500.00", "--threshold", "80"];
    let budget = user.json(&[&set[..], &["--action", "block"]].concat()).await;
    assert_eq!((&budget["amount_minor"], &budget["action"]), (&json!(50_000), &json!("block")), "{budget}");
    let shown = user.run(&["billing", "budgets", "list"]).await.ok();
    assert!(shown.contains("500.00 USD") && shown.contains("0.00 USD"), "{shown}");
    user.run(&["billing", "budgets", "delete", "-p", "lab"]).await.fails(1);
    user.run(&["billing", "budgets", "delete", "-p", "lab", "--yes"]).await.ok();
    assert_eq!(user.json(&["billing", "budgets", "list"]).await, json!([]));
}

#[tokio::test]
async fn money_of_others_is_neither_seen_nor_moved() {
    let shop = Shop::open().await;
    shop.give("25.00").await;
    let bob = shop.world.person("bob").await;
    let bob = Gpuaas::new(&shop.world.server.base).env("GPUAAS_TOKEN", bob.api.token.as_deref().unwrap());
    let org = shop.ada.org_id.as_str();
    for command in [
        &["billing", "balance", "--org", org][..],
        &["ledger", "list", "--org", org],
        &["ledger", "export", "--org", org],
        &["billing", "topup", "20.00", "--no-browser", "--org", org],
    ] {
        let ran = bob.run(command).await;
        assert!(matches!(ran.code, Some(3 | 4)) && ran.out.is_empty(), "{command:?}: {ran:?}");
    }
    let create = ["platform", "billing", "adjustments", "create", "--kind", "credit", "--amount", "5.00"];
    shop.user.run(&[&create[..], &["--reason", "for me", "--org", org]].concat()).await.fails(3);
    assert_eq!(shop.balance().await["total_minor"], 2500);
}
