//! Capacity: what a reservation costs beside the same statements without us, how the decision grows with the fleet,
//! and how long it takes from the request to a machine.
//!
//! Reservations and decisions need no machines: their fleet is rows in the database, and only the API runs, so that
//! nothing else takes the capacity or the CPU. Launches go the whole way, through simulated nodes whose work takes no
//! time: what is left is ours.

mod decisions;
mod launches;
mod rows;
mod statements;
mod throughput;

use capacity::model::sku::SlotKind;

use crate::{
    CAPACITY_EXPECTED, fleet::raise_open_files, machines::enable, product::Product, progress::Progress,
    report::Report,
};

const NOTE: &str = "A reservation is one POST: idempotency, placement, claims, limits, the workflow's run, money set aside, \
     audit and event \
     in one transaction. pgbench runs the same statements in the same order with arguments of the same sizes, on the same \
     socket and fleet, and decides nothing: it takes the first slot that the database offers, seals no order, and has no \
     HTTP in front of it and no caller to identify. Between two measurements all capacity is given back. Launches go \
     through one gpuaasd in all roles; the client is the process that plays the nodes, whose work takes no time.";
/// What is launched: a slice of the H200 machines.
const SKU: &str = "h200-sxm-slice";
const KIND: SlotKind = SlotKind::Gpu;
const MODEL: &str = "H200";

#[derive(Clone, clap::Args)]
pub struct Options {
    /// Slots of the fleets in which decisions are timed, one after the other; reservations are measured in the last.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    slots: Vec<u32>,
    /// Decisions timed in each fleet, and as many refusals.
    #[arg(long, default_value_t = 1000)]
    decisions: u32,
    /// So many clients reserve at once, one measurement after the other.
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    clients: Vec<u32>,
    /// Launches timed one after the other, of each kind.
    #[arg(long, default_value_t = 100)]
    launches: u32,
    /// So many launches at once, one measurement after the other.
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    at_once: Vec<u32>,
}

struct Bench {
    report: Report,
    seconds: u32,
    pairs: usize,
    options: Options,
}

pub async fn all(seconds: u32, pairs: usize, options: &Options, quick: bool) -> anyhow::Result<String> {
    raise_open_files()?;
    let options = if quick {
        Options {
            slots: vec![1000, 8000],
            decisions: 50,
            clients: vec![8],
            launches: 5,
            at_once: vec![8, 32],
        }
    } else {
        options.clone()
    };
    let steps = options.slots.len() + 2 * options.clients.len() + launches::steps(&options);
    let report = Report::new("Capacity", NOTE, Progress::new("capacity", steps, CAPACITY_EXPECTED));
    let mut bench = Bench { report, seconds, pairs, options };
    bench.without_machines().await?;
    bench.with_machines().await?;
    Ok(bench.report.render())
}

impl Bench {
    async fn without_machines(&mut self) -> anyhow::Result<()> {
        let mut product = Product::prepare()?;
        product.start(&["--roles", "api"]).await?;
        let admin = product.administrator().await?;
        enable(&admin).await;
        let mut db = product.database().await?;
        rows::regions(&mut db).await?;
        self.decisions(&product, &mut db).await?;
        // What is kept in memory of an emptier fleet is not what is measured.
        product.stop();
        product.start(&["--roles", "api"]).await?;
        let db = product.database().await?;
        self.reservations(&product, &admin, db).await
    }
}
