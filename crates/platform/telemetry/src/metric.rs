//! What the catalog says of one metric.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: Labels,
    pub help: &'static str,
}

/// Labels with their values; no values where the list is that of an enum or of the declared endpoints.
pub type Labels = &'static [(&'static str, &'static [&'static str])];

pub const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

pub const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

pub const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}
