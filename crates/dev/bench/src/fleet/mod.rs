//! Nodes: what many connected ones cost, how fast work reaches them, what proving who they are costs, and how
//! large the agent is.
//!
//! One `gpuaasd` in all roles with its built-in Postgres serves them; the simulated nodes are another process on
//! the same machine, with real certificates, signatures and long polls. They are made through the API and go
//! through the whole onboarding (very many only enrol); then both processes start anew, so that what is measured is a fleet that works
//! and not what making it left behind.

pub mod agent;
mod connected;
mod handshakes;
pub mod operator;
pub mod simulator;

use std::path::PathBuf;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use operator::Operator;
use serde_json::json;

use crate::{FLEET_EXPECTED, product::Product, progress::Progress, report::Report};

const NOTE: &str = "Heartbeats and tasks go through one gpuaasd with API, relay and gateway; the client is the process that plays the \
     simulated nodes. A task is queued through the API (signed, audited), handed to the node, run there, and its \
     result told and kept. Handshakes: `openssl s_time -new`, one connection after the other, TLS 1.3, ECDSA P-256 \
     chains of three on both sides, the client's certificate verified; the client is the same for both servers.";
pub const REGION: &str = "bench";

#[derive(Clone, clap::Args)]
pub struct Options {
    /// So many nodes are connected, one measurement after the other.
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    nodes: Vec<u32>,
    /// Tasks whose way to a node is timed.
    #[arg(long, default_value_t = 300)]
    samples: u32,
    /// The static agent [default: the one that `make agent` built].
    #[arg(long)]
    agent: Option<PathBuf>,
}

struct Bench {
    product: Product,
    operator: Operator,
    report: Report,
    seconds: u32,
    pairs: usize,
    options: Options,
}

pub async fn all(seconds: u32, pairs: usize, options: &Options, quick: bool) -> anyhow::Result<String> {
    raise_open_files()?;
    let mut options = options.clone();
    if quick {
        (options.nodes, options.samples) = (vec![10, 30], 10);
    }
    let steps = 2 + connected::STEPS * options.nodes.len();
    let report = Report::new("The fleet", NOTE, Progress::new("fleet", steps, FLEET_EXPECTED));
    let mut product = Product::prepare()?;
    product.start(&["--roles", "all"]).await?;
    let operator = Operator::sign_in(&product).await?;
    operator
        .api()
        .post("/api/v1/platform/regions", json!({ "code": REGION, "name": "Bench" }))
        .await
        .expect(201);
    let mut bench = Bench { product, operator, report, seconds, pairs, options };
    bench.report.step("handshakes");
    bench.handshakes().await?;
    bench.report.step("the agent");
    bench.agent().await?;
    bench.connected().await?;
    Ok(bench.report.render())
}

/// Our programs inherit it: thousands of nodes are thousands of open connections.
pub fn raise_open_files() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("cannot raise the number of open files")
}
