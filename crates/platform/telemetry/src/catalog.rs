//! The catalog of metrics as a page of the documentation.

use crate::{
    metric::{Kind, Metric},
    names::ALL,
};

/// `docs/metrics.md`.
pub fn catalog_markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\nGenerated from `telemetry::names`; do not edit. `/metrics` on the operations listener has them in the \
         Prometheus format. Each process reports its own values: counters are summed over processes, and gauges that count \
         database rows are the same in each, so take their maximum. Alerts and runbooks: \
         [operations.md](operations.md#seeing-it).\n\n\
         | metric | type | labels | what it says |\n| --- | --- | --- | --- |\n",
    );
    for metric in ALL {
        out += &format!("| `{}` | {} | {} | {} |\n", metric.name, kind(metric), labels(metric), metric.help);
    }
    out
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

fn labels(metric: &Metric) -> String {
    let labels = metric.labels.iter().map(|(name, values)| {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        if values.is_empty() { format!("`{name}`") } else { format!("`{name}` ({})", values.join(", ")) }
    });
    let labels: Vec<String> = labels.collect();
    if labels.is_empty() { "–".to_owned() } else { labels.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_one_row_with_its_type_and_labels() {
        let page = catalog_markdown();
        for metric in ALL {
            let rows: Vec<&str> =
                page.lines().filter(|line| line.starts_with(&format!("| `{}` |", metric.name))).collect();
            assert_eq!(rows.len(), 1, "{}", metric.name);
            assert!(rows[0].contains(kind(metric)), "{}", rows[0]);
            assert!(metric.labels.iter().all(|(label, _)| rows[0].contains(label)), "{}", rows[0]);
        }
    }
}
