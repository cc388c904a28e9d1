//! The table.

use std::fmt::Write as _;

use kernel::Ambient;

use crate::{cpu, progress::Progress};

/// One measurement of one variant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub per_second: f64,
    /// CPU microseconds per operation.
    pub product_cpu: f64,
    pub postgres_cpu: f64,
    pub client_cpu: f64,
}

impl Sample {
    /// What the servers spend on one operation.
    pub fn server_cpu(&self) -> f64 {
        self.product_cpu + self.postgres_cpu
    }
}

/// The median of each column.
pub fn median(samples: &[Sample]) -> Sample {
    let column = |pick: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Sample {
        per_second: column(|s| s.per_second),
        product_cpu: column(|s| s.product_cpu),
        postgres_cpu: column(|s| s.postgres_cpu),
        client_cpu: column(|s| s.client_cpu),
    }
}

/// What an operation of ours is held against.
pub struct Peer {
    pub name: &'static str,
    pub sample: Sample,
    /// The least share of its rate that we mean to reach.
    pub aim: Option<f64>,
}

/// One section of the document.
pub struct Report {
    title: &'static str,
    /// What a reader of the first table should know.
    note: &'static str,
    rows: Vec<String>,
    figures: Vec<String>,
    progress: Progress,
}

impl Report {
    pub fn new(title: &'static str, note: &'static str, progress: Progress) -> Self {
        Self { title, note, rows: Vec::new(), figures: Vec::new(), progress }
    }

    /// The next step of the section begins.
    pub fn step(&mut self, what: &str) {
        self.progress.step(what);
    }

    /// Ours beside its peers, all measured in the same run.
    pub fn compare(&mut self, operation: &str, ours: Sample, peers: &[Peer]) {
        let row = |name: &str, s: Sample| {
            format!(
                "| {operation} | {name} | {:.0} | {:.0} | {:.0} | {:.0} |",
                s.per_second, s.product_cpu, s.postgres_cpu, s.client_cpu
            )
        };
        self.rows.push(format!("{} | | |", row("**gpuaasd**", ours)));
        eprintln!("{}", row("gpuaasd", ours));
        for Peer { name, sample, aim } in peers {
            let rate = ours.per_second / sample.per_second;
            let cpu = (sample.server_cpu() + sample.client_cpu) / (ours.server_cpu() + ours.client_cpu);
            let aim = aim.map(|least| format!("≥ {least:.2}")).unwrap_or_default();
            self.rows.push(format!("{} {rate:.2} | {aim} | {cpu:.2} |", row(name, *sample)));
        }
    }

    pub fn figure(&mut self, name: &str, value: String, aim: &str) {
        // A whole run takes minutes; whoever waits sees what there is.
        eprintln!("{name}: {value}");
        self.figures.push(format!("| {name} | {value} | {aim} |"));
    }

    pub fn render(&self) -> String {
        let mut out = format!("## {}\n\n", self.title);
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let _ = writeln!(
            out,
            "Date: {}. Machine: {cores} cores; load average at the end: {}. Medians of interleaved runs.\n",
            Ambient::system().now().format("%Y-%m-%d"),
            cpu::load_average()
        );
        out += "| operation | variant | ops/s | CPU µs/op in the server | in Postgres | in the client | ops/s ratio (ours ÷ variant) | aim | CPU ratio (variant ÷ ours, all processes) |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
        for row in &self.rows {
            out += row;
            out.push('\n');
        }
        let _ = writeln!(out, "\n{}", self.note);
        out += "\n| figure | measured | aim |\n| --- | --- | --- |\n";
        for row in &self.figures {
            out += row;
            out.push('\n');
        }
        out
    }
}
