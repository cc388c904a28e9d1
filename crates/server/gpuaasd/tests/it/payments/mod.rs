//! Payments end to end: the control plane, the simulated provider, and Stripe's own SDK as the judge.

mod disputes;
mod outgoing;
mod reconcile;
mod refunds;
mod signatures;
mod storm;
mod topups;

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Answer, PaySim, Person, ServerOptions, WEBHOOK_PATH, World, eventually, eventually_within};

/// A platform that takes payments, the provider, and a customer.
struct Shop {
    world: World,
    pay: PaySim,
    ada: Person,
}

struct Topup {
    id: String,
    url: String,
}

impl Topup {
    /// The provider's own id of the checkout.
    fn session(&self) -> &str {
        self.url.rsplit('/').next().expect("the end of the address")
    }
}

impl Shop {
    /// With chaos: `arguments` of the provider.
    async fn open(arguments: &[&str]) -> Self {
        Self::open_with(PaySim::prepare(), arguments).await
    }

    async fn open_with(mut pay: PaySim, arguments: &[&str]) -> Self {
        // Webhooks of tests are on this machine.
        let config = pay.options().config + "[notify]\nprivate_webhooks = true\n";
        let world = World::start_with(ServerOptions { config, ..ServerOptions::default() }).await;
        pay.start(&format!("{}{WEBHOOK_PATH}", world.server.base), arguments).await;
        let ada = world.person("ada").await;
        Self { world, pay, ada }
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/orgs/{}/billing/{rest}", self.ada.org_id)
    }

    async fn topup(&self, amount: i64) -> Topup {
        let key = format!("topup-{amount}-{}", kernel::Ambient::system().uuid());
        let body = json!({ "amount_minor": amount });
        let asked = self.ada.api.post_once(&key, &self.path("topups"), body).await;
        assert!(matches!(asked.status, 201 | 202), "{}", asked.text);
        let id = asked.body["id"].as_str().expect("an id").to_owned();
        let url = eventually("there is a checkout", || async {
            let topup = self.topup_get(&id).await;
            assert!(matches!(topup["state"].as_str(), Some("created" | "open")), "{topup}");
            topup["url"].as_str().map(str::to_owned)
        })
        .await;
        Topup { id, url }
    }

    async fn topup_get(&self, id: &str) -> Value {
        self.ada.api.get(&self.path(&format!("topups/{id}"))).await.expect(200)
    }

    /// Tops up and pays, as a person does; gives the payment when it is credited.
    async fn paid(&self, amount: i64) -> Value {
        let topup = self.topup(amount).await;
        self.pay.press(&topup.url, "pay").await;
        self.payment_of(&topup).await
    }

    async fn payment_of(&self, topup: &Topup) -> Value {
        eventually("the payment is credited", || async {
            let payments = self.ada.api.get(&self.path("payments")).await.expect(200);
            let all = payments["items"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|payment| payment["topup_id"] == topup.id.as_str())
        })
        .await
    }

    async fn balance(&self) -> Value {
        self.ada.api.get(&self.path("balance")).await.expect(200)
    }

    /// Waits until the balance is so much, free and frozen.
    async fn has(&self, prepaid: i64, disputed: i64) {
        let what = format!("the balance is {prepaid}, and {disputed} frozen");
        eventually_within(Duration::from_secs(30), &what, || async {
            let now = self.balance().await;
            (now["prepaid_minor"] == prepaid && now["disputed_minor"] == disputed).then_some(())
        })
        .await;
    }

    /// Sends a message to the control plane, as anybody could.
    async fn webhook_post(&self, signature: &str, body: &[u8]) -> Answer {
        let api = self.world.server.api();
        let request = api.request(reqwest::Method::POST, WEBHOOK_PATH);
        api.send(request.header("stripe-signature", signature).body(body.to_vec())).await
    }

    /// Waits until nothing that was told waits to be acted on.
    async fn all_processed(&self) {
        self.pay.all_delivered().await;
        eventually("every message is processed", || async {
            let waiting = "SELECT count(*) FROM payment_messages WHERE state = 'received'";
            (self.world.count(waiting).await == 0).then_some(())
        })
        .await;
    }

    /// Whatever happened: each payment is in the ledger once, and the ledger is in balance.
    async fn books_are_right(&self, payments: i64) {
        let count = |sql: &'static str| self.world.count(sql);
        assert_eq!(count("SELECT count(*) FROM payments").await, payments);
        let posted = "SELECT count(DISTINCT reference) FROM ledger_postings WHERE kind = 'topup'";
        assert_eq!(count(posted).await, payments);
        assert_eq!(count("SELECT count(*) FROM ledger_postings WHERE kind = 'topup'").await, payments);
        assert_eq!(count("SELECT coalesce(sum(amount_minor), 0)::bigint FROM ledger_lines").await, 0);
        let failed = "SELECT count(*) FROM payment_messages WHERE state = 'failed'";
        assert_eq!(count(failed).await, 0, "messages failed");
    }
}
