//! `make bench`: what the control plane costs, beside what the same work costs without it.
//!
//! Everything is real and runs in one go on one machine: `gpuaasd` (release) with its built-in Postgres,
//! pgbench on the same socket, a bare axum handler as a peer, wrk as the client; for the fleet thousands of
//! simulated nodes in a process of their own, the static agent, and OpenSSL's tools; for capacity fleets of up to a
//! hundred thousand slots, and launches from the request to the machine; for money a million meters, and ledgers of
//! ten million entries. Variants are interleaved
//! (A B C A B C …) and the median is taken, because machines are noisy; CPU per operation comes from /proc of
//! each process and is steadier than wall time. The tables are printed and kept in `docs/benchmarks.md`, a section
//! per part; a part that was not run keeps its section.

mod capacity;
mod cpu;
mod document;
mod exec;
mod fleet;
mod load;
mod money;
mod peer;
mod product;
mod report;
mod scenarios;

use std::path::{Path, PathBuf};

use clap::{Args, Parser};

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
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Pairs per comparison; the median counts.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Peer { port, socket_dir, org_id } => peer::serve(port, &socket_dir, org_id).await,
        Command::All { common, fleet, capacity, money } => {
            api(&common).await?;
            nodes(&common, &fleet).await?;
            launches(&common, &capacity).await?;
            ledgers(&common, &money).await
        }
        Command::Money { common, money } => ledgers(&common, &money).await,
        Command::Capacity { common, capacity } => launches(&common, &capacity).await,
        Command::Api { common } => api(&common).await,
        Command::Fleet { common, fleet } => nodes(&common, &fleet).await,
    }
}

async fn api(common: &Common) -> anyhow::Result<()> {
    let (seconds, pairs) = common.extent();
    let section = scenarios::all(seconds, pairs).await?;
    conclude(&section, common.out.as_deref())
}

async fn nodes(common: &Common, options: &fleet::Options) -> anyhow::Result<()> {
    let (seconds, pairs) = common.extent();
    let section = fleet::all(seconds, pairs, options).await?;
    conclude(&section, common.out.as_deref())
}

async fn launches(common: &Common, options: &capacity::Options) -> anyhow::Result<()> {
    let (seconds, pairs) = common.extent();
    let section = capacity::all(seconds, pairs, options, common.quick).await?;
    conclude(&section, common.out.as_deref())
}

async fn ledgers(common: &Common, options: &money::Options) -> anyhow::Result<()> {
    let section = money::all(common.extent(), options, common.quick).await?;
    conclude(&section, common.out.as_deref())
}

fn conclude(section: &str, out: Option<&Path>) -> anyhow::Result<()> {
    println!("{section}");
    out.map_or(Ok(()), |path| document::put(path, section))
}
