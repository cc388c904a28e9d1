//! `gpuaas tasks`, and following a task to its end.

use std::time::Duration;

use clap::Subcommand;
use sdk::{
    Client,
    types::{self, TaskState as State},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{on_platform, optional};
use crate::{
    app::App,
    args::{Limit, Wait},
    failure::{Exit, Failure, Result},
    output::{Columns, note},
    resolve,
    resources::{
        kinds,
        names::{Scope, learn},
    },
};

/// Polling interval while waiting for a task: short at first.
const FIRST_POLL: Duration = Duration::from_millis(200);
const LONGEST_POLL: Duration = Duration::from_secs(2);

#[derive(Subcommand)]
pub enum Command {
    /// List tasks, newest first.
    List {
        /// Only tasks of this node, by host name or id.
        #[arg(long)]
        node: Option<String>,
        /// Only tasks in this state.
        #[arg(long, value_parser = [
            "queued", "dispatched", "running", "succeeded", "failed", "expired", "cancelled",
        ])]
        state: Option<String>,
        /// Only tasks of this kind, such as slice.topology_discover.
        #[arg(long = "type", value_name = "TYPE")]
        task_type: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a task with its phases, durations and outcome.
    #[command(alias = "get")]
    Show {
        /// Task, by id.
        task: String,
    },
    /// Cancel a task. A node that has started it stops at the next point where this is safe.
    Cancel {
        /// Task, by id.
        task: String,
    },
}

