//! What a running process tells the world about itself: logs, metrics, traces and health.
//!
//! - [`logs`] sets up `tracing` once per process: one JSON object per line on stderr (stdout belongs to
//!   program output), with the fields of the surrounding spans flattened into the line.
//! - [`metrics`] holds the one Prometheus recorder; [`names`] lists every metric the product has, and [`catalog`]
//!   prints that list as a page of the documentation.
//! - [`traces`] exports spans over OTLP (http/protobuf) and carries W3C `traceparent` values as strings, so
//!   that a trace can travel through rows and messages as well as through headers.
//! - [`health`] answers `/healthz`, `/readyz` and `/metrics`.
//!
//! Promises: observing never harms what is observed. Span queues are bounded and drop when full, exports have
//! a timeout and run on their own thread, a dead collector costs two log lines per outage, and flushing at
//! shutdown gives up after the time it is given. Span fields of INFO level and above reach the log line
//! whatever the log filter says: the filter chooses events, not context.

mod bug;
pub mod catalog;
mod error;
mod filter;
pub mod health;
mod json;
pub mod logs;
mod metric;
pub mod metrics;
pub mod names;
mod process;
pub mod traces;

pub use bug::bug_found;
pub use error::TelemetryError;
pub use health::{Health, Now, Probe};
pub use logs::{LogConfig, LogFormat, TelemetryGuard, init};
pub use metrics::{Metrics, metrics};
pub use traces::{OtlpConfig, current_traceparent, set_parent};
