//! The agent's own log: lines on standard error, which the service manager keeps. What the drivers say at info
//! and above goes to the control plane as well; the session hands over its own lines itself.

use std::fmt::{self, Write as _};

use node_proto::contract::LogLevel;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, filter_fn},
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use crate::session::{Log, TARGET};

const OURS: [&str; 2] = ["node_agent", TARGET];

fn ours(metadata: &Metadata<'_>) -> bool {
    OURS.iter().any(|ours| metadata.target().starts_with(ours))
}

/// Once per process. `log` is where lines for the control plane go.
pub(super) fn start(level: &str, log: Log) {
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    let shown = lines.with_filter(level).with_filter(filter_fn(ours));
    let shipped = Shipping(log).with_filter(LevelFilter::INFO);
    // A second subscriber in one process is not wanted, and not an error.
    let _ = tracing_subscriber::registry().with(shown).with(shipped).try_init();
}

struct Shipping(Log);

impl<S: Subscriber> Layer<S> for Shipping {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if !ours(metadata) || metadata.target() == TARGET {
            return;
        }
        let level = match *metadata.level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        let mut text = Text::default();
        event.record(&mut text);
        let source = metadata.target().rsplit("::").next().unwrap_or_default();
        self.0.take(level, source, &format!("{}{}", text.message, text.fields));
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}
