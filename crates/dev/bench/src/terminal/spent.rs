//! CPU of every process that has a part in a terminal.

use std::ops::AddAssign;

use super::{doors::Doors, peer::Peer};
use crate::cpu;

const PROCESSES: [&str; 5] = ["gpuaasd", "Postgres", "node", "terminado", "client"];

/// CPU microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub product: f64,
    pub postgres: f64,
    pub node: f64,
    pub peer: f64,
    pub client: f64,
}

impl Spent {
    /// Since each process began.
    pub fn read(doors: &Doors, peer: &Peer) -> Self {
        let [product, postgres, node] = doors.machines.cpu().map(|micros| micros as f64);
        let [peer, client] = [peer.pid(), std::process::id()].map(|pid| cpu::process_micros(pid) as f64);
        Self { product, postgres, node, peer, client }
    }

    const fn columns(&self) -> [f64; 5] {
        [self.product, self.postgres, self.node, self.peer, self.client]
    }

    const fn from_columns([product, postgres, node, peer, client]: [f64; 5]) -> Self {
        Self { product, postgres, node, peer, client }
    }

    pub fn since(&self, before: &Self) -> Self {
        let (after, before) = (self.columns(), before.columns());
        Self::from_columns(std::array::from_fn(|n| after[n] - before[n]))
    }

    pub fn scaled(&self, factor: f64) -> Self {
        Self::from_columns(self.columns().map(|micros| micros * factor))
    }

    /// The median of each process.
    pub fn median(all: &[Self]) -> Self {
        Self::from_columns(std::array::from_fn(|n| {
            let mut values: Vec<f64> = all.iter().map(|spent| spent.columns()[n]).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        }))
    }

    /// Of the processes that did something.
    pub fn text(&self, decimals: usize) -> String {
        let said = |(name, value): (&str, f64)| format!("{name} {value:.decimals$}");
        let columns = PROCESSES.into_iter().zip(self.columns());
        columns.filter(|(_, value)| *value > 0.0).map(said).collect::<Vec<_>>().join(", ")
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        let (own, more) = (self.columns(), more.columns());
        *self = Self::from_columns(std::array::from_fn(|n| own[n] + more[n]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_each_process_and_idle_processes_are_not_named() {
        let runs: Vec<Spent> = [(3.0, 10.0), (1.0, 30.0), (2.0, 20.0)]
            .map(|(product, client)| Spent { product, client, ..Spent::default() })
            .to_vec();
        assert_eq!(Spent::median(&runs).text(1), "gpuaasd 2.0, client 20.0");
        let mut sum = runs[0].since(&runs[1]).scaled(0.5);
        sum += runs[2];
        assert_eq!(sum.text(0), "gpuaasd 3, client 10");
    }
}
