//! `gpuaas ops sagas`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{allocations::follow::duration, on_platform};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::Columns,
    resolve,
    resources::{
        kinds,
        names::{Scope, learn},
    },
};

#[derive(Subcommand)]
pub enum Command {
    /// List workflow runs, newest first.
    List {
        /// Only runs in this state.
        #[arg(long, value_parser = ["running", "undoing", "succeeded", "undone", "stuck"])]
        state: Option<String>,
        /// Only runs of this workflow, such as provision_machine.
        #[arg(long)]
        name: Option<String>,
        /// Only runs for this subject, such as the id of an allocation.
        #[arg(long)]
        subject: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a run with every attempt of its steps and undos.
    #[command(alias = "get")]
    Show {
        /// Run, by id.
        run: String,
    },
    /// Cancel a run and undo its steps. A run that cannot be undone becomes stuck.
    Cancel {
        /// Run, by id.
        run: String,
        /// Reason, recorded in the audit trail.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("WORKFLOW", "name"),
    ("STATE", "state"),
    ("SUBJECT", "subject"),
    ("STEP", "step"),
    ("CREATED", "created_at"),
    ("ID", "id"),
    ("FAILURE", "failure"),
    ("ATTEMPT", "attempt"),
    ("OVERDUE", "overdue"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { state, name, subject, limit } => {
            let state: Option<types::SagaRunState> = super::optional("state", state)?;
            let runs: Vec<types::SagaRun> = pages!(limit.get(), |page| client.saga_list(
                page.cursor(),
                name.as_deref(),
                page.size(),
                state,
                subject.as_deref()
            ))?;
            on_platform::list(app, client, &runs, COLUMNS).await
        }
        Command::Show { run } => {
            let run = resolve::on_platform(client, &kinds::SAGA_RUN, &run).await?;
            let found = send!(client.saga_get(&run));
            learn(app, client, &Scope::Platform, std::slice::from_ref(&found)).await;
            show(app, &found)
        }
        Command::Cancel { run, reason, confirm } => {
            let id = resolve::on_platform(client, &kinds::SAGA_RUN, &run).await?;
            let body = types::SagaCancel { reason };
            app.confirm(&confirm, &format!("Cancel {run}"))?;
            on_platform::item(app, client, &send!(client.saga_cancel(&id, &body)), COLUMNS).await
        }
    }
}

fn show(app: &App, run: &types::SagaRunDetail) -> Result {
    let time = |at: &chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let marks = [(run.waiting, "waiting for a result"), (run.overdue, "overdue: no worker has leased it")];
    let marks: Vec<&str> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
    let lines = [
        ("id", run.id.to_string()),
        ("workflow", format!("{} version {}", run.name, run.spec_version)),
        ("subject", run.subject.clone()),
        ("state", run.state.to_string()),
        ("step", format!("{}, attempt {}", run.step, run.attempt)),
        ("now", marks.join(", ")),
        ("failure", run.failure.clone().unwrap_or_default()),
        ("cancelled", run.cancel_reason.clone().unwrap_or_default()),
        ("created", time(&run.created_at)),
        ("deadline", time(&run.deadline)),
        ("finished", run.finished_at.as_ref().map(time).unwrap_or_default()),
    ];
    app.out.page(run, &lines, &timeline(&run.timeline))
}

/// One line per attempt of a step.
pub fn timeline(entries: &[types::TimelineEntry]) -> String {
    let line = |entry: &types::TimelineEntry| {
        let took = entry.finished_at.map(|end| duration((end - entry.started_at).num_milliseconds()));
        let took = took.unwrap_or_else(|| "…".to_owned());
        let back = if entry.undo { " (undo)" } else { "" };
        let detail = if entry.detail.is_empty() { String::new() } else { format!(": {}", entry.detail) };
        let at = entry.started_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        let types::TimelineEntry { saga, step, attempt, state, .. } = entry;
        format!("  {at}  {saga}/{step}{back} #{attempt} {state} {took}{detail}\n")
    };
    let lines: String = entries.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\nTimeline:\n{lines}") }
}
