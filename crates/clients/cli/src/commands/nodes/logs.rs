//! The log of an agent: recent lines, or following new ones.

use std::num::NonZeroU64;

use clap::Args as ClapArgs;
use sdk::{Client, types};

use crate::{
    app::App,
    args::Format,
    failure::{Result, local},
    output::{Columns, printable, write_on},
    resolve,
};

#[derive(ClapArgs)]
pub struct Logs {
    /// Node, by host name or id.
    node: String,
    /// Follow new lines until interrupted.
    #[arg(short, long)]
    follow: bool,
    /// Number of recent lines to show first.
    #[arg(long, value_name = "N", default_value = "200", value_parser = lines)]
    lines: NonZeroU64,
}

fn lines(text: &str) -> std::result::Result<NonZeroU64, String> {
    text.parse()
        .ok()
        .filter(|n: &NonZeroU64| n.get() <= 1000)
        .ok_or_else(|| "must be from 1 to 1000".to_owned())
}

const COLUMNS: Columns =
    &[("AT", "at"), ("LEVEL", "level"), ("SOURCE", "source"), ("MESSAGE", "message"), ("SEQ", "seq")];
/// The longest long poll that the server allows.
const WAIT: &str = "20s";

pub async fn run(app: &App, client: &Client, logs: Logs) -> Result {
    let node = resolve::node(client, &logs.node).await?;
    let (after, wait) = (None, None);
    let mut tail = send!(client.node_log_tail(&node, after, Some(logs.lines), wait));
    if !logs.follow && !app.out.is_table() {
        return app.out.list(&tail.items, COLUMNS);
    }
    loop {
        let mut text = String::new();
        for item in &tail.items {
            text += &line(app, item)?;
        }
        if !(write_on(text.as_bytes())? && logs.follow) {
            return Ok(());
        }
        let limit = None;
        tail = send!(client.node_log_tail(&node, Some(tail.next_after), limit, Some(WAIT)));
    }
}

/// For people, or one JSON document a line.
fn line(app: &App, item: &types::NodeLogLine) -> Result<String> {
    if matches!(app.out.format, Format::Json) {
        let text = serde_json::to_string(item).map_err(local("the result cannot be printed"))?;
        return Ok(format!("{text}\n"));
    }
    let at = item.at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let level = item.level.to_string();
    Ok(format!("{}\n", printable(&format!("{at} {level:<5} {}: {}", item.source, item.message))))
}
