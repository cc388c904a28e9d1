//! Every GET of the API, from its document.

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::{Api, World};

use super::usage::{SLICE, Usage};

const DOCUMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../openapi/public.json"));

/// Paths with everything filled in, and who asks.
#[derive(Clone)]
pub struct Reads {
    admin: Api,
    tenant: Api,
    paths: Vec<String>,
    org: String,
}

impl Reads {
    pub async fn new(world: &World, usage: &Usage) -> Self {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let month = kernel::Ambient::system().now().format("%Y-%m").to_string();
        let known: BTreeMap<String, String> = BTreeMap::from(
            [
                ("org_id", usage.org()),
                ("project_id", usage.project()),
                ("allocation_id", &usage.allocation),
                ("node_id", &usage.node),
                ("key", "billing.window_seconds"),
                ("month", &month),
                ("seq", "1"),
                ("sku", SLICE),
                ("region", testkit::REGION),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let mut paths = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let Some(get) = operations.get("get") else { continue };
            // A stream does not end by itself.
            if get["responses"]["200"]["content"].get("text/event-stream").is_some() {
                continue;
            }
            let mut filled = fill(&world.admin, path, &known).await;
            if get["parameters"].as_array().unwrap_or(&Vec::new()).iter().any(is_required_sku) {
                filled = format!("{filled}?sku={SLICE}");
            }
            paths.push(filled);
        }
        Self { admin: world.admin.clone(), tenant: usage.api().clone(), paths, org: usage.org().to_owned() }
    }

    /// What each answers, asked so many times at once. A failure of the server fails the test.
    pub async fn all_at_once(&self, times: usize) -> BTreeMap<String, u16> {
        let mut statuses = BTreeMap::new();
        for path in &self.paths {
            let api = if path.starts_with("/api/v1/platform/") { &self.admin } else { &self.tenant };
            let mut asked = tokio::task::JoinSet::new();
            for _ in 0..times {
                let (api, path) = (api.clone(), path.clone());
                asked.spawn(async move { api.get(&path).await });
            }
            for answer in asked.join_all().await {
                // Verifications at once are bounded, and the others are told to come again.
                if answer.status == 503 && path.ends_with("/verify") {
                    continue;
                }
                assert!(answer.status < 500, "GET {path}: {} {}", answer.status, answer.text);
                statuses.insert(path.clone(), answer.status);
            }
        }
        statuses
    }

    /// The chains of the ledger and of the audit trail are whole.
    pub async fn verified(&self) {
        for path in ["billing/ledger/verify", "audit/verify"] {
            let verified = self.tenant.get(&format!("/api/v1/orgs/{}/{path}", self.org)).await.expect(200);
            assert_eq!(verified["ok"], true, "{path}: {verified}");
        }
    }
}

fn is_required_sku(parameter: &Value) -> bool {
    parameter["in"] == "query" && parameter["name"] == "sku" && parameter["required"] == true
}

/// Puts a value into each place of a path: one that is known, or the first of the list that the path continues.
async fn fill(api: &Api, path: &str, known: &BTreeMap<String, String>) -> String {
    let mut filled = String::new();
    for part in path.split('/').skip(1) {
        let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
            filled = format!("{filled}/{part}");
            continue;
        };
        let value = match known.get(name) {
            Some(value) => value.clone(),
            None => first_id(api, &filled).await,
        };
        filled = format!("{filled}/{value}");
    }
    filled
}

async fn first_id(api: &Api, list: &str) -> String {
    let answer = api.get(list).await;
    let id = answer.body["items"][0]["id"].as_str();
    id.unwrap_or("none").to_owned()
}