pub const COLUMNS: Columns = &[
    ("NODE", "node_id"),
    ("TYPE", "task_type"),
    ("STATE", "state"),
    ("ISSUED", "issued_at"),
    ("ID", "id"),
    ("STARTED", "started_at"),
    ("FINISHED", "finished_at"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = &app.client().await?;
    match command {
        Command::List { node, state, task_type, limit } => {
            let node = resolve::optional_node(client, node).await?;
            let state = optional("state", state)?;
            let tasks: Vec<types::NodeTask> = pages!(limit.get(), |page| client.task_list(
                page.cursor(),
                node.as_deref(),
                page.size(),
                state,
                task_type.as_deref()
            ))?;
            on_platform::list(app, client, &tasks, COLUMNS).await
        }
        Command::Show { task } => {
            let task = resolve::on_platform(client, &kinds::TASK, &task).await?;
            show(app, client, &send!(client.task_get(&task))).await
        }
        Command::Cancel { task } => {
            let task = resolve::on_platform(client, &kinds::TASK, &task).await?;
            on_platform::item(app, client, &send!(client.task_cancel(&task)), COLUMNS).await
        }
    }
}

/// A task that was queued: shown, or followed to its end and then shown.
pub async fn queued(app: &App, client: &Client, task: types::NodeTask, wait: &Wait) -> Result {
    let Some(limit) = wait.limit() else {
        note(&format!("See it with `gpuaas tasks show {}`.", task.id.as_str()));
        return on_platform::item(app, client, &task, COLUMNS).await;
    };
    let ended = follow(client, task, limit).await?;
    show(app, client, &ended).await?;
    succeeded(&ended)
}

pub fn is_over(state: State) -> bool {
    match state {
        State::Succeeded | State::Failed | State::Expired | State::Cancelled => true,
        State::Queued | State::Dispatched | State::Running => false,
    }
}

/// Polls a task until it has ended, and prints its progress.
pub async fn follow(client: &Client, mut task: types::NodeTask, limit: Duration) -> Result<types::NodeTask> {
    let (deadline, mut pause) = (Instant::now() + limit, FIRST_POLL);
    let mut printed = PrintedProgress::default();
    loop {
        for line in printed.new_lines(&task) {
            note(&line);
        }
        if is_over(task.state) {
            return Ok(task);
        }
        if Instant::now() + pause > deadline {
            let id = task.id.as_str();
            let text = format!("the task {id} is still {} after {} s", task.state, limit.as_secs());
            return Err(Failure::new(Exit::Server, text)
                .suggest(format!("The task continues. See it with `gpuaas tasks show {id}`.")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_POLL);
        task = send!(client.task_get(&task.id));
    }
}

/// What was already printed about a task.
#[derive(Default)]
struct PrintedProgress {
    state: Option<State>,
    begun: usize,
    done: usize,
}

impl PrintedProgress {
    fn new_lines(&mut self, task: &types::NodeTask) -> Vec<String> {
        let mut lines = Vec::new();
        if self.state.replace(task.state) != Some(task.state) {
            lines.push(format!("{} {}", task.task_type, task.state));
        }
        for (n, phase) in task.phases.iter().enumerate() {
            match phase.duration_ms {
                Some(ms) if n >= self.done => {
                    self.done = n + 1;
                    self.begun = self.begun.max(n + 1);
                    lines.push(format!("  {} took {}", phase.name, duration(ms)));
                }
                None if n >= self.begun => {
                    self.begun = n + 1;
                    lines.push(format!("  {} …", phase.name));
                }
                _ => {}
            }
        }
        lines
    }
}

fn duration(ms: u64) -> String {
    if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", ms / 1000) }
}

/// An error unless it succeeded.
pub fn succeeded(task: &types::NodeTask) -> Result {
    if task.state == State::Succeeded {
        return Ok(());
    }
    let why = match &task.outcome {
        Some(types::Ending::Failed { failure }) => format!(": {}", failure.message),
        Some(types::Ending::Refused { reason }) => format!(": the node refused it ({reason})"),
        _ => String::new(),
    };
    Err(Failure::new(Exit::Server, format!("the task {} {}{why}", task.id.as_str(), task.state)))
}

pub async fn show(app: &App, client: &Client, task: &types::NodeTask) -> Result {
    learn(app, client, &Scope::Platform, std::slice::from_ref(task)).await;
    let time = |at: &chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let phases: Vec<String> = task
        .phases
        .iter()
        .map(|phase| {
            let took = phase.duration_ms.map_or_else(|| "…".to_owned(), duration);
            format!("{}  {}  {took}", time(&phase.started_at), phase.name)
        })
        .collect();
    let lines = [
        ("id", task.id.to_string()),
        ("node", task.node_id.to_string()),
        ("type", task.task_type.clone()),
        ("state", task.state.to_string()),
        ("params", readable(&task.params)),
        ("issued", time(&task.issued_at)),
        ("expires", time(&task.expires_at)),
        ("started", task.started_at.as_ref().map(time).unwrap_or_default()),
        ("finished", task.finished_at.as_ref().map(time).unwrap_or_default()),
        ("deliveries", task.deliveries.to_string()),
        ("signer", task.signer_version.to_string()),
        ("correlation id", task.correlation_id.to_string()),
        ("phases", phases.join("\n")),
    ];
    let below = [("outcome", &task.outcome), ("late outcome", &task.late_outcome)]
        .into_iter()
        .filter_map(|(name, ending)| Some(format!("\n{name}: {}\n", outcome(ending.as_ref()?))))
        .collect::<String>();
    app.out.page(task, &lines, &below)
}

fn outcome(ending: &types::Ending) -> String {
    match ending {
        types::Ending::Succeeded { output } => {
            format!("succeeded\n{}", collected(output).unwrap_or_else(|| readable(output)))
        }
        types::Ending::Failed { failure } => {
            format!("failed ({})\n{}", text(&json!(failure.code)), failure.message)
        }
        types::Ending::Refused { reason } => format!("refused ({reason}); nothing was done"),
    }
}

/// Data of any form for people: a line for each value, indented below what it is part of.
fn readable(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(fields) if fields.is_empty() => String::new(),
        other => serde_yaml_ng::to_string(other)
            .map_or_else(|_| other.to_string(), |text| text.trim_end().to_owned()),
    }
}

/// Collected text unquoted rather than as JSON.
fn collected(output: &Value) -> Option<String> {
    let parts = output.get("parts")?.as_array()?;
    let part = |part: &Value| {
        let cut = if part["truncated"] == true { " (cut)" } else { "" };
        let content = part.get("text")?.as_str()?;
        Some(format!("── {}{cut}\n{}\n", text(&part["part"]), content.trim_end()))
    };
    parts.iter().map(part).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(state: &str, phases: Value) -> types::NodeTask {
        let id = "0193b3a0000070008000000000000001";
        let at = "2026-01-02T03:04:05Z";
        let value = json!({
            "id": format!("task_{id}"), "node_id": format!("node_{id}"), "task_type": "node.drain", "state": state,
            "params": {}, "signer_version": 1, "correlation_id": "0193b3a0-0000-7000-8000-000000000001",
            "issued_at": at, "expires_at": at, "deliveries": 1, "phases": phases, "version": 1,
            "created_at": at, "updated_at": at,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_phase_is_printed_once_when_it_starts_and_once_when_it_ends() {
        let at = "2026-01-02T03:04:05Z";
        let mut printed = PrintedProgress::default();
        assert_eq!(printed.new_lines(&task("queued", json!([]))), ["node.drain queued"]);
        assert!(printed.new_lines(&task("queued", json!([]))).is_empty());
        let begun = json!([{ "name": "look", "started_at": at }]);
        assert_eq!(printed.new_lines(&task("running", begun.clone())), ["node.drain running", "  look …"]);
        assert!(printed.new_lines(&task("running", begun)).is_empty());
        let done = json!([
            { "name": "look", "started_at": at, "duration_ms": 12 },
            { "name": "act", "started_at": at, "duration_ms": 12_345 },
        ]);
        let news = printed.new_lines(&task("succeeded", done));
        assert_eq!(news, ["node.drain succeeded", "  look took 12 ms", "  act took 12 s"]);
    }

    #[test]
    fn only_a_task_that_succeeded_is_no_failure() {
        assert!(succeeded(&task("succeeded", json!([]))).is_ok());
        for state in ["failed", "expired", "cancelled"] {
            assert!(succeeded(&task(state, json!([]))).is_err(), "{state}");
        }
    }

    #[test]
    fn data_is_shown_in_lines_and_nothing_as_nothing() {
        let output = json!({ "passed": true, "checks": [{ "name": "gpu_count" }] });
        assert_eq!(readable(&output), "passed: true\nchecks:\n- name: gpu_count");
        assert_eq!((readable(&json!({})), readable(&Value::Null)), (String::new(), String::new()));
    }

    #[test]
    fn collected_text_is_shown_as_it_is() {
        let output = json!({ "parts": [{ "part": "mounts", "text": "a\nb\n", "truncated": true }] });
        assert_eq!(collected(&output).unwrap(), "── mounts (cut)\na\nb\n");
        assert_eq!(collected(&json!({ "drained": true })), None);
    }
}
