//! What happened, in figures: for people, for tests and for benchmarks.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kernel::ids::TaskId;
use serde::{Deserialize, Serialize};

/// Executions are counted by task up to so many tasks; beyond, only in total.
const TASKS_COUNTED: usize = 1_000_000;
/// So many ids are named when tasks ran more than once.
const IDS_NAMED: usize = 32;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Counts of all nodes together. Cheap enough to touch for every message.
        #[derive(Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            pub start_latency: Histogram,
            executions: Mutex<Executions>,
        }

        /// The same at one moment, as it is written to the report.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct Report {
            $($(#[$doc])* pub $name: u64,)*
            /// Different tasks that were begun.
            pub tasks_distinct: u64,
            /// Tasks that were begun more than once: there must be none.
            pub tasks_repeated: u64,
            pub repeated_task_ids: Vec<TaskId>,
            /// Second deliveries that had no effect.
            pub duplicates_refused: u64,
            /// From the signing of a task to its beginning on the node, in microseconds.
            pub start_latency_us: Quantiles,
        }

        impl Counters {
            pub fn report(&self) -> Report {
                let executions = self.executions.lock().unwrap_or_else(PoisonError::into_inner);
                let repeated = || executions.by_task.iter().filter(|(_, times)| **times > 1);
                let again: u64 = repeated().map(|(_, times)| u64::from(*times) - 1).sum();
                Report {
                    duplicates_refused: self.tasks_delivered_again.get().saturating_sub(again),
                    $($name: self.$name.get(),)*
                    tasks_distinct: executions.by_task.len() as u64 + executions.beyond,
                    tasks_repeated: repeated().count() as u64,
                    repeated_task_ids: repeated().take(IDS_NAMED).map(|(id, _)| *id).collect(),
                    start_latency_us: self.start_latency.quantiles(),
                }
            }
        }
    };
}

counters! {
    nodes;
    /// Nodes that exchanged a token for a certificate.
    enrolled;
    /// Connections that were made, those of enrolment included.
    connections;
    /// Connections that are open.
    connected;
    heartbeats;
    /// Beginnings of tasks.
    tasks_started;
    tasks_succeeded;
    tasks_failed;
    /// Tasks that a fault delivered a second time.
    tasks_delivered_again;
    /// Tasks that were refused without effect.
    tasks_refused;
    results_told;
    restarts;
    fault_drop;
    fault_delay;
    fault_duplicate;
    fault_crash;
    fault_skew;
    fault_disk_full;
    fault_wrong_result;
    fault_flap;
    /// Rules of the script that came to pass.
    fault_script;
}

#[derive(Default)]
struct Executions {
    by_task: HashMap<TaskId, u32>,
    beyond: u64,
}

#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn take(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// A task was begun, so long after it was signed.
    pub fn begun(&self, task: TaskId, after: Duration) {
        self.tasks_started.add();
        self.start_latency.record(after);
        let mut executions = self.executions.lock().unwrap_or_else(PoisonError::into_inner);
        if executions.by_task.len() < TASKS_COUNTED || executions.by_task.contains_key(&task) {
            *executions.by_task.entry(task).or_default() += 1;
        } else {
            executions.beyond += 1;
        }
    }
}

/// Powers of two, each in 32 steps: true to about 3 %.
pub struct Histogram(Box<[AtomicU64]>);

const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const POWERS: u64 = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    pub count: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self((0..STEPS * POWERS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Histogram {
    pub fn record(&self, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.0.get(bucket_of(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn quantiles(&self) -> Quantiles {
        let counts: Vec<u64> = self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let count = counts.iter().sum();
        let at = |share: f64| {
            let rank = ((count as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            counts.iter().position(|n| {
                seen += n;
                seen >= rank
            })
        };
        let top = |share| if count == 0 { 0 } else { at(share).map_or(0, top_of) };
        Quantiles { count, p50: top(0.5), p90: top(0.9), p99: top(0.99), p999: top(0.999), max: top(1.0) }
    }
}

fn bucket_of(micros: u64) -> usize {
    let power = (u64::BITS - micros.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let bucket = u64::from(power) * STEPS + (micros >> power);
    usize::try_from(bucket.min(STEPS * POWERS - 1)).unwrap_or(0)
}

/// The largest value that falls into the bucket.
fn top_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let power = (bucket / STEPS).saturating_sub(1);
    let step = bucket - power * STEPS;
    ((step + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_true_to_a_few_percent() {
        let histogram = Histogram::default();
        for micros in 1..=100_000 {
            histogram.record(Duration::from_micros(micros));
        }
        let q = histogram.quantiles();
        assert_eq!(q.count, 100_000);
        for (found, exact) in [(q.p50, 50_000.0), (q.p90, 90_000.0), (q.p99, 99_000.0), (q.max, 100_000.0)] {
            assert!((found as f64 / exact - 1.0).abs() < 0.04, "{found} {exact}");
        }
        for micros in [0, 1, 31, 32, 63, 64, 1_000, 999_999] {
            assert!(
                top_of(bucket_of(micros)) >= micros && top_of(bucket_of(micros)) <= micros + micros / 16,
                "{micros}"
            );
        }
        assert_eq!(Histogram::default().quantiles(), Quantiles::default());
    }

    #[test]
    fn a_task_that_ran_twice_is_named() {
        let counters = Counters::default();
        let ids: [TaskId; 2] = [kernel::Ambient::system().id(), kernel::Ambient::system().id()];
        counters.begun(ids[0], Duration::ZERO);
        counters.begun(ids[1], Duration::ZERO);
        counters.begun(ids[1], Duration::ZERO);
        let report = counters.report();
        assert_eq!((report.tasks_started, report.tasks_distinct, report.tasks_repeated), (3, 2, 1));
        assert_eq!(report.repeated_task_ids, [ids[1]]);
    }
}
