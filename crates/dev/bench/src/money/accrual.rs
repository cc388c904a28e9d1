//! One window of many meters, by the worker's own code and by bare statements.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::{Context as _, anyhow, ensure};
use billing::{
    Billing, Settings,
    service::accrual::{Ticked, tick},
};
use chrono::{DurationRound as _, TimeDelta};
use identity::api::Policies;
use kernel::{Ambient, Clock as _, Failure, ManualClock, Secret};
use pg::{Connect, Db};
use sqlx::{Executor as _, PgConnection};

use super::{Bench, bare, meters, quiet_product};
use crate::{
    cpu,
    product::Product,
    report::{Peer, Sample, median},
};

/// The least share of the rate of bare rows that we mean to reach.
const AIM: f64 = 0.5;
const WINDOW: TimeDelta = TimeDelta::minutes(1);
const HOUR: TimeDelta = TimeDelta::hours(1);
const PORT: u16 = 5432;

struct Worker {
    product: Product,
    db: PgConnection,
    billing: Billing,
    clock: Arc<ManualClock>,
    /// Windows so far; the posting of each is the next of its chain.
    windows: i64,
}

impl Bench {
    pub async fn accrual(&mut self) -> anyhow::Result<()> {
        let orgs = self.options.meter_orgs;
        let mut worker = Worker::start().await?;
        meters::organizations(&mut worker.db, orgs, worker.clock.now()).await?;
        for count in self.options.meters.clone() {
            self.report.step(&format!("accrual of {count} meters"));
            meters::grow(&mut worker.db, count, orgs, worker.clock.now()).await?;
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            // The first is not counted: connections, plans, pages, parts for the month.
            for n in 0..=self.options.windows {
                let (tick, rows) = worker.window(count).await?;
                if n > 0 {
                    ours.push(tick);
                    theirs.push(rows);
                }
            }
            let (ours, theirs) = (median(&ours), median(&theirs));
            let operation = format!("a window of one of {count} meters of {orgs} organizations, accrued");
            let peer =
                Peer { name: "bare INSERT … SELECT of the same rows", sample: theirs, aim: Some(AIM) };
            self.report.compare(&operation, ours, &[peer]);
            for (who, sample) in [("accrued", ours), ("as bare rows", theirs)] {
                let name = format!("one window of {count} meters {who}");
                let text = format!(
                    "{:.2} s; {:.1} µs a meter; CPU a meter: worker {:.2} µs, Postgres {:.1} µs",
                    f64::from(count) / sample.per_second,
                    1e6 / sample.per_second,
                    sample.product_cpu,
                    sample.postgres_cpu
                );
                self.report.figure(&name, text, if who == "accrued" { "< 60 s" } else { "" });
            }
        }
        let [ours, theirs] = bare::sums(&mut worker.db).await?;
        ensure!(ours == theirs, "ours and the bare rows differ: {ours}; {theirs}");
        worker.billing.db().close();
        Ok(())
    }
}

impl Worker {
    async fn start() -> anyhow::Result<Self> {
        let product = quiet_product().await?;
        let mut db = product.database().await?;
        bare::tables(&mut db).await?;
        // The worker's clock is moved by hand, and the ledger of this database believes it.
        db.execute(
            "CREATE OR REPLACE FUNCTION ledger_clock(p_claimed timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
                 AS $$ SELECT p_claimed $$",
        )
        .await?;
        // From the next full hour on: later than anything that was written, and windows begin with it.
        let clock = ManualClock::starting_at(Ambient::system().now().duration_trunc(HOUR)? + HOUR);
        let connect = Connect::builtin(Path::new(&product.socket_dir()?), PORT, "gpuaas_super", "gpuaas");
        let ours = Db::new(connect, 2, 4, clock.ambient());
        let settings = Settings { currency: "USD".to_owned(), checkpoint_seed: Secret::new([7; 32]) };
        let billing = Billing::new(ours.clone(), Policies::new(ours), settings);
        Ok(Self { product, db, billing, clock, windows: 0 })
    }

    /// The next window of all meters, by us and by them, in turns.
    async fn window(&mut self, meters: u32) -> anyhow::Result<(Sample, Sample)> {
        self.clock.advance(WINDOW);
        self.windows += 1;
        let (now, seq) = (self.clock.now(), self.windows + 1);
        let begun = Mark::now(&self.product);
        let ticked = tick(&self.billing).await.map_err(failure_error)?;
        let ours = begun.sample(&self.product, meters);
        let Ticked { windows, rewound, more, .. } = ticked;
        ensure!(
            windows == u64::from(meters) && rewound == 0 && !more,
            "a tick was to accrue {meters} meters once: {ticked:?}"
        );
        meters::settle(&mut self.db).await?;
        let begun = Mark::now(&self.product);
        bare::accrue(&mut self.db, now, now, seq).await.context("bare rows")?;
        let theirs = begun.sample(&self.product, meters);
        meters::settle(&mut self.db).await?;
        // The client of bare rows sends three statements; what this process did there is nobody's work.
        Ok((ours, Sample { product_cpu: 0.0, ..theirs }))
    }
}

/// Where the clocks stood.
struct Mark {
    at: Instant,
    worker: u64,
    postgres: u64,
}

impl Mark {
    fn now(product: &Product) -> Self {
        let worker = cpu::process_micros(std::process::id());
        Self { at: Instant::now(), worker, postgres: cpu::family_micros(product.postmaster()) }
    }

    /// Of so many meters since then.
    fn sample(&self, product: &Product, meters: u32) -> Sample {
        let (wall, count) = (self.at.elapsed().as_secs_f64(), f64::from(meters));
        let after = Self::now(product);
        Sample {
            per_second: count / wall,
            product_cpu: after.worker.saturating_sub(self.worker) as f64 / count,
            postgres_cpu: after.postgres.saturating_sub(self.postgres) as f64 / count,
            client_cpu: 0.0,
        }
    }
}

fn failure_error(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Problem(problem) => anyhow!("refused: {problem:?}"),
        Failure::Internal(error) => anyhow!(error),
        Failure::Bug(bug) => anyhow!("{bug}"),
    }
}
