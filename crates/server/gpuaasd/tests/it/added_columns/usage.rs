//! What people and nodes do with the product, in rounds.

use serde_json::{Value, json};
use testkit::{Api, SimulatedNodes, Tenant, WebhookSink, World, eventually, sign_in};

pub const SLICE: &str = "h200-sxm-slice";

/// Somebody whose allocation runs from beginning to end.
pub struct Usage {
    tenant: Tenant,
    pub allocation: String,
    pub node: String,
    sink: WebhookSink,
}

fn id(made: &Value) -> &str {
    made["id"].as_str().unwrap()
}

impl Usage {
    pub async fn begin(world: &World, nodes: &SimulatedNodes) -> Self {
        let tenant = world.tenant("ann").await;
        let allocation = tenant.active(json!({ "sku": SLICE, "gpus": 1 })).await;
        Self { tenant, allocation, node: nodes.ids[0].clone(), sink: WebhookSink::start().await }
    }

    pub fn api(&self) -> &Api {
        self.tenant.api()
    }

    pub fn org(&self) -> &str {
        &self.tenant.person.org_id
    }

    pub fn project(&self) -> &str {
        &self.tenant.project
    }

    /// One of each: people sign in, organizations and what belongs to them are made and changed, machines are launched,
    /// restarted and released.
    pub async fn round(&self, world: &World, name: &str) {
        self.people(world, name).await;
        self.organization(name).await;
        self.operators(world, name).await;
        let machine = self.tenant.active(json!({ "sku": SLICE, "gpus": 2 })).await;
        self.tenant.act(&machine, "restart").await.expect(202);
        eventually("the restart is over", || async {
            self.tenant
                .event_names(&machine, "operation")
                .await
                .iter()
                .any(|name| name == "restarted")
                .then_some(())
        })
        .await;
        self.tenant.release(&machine).await;
    }

    /// Accounts of the built-in issuer and of another one, invitations, keys.
    async fn people(&self, world: &World, name: &str) {
        let email = format!("local-{name}@example.org");
        let account =
            world.admin.post("/api/v1/platform/accounts", json!({ "email": email })).await.expect(201);
        let password = account["one_time_password"].as_str().unwrap();
        let tokens = sign_in(&world.server.base, &email, password).await;
        let local = world.server.api().with_token(tokens["access_token"].as_str().unwrap());
        local.get("/api/v1/me/sessions").await.expect(200);
        let colleague = world.tenant(&format!("bo-{name}")).await;
        let org = world.org(&format!("acme-{name}")).await;
        world.join(&colleague.person, &org, "member").await;
        world.project(&org, "lab").await;
    }

    /// Budgets, webhooks, service accounts.
    async fn organization(&self, name: &str) {
        let (api, project) = (self.tenant.api(), format!("/api/v1/projects/{}", self.project()));
        let budget = json!({ "amount_minor": 1_000_000, "threshold_percent": 80, "action": "notify" });
        api.put(&format!("{project}/budget"), budget).await.expect(200);
        let webhooks = format!("/api/v1/orgs/{}/webhooks", self.org());
        let webhook = api.post(&webhooks, json!({ "name": name, "url": self.sink.url })).await.expect(201);
        let test = api.post(&format!("{webhooks}/{}/test", id(&webhook)), json!({})).await;
        assert!(test.status < 500, "{}", test.text);
        let accounts = format!("{project}/service-accounts");
        let account = api.post(&accounts, json!({ "name": name })).await.expect(201);
        api.post(&format!("{accounts}/{}/keys", id(&account)), json!({})).await.expect(201);
    }

    /// Policies, pools, prices, nodes that take nothing new for a while.
    async fn operators(&self, world: &World, name: &str) {
        world.policy("billing.window_seconds", 10).await;
        let pool = json!({ "region": testkit::REGION, "name": name });
        world.admin.post("/api/v1/platform/pools", pool).await.expect(201);
        let node = format!("/api/v1/platform/nodes/{}", self.node);
        world.admin.post(&format!("{node}/cordon"), json!({ "reason": name })).await.expect(200);
        world.admin.post(&format!("{node}/uncordon"), json!({})).await.expect(200);
    }

    pub async fn end(&self) {
        self.tenant.release(&self.allocation).await;
    }
}
