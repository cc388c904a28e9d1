//! `make bench`: what the control plane costs, beside what the same work costs without it.
//!
//! Everything is real and runs in one go on one machine: `gpuaasd` (release) with its built-in Postgres,
//! pgbench on the same socket, a bare axum handler as a peer, wrk as the client. Variants are interleaved
//! (A B C A B C …) and the median is taken, because machines are noisy; CPU per operation comes from /proc of
//! each process and is steadier than wall time. The table is printed and kept in `docs/benchmarks.md`.

mod cpu;
mod exec;
mod load;
mod peer;
mod product;
mod report;
mod scenarios;

use clap::Parser;

#[derive(Parser)]
enum Args {
    /// Run all scenarios and print the table.
    All {
        /// Seconds per measurement.
        #[arg(long, default_value_t = 3)]
        seconds: u32,
        /// Pairs per scenario; the median counts.
        #[arg(long, default_value_t = 5)]
        pairs: usize,
        /// Write the table to this file too.
        #[arg(long)]
        out: Option<std::path::PathBuf>,
    },
    /// Serve the bare axum handler (started by `all`).
    Peer { port: u16, socket_dir: String, org_id: uuid::Uuid },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse() {
        Args::Peer { port, socket_dir, org_id } => peer::serve(port, &socket_dir, org_id).await,
        Args::All { seconds, pairs, out } => {
            let report = scenarios::all(seconds, pairs).await?;
            println!("{report}");
            if let Some(path) = out {
                std::fs::write(path, report)?;
            }
            Ok(())
        }
    }
}
