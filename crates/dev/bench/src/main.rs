//! `make bench`: what the control plane costs, beside what the same work costs without it.
//!
//! Everything is real and runs in one go on one machine: `gpuaasd` (release) with its built-in Postgres,
//! pgbench on the same socket, a bare axum handler as a peer, wrk as the client; for the fleet thousands of
//! simulated nodes in a process of their own, the static agent, and OpenSSL's tools; for capacity fleets of up to a
//! hundred thousand slots, and launches from the request to the machine; for money hundreds of
//! thousands of meters, and ledgers of millions of entries; for terminals a PTY of its own and terminado. Variants are interleaved (A B C A B C …) and the median is taken, because machines are noisy; CPU per operation comes from /proc of
//! each process and is steadier than wall time. The tables are printed and kept in `docs/benchmarks.md`, a section
//! per part; a part that was not run, or failed, keeps its section. By default all parts take less than 20 minutes on
//! two cores; larger sizes are options of each part.

mod capacity;
mod cpu;
mod document;
mod exec;
mod fleet;
mod load;
mod machines;
mod money;
mod peer;
mod product;
mod progress;
mod report;
mod scenarios;
mod sections;
mod terminal;
mod times;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser};
use sections::Section;

#[derive(Parser)]
enum Command {
    /// Measure everything.
    All {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        fleet: fleet::Options,
        #[command(flatten)]
        capacity: capacity::Options,
        #[command(flatten)]
        money: money::Options,
        #[command(flatten)]
        terminal: terminal::Options,
    },
    /// Measure terminals: output, echo, opening, idle sessions.
    Terminal {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        terminal: terminal::Options,
    },
    /// Measure money: accrual, balances, the payment provider's messages.
    Money {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        money: money::Options,
    },
    /// Measure launches: reservations, decisions in large fleets, the way to an active machine.
    Capacity {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        capacity: capacity::Options,
    },
    /// Measure the API beside the database and a bare handler.
    Api {
        #[command(flatten)]
        common: Common,
    },
    /// Measure nodes: connections, work, handshakes, the agent.
    Fleet {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        fleet: fleet::Options,
    },
    /// Serve the bare axum handler (started by `api`).
    Peer { port: u16, socket_dir: String, org_id: uuid::Uuid },
}

#[derive(Args)]
struct Common {
    /// Seconds per measurement.
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Pairs per comparison; the median counts.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Minutes for all sections together: what is not measured by then failed.
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Put the tables into this file too.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Few and small, to see that everything works: the figures mean nothing.
    #[arg(long)]
    quick: bool,
}

impl Common {
    /// Seconds per measurement, and pairs per comparison.
    fn extent(&self) -> (u32, usize) {
        if self.quick { (1, 1) } else { (self.seconds, self.pairs) }
    }
}

/// What is expected of each section on two cores, for the progress that is printed.
const API_EXPECTED: Duration = Duration::from_secs(120);
const FLEET_EXPECTED: Duration = Duration::from_secs(300);
const CAPACITY_EXPECTED: Duration = Duration::from_secs(420);
const MONEY_EXPECTED: Duration = Duration::from_secs(300);
const TERMINAL_EXPECTED: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let command = Command::parse();
    let (common, sections) = match &command {
        Command::Peer { port, socket_dir, org_id } => return peer::serve(*port, socket_dir, *org_id).await,
        Command::All { common, fleet, capacity, money, terminal } => (
            common,
            vec![
                api(common),
                nodes(common, fleet),
                launches(common, capacity),
                ledgers(common, money),
                terminals(common, terminal),
            ],
        ),
        Command::Terminal { common, terminal } => (common, vec![terminals(common, terminal)]),
        Command::Money { common, money } => (common, vec![ledgers(common, money)]),
        Command::Capacity { common, capacity } => (common, vec![launches(common, capacity)]),
        Command::Api { common } => (common, vec![api(common)]),
        Command::Fleet { common, fleet } => (common, vec![nodes(common, fleet)]),
    };
    run(common, sections).await
}

async fn run(common: &Common, sections: Vec<Section<'_>>) -> anyhow::Result<()> {
    let limit = Duration::from_secs(60 * common.minutes);
    let failed = sections::run(sections, limit, common.out.as_deref()).await?;
    anyhow::ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

fn api(common: &Common) -> Section<'_> {
    let (seconds, pairs) = common.extent();
    Section::new("api", scenarios::all(seconds, pairs))
}

fn nodes<'a>(common: &Common, options: &'a fleet::Options) -> Section<'a> {
    let (seconds, pairs) = common.extent();
    Section::new("fleet", fleet::all(seconds, pairs, options, common.quick))
}

fn launches<'a>(common: &Common, options: &'a capacity::Options) -> Section<'a> {
    let (seconds, pairs) = common.extent();
    Section::new("capacity", capacity::all(seconds, pairs, options, common.quick))
}

fn ledgers<'a>(common: &Common, options: &'a money::Options) -> Section<'a> {
    Section::new("money", money::all(common.extent(), options, common.quick))
}

fn terminals<'a>(common: &Common, options: &'a terminal::Options) -> Section<'a> {
    Section::new("terminal", terminal::all(common.extent(), options, common.quick))
}
