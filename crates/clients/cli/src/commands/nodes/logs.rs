//! Logs of a node: recent lines, or following new ones.

use std::num::NonZeroU64;

use chrono::{DateTime, Utc};
use clap::{Args as ClapArgs, ValueEnum};
use sdk::{Client, types};
use serde::{Deserialize, Serialize};

use super::log_follow;
use crate::{
    app::App,
    args::Format,
    failure::{Failure, Result, local},
    output::{Columns, printable, write_on},
    resolve,
};

/// Without --follow, the last lines that the agent has sent to the control plane. With --follow, also new lines as they
/// are logged, through the node's tunnel; lines that were dropped because this reader was too slow are counted.
#[derive(ClapArgs)]
pub struct Logs {
    /// Node, by host name or id.
    node: String,
    /// Follow new lines until interrupted.
    #[arg(short, long)]
    follow: bool,
    /// Log to read; the kernel's is only on the node, and needs --follow.
    #[arg(long, value_enum, default_value_t = Source::Agent)]
    source: Source,
    /// Number of recent lines to show first.
    #[arg(long, value_name = "N", default_value = "200", value_parser = lines)]
    lines: NonZeroU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    Agent,
    Kernel,
}

fn lines(text: &str) -> std::result::Result<NonZeroU64, String> {
    text.parse()
        .ok()
        .filter(|n: &NonZeroU64| n.get() <= 1000)
        .ok_or_else(|| "must be from 1 to 1000".to_owned())
}

const COLUMNS: Columns =
    &[("AT", "at"), ("LEVEL", "level"), ("SOURCE", "source"), ("MESSAGE", "message"), ("SEQ", "seq")];

/// A line of a log, from the control plane or from the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The number that the control plane gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    pub at: DateTime<Utc>,
    pub level: String,
    pub source: String,
    pub message: String,
    /// Where it is in a log that numbers its lines, as the node sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
}

/// The number of a line, among those of one boot of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub boot: String,
    pub number: u64,
}

impl From<types::NodeLogLine> for Line {
    fn from(line: types::NodeLogLine) -> Self {
        Self {
            seq: Some(line.seq),
            at: line.at,
            level: line.level.to_string(),
            source: line.source,
            message: line.message,
            position: None,
        }
    }
}

pub async fn run(app: &App, client: &Client, logs: Logs) -> Result {
    let node = resolve::node(client, &logs.node).await?;
    if logs.follow {
        let lines = logs.lines.get();
        return Box::pin(log_follow::run(
            app,
            client,
            log_follow::Wanted { node, source: logs.source, lines },
        ))
        .await;
    }
    if logs.source == Source::Kernel {
        let text = "the kernel's log is not kept by the control plane";
        return Err(Failure::client(text).suggest("Add --follow to read it on the node."));
    }
    let (after, wait) = (None, None);
    let tail = send!(client.node_log_tail(&node, after, Some(logs.lines), wait));
    if !app.out.is_table() {
        return app.out.list(&tail.items, COLUMNS);
    }
    let lines: Vec<Line> = tail.items.into_iter().map(Line::from).collect();
    print(app, &lines).map(drop)
}

/// False when nobody reads the output any more.
pub fn print(app: &App, lines: &[Line]) -> Result<bool> {
    let texts: Vec<String> = lines.iter().map(|line| text(app.out.format, line)).collect::<Result<_>>()?;
    write_on(texts.concat().as_bytes())
}

/// For people, or one JSON document a line.
fn text(format: Format, line: &Line) -> Result<String> {
    if matches!(format, Format::Json) {
        let text = serde_json::to_string(line).map_err(local("the result cannot be printed"))?;
        return Ok(format!("{text}\n"));
    }
    let at = line.at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    Ok(format!("{}\n", printable(&format!("{at} {:<5} {}: {}", line.level, line.source, line.message))))
}
