//! Nodes as tests need them: a raw client of the node contract that can say anything.

use serde_json::{Value, json};

use crate::{Api, World, http_client};

/// A key pair and a certificate request for it.
pub struct NodeKeys {
    pub key_pem: String,
    pub csr_pem: String,
}

impl NodeKeys {
    pub fn generate() -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::default();
        let csr_pem = params.serialize_request(&key).and_then(|csr| csr.pem()).expect("a request");
        Self { key_pem: key.serialize_pem(), csr_pem }
    }
}

/// A node that an operator created and nobody has enrolled yet.
#[derive(Clone, Debug)]
pub struct CreatedNode {
    pub id: String,
    pub hostname: String,
    pub token: String,
    /// The join information as the API gave it.
    pub join: Value,
}

/// A client of the node listener with any certificate or none.
#[derive(Clone)]
pub struct NodeClient {
    pub id: String,
    pub api: Api,
    pub chain_pem: String,
    pub key_pem: String,
}

impl NodeClient {
    /// `identity` is (chain, key) in PEM. A connection per request, as a fresh client would make it.
    pub fn api(node_url: &str, roots_pem: &[String], identity: Option<(&str, &str)>) -> Api {
        let roots =
            roots_pem.iter().map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).expect("a root"));
        let mut builder = http_client().tls_certs_only(roots);
        if let Some((chain, key)) = identity {
            let pem = format!("{key}\n{chain}");
            builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).expect("an identity"));
        }
        Api::with_client(node_url, builder.build().expect("HTTP client"))
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/internal/v1/nodes/{}/{rest}", self.id)
    }

    /// The signed tasks that are waiting, after at most `seconds`.
    pub async fn wait(&self, seconds: u32, holding: &str) -> Vec<Value> {
        let path = self.path(&format!("tasks/wait?seconds={seconds}&room=16&holding={holding}"));
        self.api.get(&path).await.expect(200)["tasks"].as_array().expect("tasks").clone()
    }

    /// An ordinary report.
    pub fn heartbeat() -> Value {
        json!({
            "agent_version": "0.0.1", "certificate_expires_at": "2099-01-01T00:00:00Z", "applied_version": 0,
            "boot_id": "boot-1", "keyset_serial": 1, "authority_ids": [],
        })
    }
}

impl World {
    /// A region named `test`, made when it is not there.
    pub async fn region(&self) -> &'static str {
        let made =
            self.admin.post("/api/v1/platform/regions", json!({ "code": "test", "name": "Test" })).await;
        assert!(matches!(made.status, 201 | 409), "{}", made.text);
        "test"
    }

    pub async fn created_node(&self, hostname: &str) -> CreatedNode {
        let region = self.region().await;
        let body = json!({ "hostname": hostname, "region": region });
        let made = self.admin.post("/api/v1/platform/nodes", body).await.expect(201);
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("text in {made}")).to_owned();
        CreatedNode {
            id: text(&made["node"]["id"]),
            hostname: hostname.to_owned(),
            token: text(&made["bootstrap"]["token"]),
            join: made["bootstrap"]["join"].clone(),
        }
    }

    /// The roots that the node listener's certificate may chain to.
    pub async fn node_roots(&self) -> Vec<String> {
        let listed = self.admin.get("/api/v1/platform/trust/authorities").await.expect(200);
        let items = listed["items"].as_array().expect("authorities");
        items.iter().map(|a| a["root_certificate"].as_str().expect("a root").to_owned()).collect()
    }

    /// The node listener for somebody without a certificate.
    pub async fn node_listener(&self) -> Api {
        NodeClient::api(&self.server.node_url, &self.node_roots().await, None)
    }

    pub fn enroll_body(node: &CreatedNode, keys: &NodeKeys) -> Value {
        json!({
            "node_id": node.id, "token": node.token, "csr_pem": keys.csr_pem, "hostname": node.hostname,
            "agent_version": "0.0.1", "machine_id": "test",
        })
    }

    /// Enrols through the listener, the way an agent does.
    pub async fn enrolled_node(&self, node: &CreatedNode) -> NodeClient {
        let keys = NodeKeys::generate();
        let answer = self
            .node_listener()
            .await
            .post("/internal/v1/nodes/enroll", Self::enroll_body(node, &keys))
            .await;
        let chain_pem = answer.expect(200)["certificate"]["chain_pem"].as_str().expect("a chain").to_owned();
        self.node_client(&node.id, &chain_pem, &keys.key_pem).await
    }

    pub async fn node_client(&self, id: &str, chain_pem: &str, key_pem: &str) -> NodeClient {
        let roots = self.node_roots().await;
        let api = NodeClient::api(&self.server.node_url, &roots, Some((chain_pem, key_pem)));
        NodeClient { id: id.to_owned(), api, chain_pem: chain_pem.to_owned(), key_pem: key_pem.to_owned() }
    }

    pub async fn node_state(&self, id: &str) -> String {
        let node = self.admin.get(&format!("/api/v1/platform/nodes/{id}")).await.expect(200);
        node["state"].as_str().expect("a state").to_owned()
    }
}
