//! The one Prometheus recorder of the process.

use std::{sync::OnceLock, time::Duration};

use metrics::Label;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::{metric::Kind, names, process};

const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// Upper bounds for every histogram named `*_seconds`: one row read in a millisecond, a long poll in half a
/// minute, and the latency objectives (100 ms, 500 ms) are bounds themselves.
const SECONDS_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Renders what the `metrics` macros counted. One per process, from [`metrics`].
pub struct Metrics {
    handle: PrometheusHandle,
}

/// The recorder, installed on first use. Call it before anything counts: what is counted earlier is lost.
pub fn metrics() -> &'static Metrics {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    METRICS.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let recorder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS_BUCKETS)
            // Refused only for an empty list of buckets, which ours is not.
            .unwrap_or_else(|_| PrometheusBuilder::new())
            .build_recorder();
        let handle = recorder.handle();
        if ::metrics::set_global_recorder(recorder).is_err() {
            tracing::error!("another metrics recorder is installed: /metrics will be empty");
        }
        describe();
        Metrics { handle }
    })
}

fn describe() {
    for metric in names::ALL {
        match metric.kind {
            Kind::Counter => ::metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => ::metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => ::metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    for (name, labels) in names::FROM_ZERO {
        let labels: Vec<Label> =
            labels.iter().map(|(key, value)| Label::from_static_parts(key, value)).collect();
        ::metrics::counter!(*name, labels).increment(0);
    }
}

impl Metrics {
    /// The Prometheus text of all metrics, with process figures read now.
    pub fn render(&self) -> String {
        let mut out = self.handle.render();
        process::render(&mut out);
        out
    }

    /// Folds recorded samples into buckets until `stop`. Samples wait in memory for a scrape; this keeps them
    /// few when nobody scrapes. Spawn it once.
    pub async fn upkeep(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(UPKEEP_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => self.handle.run_upkeep(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::metrics;
    use crate::{metric::Kind, names};

    #[test]
    fn render_shows_counters_gauges_and_bucketed_histograms_with_their_help() {
        let handle = metrics();
        ::metrics::counter!(names::AUDIT_ROWS_TOTAL).increment(3);
        ::metrics::gauge!(names::OUTBOX_PENDING).set(7.0);
        ::metrics::histogram!(names::HTTP_REQUEST_DURATION_SECONDS, "operation" => "render_test")
            .record(0.02);

        let text = handle.render();
        for expected in [
            "# HELP audit_rows_total Audit rows written.",
            "# TYPE audit_rows_total counter",
            "audit_rows_total 3",
            "node_identities_copied_total 0",
            r#"node_tasks_total{event="rejected"} 0"#,
            "outbox_pending 7",
            "# TYPE http_request_duration_seconds histogram",
            r#"http_request_duration_seconds_bucket{operation="render_test",le="0.01"} 0"#,
            r#"http_request_duration_seconds_bucket{operation="render_test",le="0.025"} 1"#,
        ] {
            assert!(text.contains(expected), "no {expected:?} in:\n{text}");
        }
    }

    #[test]
    fn metric_names_are_unique_and_described() {
        let mut seen = std::collections::BTreeSet::new();
        for metric in names::ALL {
            assert!(seen.insert(metric.name), "{} is listed twice", metric.name);
            assert!(metric.help.ends_with('.'), "{} has no sentence", metric.name);
            let is_counter = metric.kind == Kind::Counter;
            assert_eq!(
                metric.name.ends_with("_total"),
                is_counter,
                "{}: only counters are totals",
                metric.name
            );
        }
    }

    #[tokio::test]
    async fn upkeep_ends_when_told_to_stop() {
        let stop = CancellationToken::new();
        let task = tokio::spawn(metrics().upkeep(stop.clone()));
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    }
}
