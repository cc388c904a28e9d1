//! `gpuaas ops`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{discrepancies, on_platform, ops_status, restore, sagas};
use crate::{
    app::App,
    args::{Confirm, Format, Limit},
    failure::Result,
    output::{Columns, note},
    resolve,
    resources::kinds,
};

#[derive(Subcommand)]
pub enum Command {
    /// Show the state of the platform: fleet, queues, findings, certificates, lag.
    Status(ops_status::Command),
    /// List events that are not published yet.
    Outbox {
        /// Only events whose publication failed.
        #[arg(long)]
        failing: bool,
        #[command(flatten)]
        limit: Limit,
    },
    /// Dead letters: messages that a consumer failed to handle.
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Workflow runs.
    #[command(subcommand)]
    Sagas(sagas::Command),
    /// Discrepancies between records of capacity, tasks and nodes.
    #[command(subcommand)]
    Discrepancies(discrepancies::Command),
    /// Restore from a backup: settle the differences from the nodes, then resume.
    #[command(subcommand)]
    Restore(restore::Command),
}

#[derive(Clone, Copy, ValueEnum)]
pub enum State {
    Dead,
    Requeued,
    Discarded,
    Resolved,
}

#[derive(Subcommand)]
pub enum DlqCommand {
    /// List dead letters, newest first.
    List {
        /// Only dead letters of this consumer.
        #[arg(long)]
        consumer: Option<String>,
        /// Only dead letters in this state.
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a dead letter with its message.
    #[command(alias = "get")]
    Show {
        /// Dead letter, by id.
        letter: String,
    },
    /// Requeue a message for its consumer.
    Requeue {
        /// Dead letter, by id.
        letter: String,
    },
    /// Discard a message: its consumer never handles it.
    Discard {
        /// Dead letter, by id.
        letter: String,
        /// Reason, recorded in the audit trail.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const EVENTS: Columns = &[
    ("TYPE", "event_type"),
    ("STATE", "state"),
    ("ATTEMPTS", "attempts"),
    ("CREATED", "created_at"),
    ("NEXT ATTEMPT", "next_attempt_at"),
    ("ID", "id"),
];
const LETTERS: Columns = &[
    ("CONSUMER", "consumer"),
    ("STATE", "state"),
    ("TYPE", "event_type"),
    ("ID", "id"),
    ("ERROR", "error"),
    ("ATTEMPTS", "attempts"),
    ("CLASS", "class"),
    ("CREATED", "created_at"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::Status(command) => ops_status::run(app, command).await,
        Command::Outbox { failing, limit } => {
            outbox(app, &client, failing.then_some(types::OutboxState::Failing), &limit).await
        }
        Command::Dlq(command) => dlq(app, &client, command).await,
        Command::Sagas(command) => sagas::run(app, &client, command).await,
        Command::Discrepancies(command) => discrepancies::run(app, &client, command).await,
        Command::Restore(command) => restore::run(app, &client, command).await,
    }
}

async fn outbox(app: &App, client: &Client, state: Option<types::OutboxState>, limit: &Limit) -> Result {
    let limit = limit.get().unwrap_or(usize::MAX);
    // Every page carries the counts; print those of the first page.
    let mut pages = sdk::Pages::new(async |page: sdk::PageRequest| {
        let page = Box::pin(client.outbox_list(page.cursor(), page.size(), state)).await?.into_inner();
        let next = page.next_cursor.clone();
        Ok((vec![page], next))
    });
    let mut shown: Option<types::Outbox> = None;
    while shown.as_ref().is_none_or(|shown| shown.items.len() < limit)
        && let Some(page) = pages.next().await?
    {
        match &mut shown {
            Some(shown) => shown.items.extend(page.items),
            None => shown = Some(page),
        }
    }
    let Some(mut shown) = shown else { return Ok(()) };
    shown.items.truncate(limit);
    shown.next_cursor = None;
    if matches!(app.out.format, Format::Table | Format::Csv) {
        let types::Outbox { pending, failing, oldest_age_seconds, .. } = shown;
        note(&format!("{pending} pending, {failing} failing, oldest {oldest_age_seconds} s ago."));
        return app.out.list(&shown.items, EVENTS);
    }
    app.out.item(&shown, EVENTS)
}

async fn dlq(app: &App, client: &Client, command: DlqCommand) -> Result {
    match command {
        DlqCommand::List { consumer, state, limit } => {
            let state = state.map(|state| match state {
                State::Dead => types::DeadLetterState::Dead,
                State::Requeued => types::DeadLetterState::Requeued,
                State::Discarded => types::DeadLetterState::Discarded,
                State::Resolved => types::DeadLetterState::Resolved,
            });
            let letters: Vec<types::DeadLetter> = pages!(limit.get(), |page| client.dead_letter_list(
                consumer.as_deref(),
                page.cursor(),
                page.size(),
                state
            ))?;
            on_platform::list(app, client, &letters, LETTERS).await
        }
        DlqCommand::Show { letter } => {
            let id = resolve::on_platform(client, &kinds::DEAD_LETTER, &letter).await?;
            on_platform::item(app, client, &send!(client.dead_letter_get(&id)), LETTERS).await
        }
        DlqCommand::Requeue { letter } => {
            let id = resolve::on_platform(client, &kinds::DEAD_LETTER, &letter).await?;
            on_platform::item(app, client, &send!(client.dead_letter_requeue(&id)), LETTERS).await
        }
        DlqCommand::Discard { letter, reason, confirm } => {
            let id = resolve::on_platform(client, &kinds::DEAD_LETTER, &letter).await?;
            let body = types::DeadLetterDiscard { reason };
            app.confirm(&confirm, &format!("Discard {letter}: its consumer never handles the message"))?;
            let discarded = send!(client.dead_letter_discard(&id, &body));
            note(&format!("Discarded {letter}."));
            on_platform::item(app, client, &discarded, LETTERS).await
        }
    }
}
