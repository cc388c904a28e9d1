//! Money: what turning time into postings costs beside bare rows, whether a balance is read as fast from a long ledger
//! as from a short one, and how many messages of the payment provider are taken in.
//!
//! Accrual is measured in this process, which is the worker then: it runs the worker's own tick against the product's
//! database, with a clock that is moved by hand from window to window, while no other worker runs. Balances and messages
//! go through HTTP.

mod accrual;
mod balance;
mod bare;
mod intake;
mod meters;

use crate::{MONEY_EXPECTED, product::Product, progress::Progress, report::Report};

const NOTE: &str = "Accrual: the worker's tick from what is due to the last commit, in batches, with leaves, digests, hash \
     chains, postings, the checks of the database, balance states and budgets; an operation is one meter in one window. \
     Bare rows: the same usage records and ledger lines, and the same update of as many meters, in three statements and \
     one transaction, into tables with the same columns, indexes and partitioning, without postings, hashes, checks and \
     triggers. Both go through the same windows by turns, and come to the same sums. Balances: GET of the balance \
     through the API; the long ledger is two years of postings without lines, so the table has a part for each of 24 months, \
     which reads of the short ledger beside it go through too, and one part before. Messages: POST of a signed message to \
     the door for the payment provider, which checks the \
     signature and keeps the message before it answers; pgbench sends the same statement with the same body, with no \
     HTTP in front of it and no signature to check. While messages are measured, in both variants, the worker is denied \
     to process what was kept.";

#[derive(Clone, clap::Args)]
pub struct Options {
    /// So many meters run, one measurement after the other, from few to many.
    #[arg(long, value_delimiter = ',', default_value = "100000,300000")]
    meters: Vec<u32>,
    /// Organizations that the meters belong to, in equal parts.
    #[arg(long, default_value_t = 1000)]
    meter_orgs: u32,
    /// Windows that are accrued for each number of meters; the median counts.
    #[arg(long, default_value_t = 3)]
    windows: usize,
    /// Entries of the long ledger.
    #[arg(long, default_value_t = 2_000_000)]
    entries: u32,
    /// So many clients send messages at once, one measurement after the other.
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    senders: Vec<u32>,
    /// Measure only these of accrual, balance, intake.
    #[arg(long, value_delimiter = ',', default_value = "accrual,balance,intake")]
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Accrual,
    Balance,
    Intake,
}

impl Part {
    fn steps(self, options: &Options) -> usize {
        match self {
            Self::Accrual => options.meters.len(),
            Self::Balance => 2,
            Self::Intake => options.senders.len(),
        }
    }
}

struct Bench {
    report: Report,
    seconds: u32,
    pairs: usize,
    options: Options,
}

pub async fn all((seconds, pairs): (u32, usize), options: &Options, quick: bool) -> anyhow::Result<String> {
    let mut options = options.clone();
    if quick {
        options.meters = vec![2000, 20_000];
        options.meter_orgs = 20;
        options.windows = 1;
        options.entries = 20_000;
        options.senders = vec![8];
    }
    let steps = options.parts.iter().map(|part| part.steps(&options)).sum();
    let report = Report::new("Money", NOTE, Progress::new("money", steps, MONEY_EXPECTED));
    let mut bench = Bench { report, seconds, pairs, options };
    for part in bench.options.parts.clone() {
        match part {
            Part::Accrual => bench.accrual().await?,
            Part::Balance => bench.balance().await?,
            Part::Intake => bench.intake().await?,
        }
    }
    Ok(bench.report.render())
}

/// A product that answers and does nothing by itself.
async fn quiet_product() -> anyhow::Result<Product> {
    let mut product = Product::prepare()?;
    product.start(&["--roles", "api"]).await?;
    Ok(product)
}
