//! From the request to an active machine, and back, on simulated nodes whose work takes no time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use sqlx::PgConnection;
use testkit::Api;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{Bench, Options, SKU, Times, enable, rows::SLOTS_PER_NODE};
use crate::{
    cpu,
    fleet::{REGION, operator::Operator, simulator::Simulator},
    product::{Product, fund, org_with_project},
    report::Sample,
    scenarios::uuid_of,
};

const ONBOARDING: Duration = Duration::from_secs(300);
/// For all that was begun to end.
const ENDING: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Requests on their way at once, when many launches are asked for.
const ASKING: usize = 64;
const SETTLE: Duration = Duration::from_secs(3);
/// A server that is busy is asked again, so often at most, and after so long.
const ASK_AGAIN: u32 = 20;
const BUSY: Duration = Duration::from_millis(500);
/// Before the first launch that is timed.
const WARM_UP: u32 = 5;

/// What is launched one after the other, and how often at most. A whole machine makes a new key after each tenant, the
/// best one is launched each time, and a node gets 60 certificates an hour.
const KINDS: [(&str, &str, u32); 2] =
    [("slice of 1 GPU", SKU, u32::MAX), ("whole machine of 8 GPUs", "h200-sxm-baremetal-8g", 40)];

/// The machines, each kind, each number at once.
pub fn steps(options: &Options) -> usize {
    1 + KINDS.len() + options.at_once.len()
}

struct World {
    product: Product,
    operator: Operator,
    simulator: Simulator,
    db: PgConnection,
    project: String,
}

fn id_of(answer: &Value) -> anyhow::Result<String> {
    answer["id"].as_str().map(str::to_owned).context("the answer has no id")
}

impl Bench {
    pub async fn with_machines(&mut self) -> anyhow::Result<()> {
        let most = self.options.at_once.iter().copied().max().unwrap_or(1);
        // A quarter more than is needed: nobody fills a fleet to the last slot.
        self.report.step("machines for launches");
        let mut world = World::start((most + most / 4).div_ceil(SLOTS_PER_NODE)).await?;
        for (what, sku, most) in KINDS {
            self.report.step(&format!("{what}, one after the other"));
            world.operator.refresh().await?;
            let launches = self.options.launches.min(most);
            self.one_after_the_other(&world, what, sku, launches).await?;
        }
        let mut each = Vec::new();
        for count in self.options.at_once.clone() {
            self.report.step(&format!("{count} launches at once"));
            each.push((count, self.at_once(&mut world, count).await?));
        }
        if let (Some((few, first)), Some((many, last))) = (each.first(), each.last()) {
            let name = format!("time per launch with {many} in flight ÷ with {few}");
            self.report.figure(&name, format!("{:.2}", last / first), "about 1");
        }
        Ok(())
    }

    async fn one_after_the_other(
        &mut self,
        world: &World,
        what: &str,
        sku: &str,
        launches: u32,
    ) -> anyhow::Result<()> {
        let api = world.operator.api();
        let (mut made, mut gone) = (Vec::new(), Vec::new());
        for n in 0..WARM_UP + launches {
            let begun = Instant::now();
            let (id, _) = launch(api, &world.project, json!({ "sku": sku })).await?;
            until(api, &world.project, &id, "active").await?;
            let active = begun.elapsed();
            let begun = Instant::now();
            api.post(&world.path(&format!("/{id}/release")), json!({})).await.expect(202);
            until(api, &world.project, &id, "released").await?;
            if n >= WARM_UP {
                made.push(active);
                gone.push(begun.elapsed());
            }
        }
        let (made, gone) = (Times::new(made), Times::new(gone));
        let name = format!("{what}: request → active, one after the other, {} times", made.0.len());
        self.report.figure(&name, made.text(), "p50 < 60 ms, p99 < 250 ms");
        let name = format!("{what}: request → released, one after the other, {} times", gone.0.len());
        self.report.figure(&name, gone.text(), "");
        Ok(())
    }

