//! From the request to an active machine, and back, on simulated nodes whose work takes no time.

use std::{sync::Arc, time::Instant};

use anyhow::ensure;
use serde_json::json;
use testkit::Api;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{Bench, Options, SKU, rows::SLOTS_PER_NODE};
use crate::{
    machines::{Machines, SETTLE, launch, until},
    report::Sample,
    times::Times,
};

/// Requests on their way at once, when many launches are asked for.
const ASKING: usize = 64;
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

impl Bench {
    pub async fn with_machines(&mut self) -> anyhow::Result<()> {
        let most = self.options.at_once.iter().copied().max().unwrap_or(1);
        // A quarter more than is needed: nobody fills a fleet to the last slot.
        self.report.step("machines for launches");
        let mut world = Machines::start((most + most / 4).div_ceil(SLOTS_PER_NODE)).await?;
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
        world: &Machines,
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
        let name = format!("{what}: request → active, one after the other, {} times", made.count());
        self.report.figure(&name, made.text(), "p50 < 60 ms, p99 < 250 ms");
        let name = format!("{what}: request → released, one after the other, {} times", gone.count());
        self.report.figure(&name, gone.text(), "");
        Ok(())
    }

    /// The nodes are held until all launches wait for them, and then let go. Gives the milliseconds per launch.
    async fn at_once(&mut self, world: &mut Machines, count: u32) -> anyhow::Result<f64> {
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
        world: &mut Machines,
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
