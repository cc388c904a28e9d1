//! Who makes the nodes and gives them work.

use anyhow::Context as _;
use serde_json::{Value, json};
use testkit::{Api, NodeClient, NodeKeys, sign_in};

use super::REGION;
use crate::product::{Product, lift_limits};

pub struct Operator {
    api: Api,
    refresh_token: String,
}

/// A node that was created and has not enrolled.
pub struct NewNode {
    pub id: String,
    pub token: String,
    pub join: Value,
}

/// A node's certificate and key, as PEM.
pub struct Certified {
    pub chain: String,
    pub key: String,
}

fn text(value: &Value) -> anyhow::Result<String> {
    value.as_str().map(str::to_owned).context("the server's answer lacks a text")
}

impl Operator {
    /// The administrator, with the rate limits out of the way.
    pub async fn sign_in(product: &Product) -> anyhow::Result<Self> {
        let file = product.dir.path().join("data/first-admin-password");
        let password = std::fs::read_to_string(&file)?;
        let tokens = sign_in(&product.base, "admin@localhost", password.trim()).await;
        // Connections are kept open: what is measured is not how they are made.
        let http = testkit::http_client().pool_max_idle_per_host(4).build()?;
        let mut operator = Self { api: Api::with_client(&product.base, http), refresh_token: String::new() };
        operator.take(&tokens)?;
        lift_limits(&operator.api).await;
        Ok(operator)
    }

    fn take(&mut self, tokens: &Value) -> anyhow::Result<()> {
        self.api = self.api.with_token(text(&tokens["access_token"])?);
        self.refresh_token = text(&tokens["refresh_token"])?;
        Ok(())
    }

    /// A new access token: they are short-lived.
    pub async fn refresh(&mut self) -> anyhow::Result<()> {
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", "gpuaas-cli"),
            ("refresh_token", self.refresh_token.as_str()),
        ];
        let anonymous = Api::new(&self.api.base, None);
        let request = anonymous.request("POST".parse()?, "/auth/token").form(&form);
        let answer = anonymous.send(request).await;
        anyhow::ensure!(answer.status == 200, "the access token cannot be renewed: {}", answer.text);
        self.take(&answer.body)
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    pub fn token(&self) -> &str {
        self.api.token.as_deref().unwrap_or_default()
    }

    pub async fn create(&self, hostname: &str) -> anyhow::Result<NewNode> {
        let body = json!({ "hostname": hostname, "region": REGION });
        let made = self.api.post("/api/v1/platform/nodes", body).await.expect(201);
        Ok(NewNode {
            id: text(&made["node"]["id"])?,
            token: text(&made["bootstrap"]["token"])?,
            join: made["bootstrap"]["join"].clone(),
        })
    }

    /// Root and issuing certificate of the authority.
    pub async fn authority(&self) -> anyhow::Result<(String, String)> {
        let listed = self.api.get("/api/v1/platform/trust/authorities").await.expect(200);
        let one = &listed["items"][0];
        Ok((text(&one["root_certificate"])?, text(&one["issuing_certificate"])?))
    }

    /// Enrols a node through the listener, and sees that its certificate is believed there.
    pub async fn enroll(&self, product: &Product, hostname: &str) -> anyhow::Result<Certified> {
        let node = self.create(hostname).await?;
        let (root, _) = self.authority().await?;
        let url = format!("https://127.0.0.1:{}", product.node_port);
        let keys = NodeKeys::generate();
        let body = json!({
            "node_id": node.id, "token": node.token, "csr_pem": keys.csr_pem, "hostname": hostname,
            "agent_version": "0.0.1", "machine_id": "bench",
        });
        let roots = [root];
        let stranger = NodeClient::api(&url, &roots, None);
        let answer = stranger.post("/internal/v1/nodes/enroll", body).await.expect(200);
        let certified = Certified { chain: text(&answer["certificate"]["chain_pem"])?, key: keys.key_pem };
        let known = NodeClient::api(&url, &roots, Some((&certified.chain, &certified.key)));
        let path = format!("/internal/v1/nodes/{}/heartbeat", node.id);
        known.post(&path, NodeClient::heartbeat()).await.expect(200);
        Ok(certified)
    }
}