    /// The nodes are held until all launches wait for them, and then let go. Gives the milliseconds per launch.
    async fn at_once(&mut self, world: &mut World, count: u32) -> anyhow::Result<f64> {
        world.operator.refresh().await?;
        tokio::time::sleep(SETTLE).await;
        let name = format!("at-once-{count}");
        let api = Api::with_client(
            &world.product.base,
            testkit::http_client().pool_max_idle_per_host(ASKING).build()?,
        )
        .with_token(world.operator.token());
        let (before, begun) = (world.cpu(), Instant::now());
        world.simulator.hold()?;
        let mut tasks = JoinSet::new();
        let turns = Arc::new(Semaphore::new(ASKING));
        for n in 0..count {
            let (api, turns, project) = (api.clone(), turns.clone(), world.project.clone());
            let body = json!({ "sku": SKU, "gpus": 1, "name": format!("{name}-{n}") });
            tasks.spawn(async move {
                let _turn = turns.acquire().await?;
                launch(&api, &project, body).await
            });
        }
        let (mut ids, mut again) = (Vec::new(), 0);
        while let Some(launched) = tasks.join_next().await {
            let (id, times) = launched??;
            ids.push(id);
            again += times;
        }
        let asked = begun.elapsed().as_secs_f64();
        world.all_are(&name, "provisioning", count).await?;
        world.simulator.let_go()?;
        world.all_are(&name, "active", count).await?;
        let wall = begun.elapsed().as_secs_f64();
        let after = world.cpu();
        let spent = |n: usize| after[n].saturating_sub(before[n]) as f64 / f64::from(count);
        let sample = Sample {
            per_second: f64::from(count) / wall,
            product_cpu: spent(0),
            postgres_cpu: spent(1),
            client_cpu: spent(2),
        };
        self.report.compare(&format!("launch → active, {count} in flight at once"), sample, &[]);
        let each = wall * 1e3 / f64::from(count);
        self.report.figure(
            &format!("{count} launches in flight at once, all of them active, none failed"),
            format!("{wall:.2} s, {each:.2} ms each (asked for within {asked:.2} s; {again} times again because of 503)"),
            "",
        );
        self.release_all(world, api, &name, ids).await?;
        Ok(each)
    }

    async fn release_all(
        &mut self,
        world: &mut World,
        api: Api,
        name: &str,
        ids: Vec<String>,
    ) -> anyhow::Result<()> {
        let count = u32::try_from(ids.len())?;
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        let turns = Arc::new(Semaphore::new(ASKING));
        for id in ids {
            let (api, turns, path) = (api.clone(), turns.clone(), world.path(&format!("/{id}/release")));
            tasks.spawn(async move {
                let _turn = turns.acquire().await?;
                let answer = api.post(&path, json!({})).await;
                ensure!(answer.status == 202, "a release was refused: {}", answer.text);
                anyhow::Ok(())
            });
        }
        while let Some(asked) = tasks.join_next().await {
            asked??;
        }
        world.all_are(name, "released", count).await?;
        let wall = begun.elapsed().as_secs_f64();
        let each = wall * 1e3 / f64::from(count);
        let text = format!("{wall:.2} s, {each:.2} ms each");
        self.report.figure(&format!("{count} releases at once, all of them clean, none failed"), text, "");
        Ok(())
    }
}

impl World {
    async fn start(nodes: u32) -> anyhow::Result<Self> {
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

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/projects/{}/allocations{rest}", self.project)
    }

    fn cpu(&self) -> [u64; 3] {
        [
            cpu::process_micros(self.product.pid()),
            cpu::family_micros(self.product.postmaster()),
            cpu::process_micros(self.simulator.pid()),
        ]
    }

    /// Waits until all of this name are in this state; one that failed ends it.
    async fn all_are(&mut self, name: &str, state: &str, count: u32) -> anyhow::Result<()> {
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
async fn launch(api: &Api, project: &str, body: Value) -> anyhow::Result<(String, u32)> {
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
async fn until(api: &Api, project: &str, id: &str, state: &str) -> anyhow::Result<()> {
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
