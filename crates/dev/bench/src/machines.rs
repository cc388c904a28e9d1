//! Simulated machines for tenants: a product in all roles, nodes that are active, and a project with money.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use sqlx::PgConnection;
use testkit::{Api, made_up_key};

use crate::{
    cpu,
    fleet::{REGION, operator::Operator, simulator::Simulator},
    product::{Product, fund, org_with_project},
    scenarios::uuid_of,
};

const ONBOARDING: Duration = Duration::from_secs(300);
/// For all that was begun to end.
const ENDING: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(25);
pub const SETTLE: Duration = Duration::from_secs(3);
/// A server that is busy is asked again, so often at most, and after so long.
const ASK_AGAIN: u32 = 20;
const BUSY: Duration = Duration::from_millis(500);

pub struct Machines {
    // Dropped first: it has its files in the product's directory.
    pub simulator: Simulator,
    pub product: Product,
    pub operator: Operator,
    db: PgConnection,
    pub project: String,
}

fn id_of(answer: &Value) -> anyhow::Result<String> {
    answer["id"].as_str().map(str::to_owned).context("the answer has no id")
}

/// Lets one person hold as much as there is, and log in to it.
pub async fn enable(api: &Api) {
    let path = "/api/v1/platform/policies/allocation.max_concurrent_per_user";
    api.put(path, json!({ "value": 1_000_000 })).await.expect(200);
    let key = json!({ "name": "bench", "public_key": made_up_key() });
    api.post("/api/v1/me/ssh-keys", key).await.expect(201);
}

impl Machines {
    pub async fn start(nodes: u32) -> anyhow::Result<Self> {
        let mut product = Product::prepare()?;
        product.start(&["--roles", "all"]).await?;
        let operator = Operator::sign_in(&product).await?;
        let region = json!({ "code": REGION, "name": "Bench" });
        operator.api().post("/api/v1/platform/regions", region).await.expect(201);
        enable(operator.api()).await;
        // Nodes that are held are not given up for that.
        for (policy, value) in [("fleet.offline_after_heartbeats", 100), ("fleet.task_lease_seconds", 600)] {
            let path = format!("/api/v1/platform/policies/{policy}");
            operator.api().put(&path, json!({ "value": value })).await.expect(200);
        }
        let (org, project) = org_with_project(operator.api(), "launches").await;
        let project = id_of(&project)?;
        let mut simulator = Simulator::new(&product.dir.path().join("simulator"))?;
        simulator.create(&product.base, operator.token(), 1, nodes).await?;
        simulator.start()?;
        let mut db = product.database().await?;
        fund(&mut db, uuid_of(&org["id"])?).await?;
        let begun = Instant::now();
        loop {
            let active: i64 = sqlx::query_scalar("SELECT count(*) FROM nodes WHERE state = 'active'")
                .fetch_one(&mut db)
                .await?;
            if active == i64::from(nodes) {
                break;
            }
            ensure!(begun.elapsed() < ONBOARDING, "only {active} of {nodes} nodes were active in time");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(SETTLE).await;
        Ok(Self { product, operator, simulator, db, project })
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/projects/{}/allocations{rest}", self.project)
    }

    /// Of the server, of Postgres, and of the process that plays the nodes.
    pub fn cpu(&self) -> [u64; 3] {
        [
            cpu::process_micros(self.product.pid()),
            cpu::family_micros(self.product.postmaster()),
            cpu::process_micros(self.simulator.pid()),
        ]
    }

    /// Waits until all of this name are in this state; one that failed ends it.
    pub async fn all_are(&mut self, name: &str, state: &str, count: u32) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let (there, failed): (i64, i64) = sqlx::query_as(
                "SELECT count(*) FILTER (WHERE state = $2), count(*) FILTER (WHERE state IN ('failed', 'release_failed'))
                 FROM allocations WHERE name LIKE $1 || '-%'",
            )
            .bind(name)
            .bind(state)
            .fetch_one(&mut self.db)
            .await?;
            ensure!(failed == 0, "{failed} of {count} failed on their way to {state}");
            if there == i64::from(count) {
                return Ok(());
            }
            ensure!(begun.elapsed() < ENDING, "only {there} of {count} were {state} in time");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The new allocation, and how often it had to be asked for again because the server was busy.
pub async fn launch(api: &Api, project: &str, body: Value) -> anyhow::Result<(String, u32)> {
    let key = kernel::Ambient::system().uuid().to_string();
    let path = format!("/api/v1/projects/{project}/allocations");
    for again in 0..ASK_AGAIN {
        let answer = api.post_once(&key, &path, body.clone()).await;
        if answer.status == 503 {
            tokio::time::sleep(BUSY).await;
            continue;
        }
        ensure!(answer.status == 202, "a launch was refused: {}", answer.text);
        return Ok((id_of(&answer.body)?, again));
    }
    bail!("the server was busy {ASK_AGAIN} times")
}

/// Waits as clients do: the server answers as soon as it is so.
pub async fn until(api: &Api, project: &str, id: &str, state: &str) -> anyhow::Result<()> {
    let path = format!("/api/v1/projects/{project}/allocations/{id}?wait=20s");
    for _ in 0..5 {
        let answer = api.get(&path).await.expect(200);
        match answer["state"].as_str() {
            Some(is) if is == state => return Ok(()),
            Some("failed" | "release_failed") => bail!("{id} did not become {state}: {answer}"),
            _ => {}
        }
    }
    bail!("{id} did not become {state} in time")
}
