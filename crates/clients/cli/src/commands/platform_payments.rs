//! What the payment provider did: `gpuaas platform billing payments`, `disputes`, `webhook-events` and
//! `reconciliations`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{field, on_platform, optional, platform_billing::name};
use crate::{app::App, args::Limit, failure::Result, output::Columns, resolve, resources::kinds};

#[derive(Subcommand)]
pub enum PaymentsCommand {
    /// List payments of all organizations, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a payment.
    #[command(alias = "get")]
    Show {
        /// Payment, by id.
        payment: String,
    },
}

#[derive(Subcommand)]
pub enum DisputesCommand {
    /// List disputes of all organizations, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a dispute.
    #[command(alias = "get")]
    Show {
        /// Dispute, by id.
        dispute: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum EventState {
    Received,
    Processed,
    Ignored,
    Failed,
}

#[derive(Subcommand)]
pub enum EventsCommand {
    /// List messages of the payment provider, newest first.
    List {
        /// Only messages in this state.
        #[arg(long, value_enum)]
        state: Option<EventState>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Process a message again.
    Requeue {
        /// Message, by id.
        event: String,
        /// Reason, recorded in the audit trail.
        #[arg(long)]
        reason: String,
    },
}

#[derive(Subcommand)]
pub enum DaysCommand {
    /// List the days that were reconciled with the provider, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Reconcile a day with the provider's list.
    Start {
        /// Day, such as 2026-11-15.
        day: String,
    },
}

const PAYMENTS: Columns = &[
    ("ORG", "org_id"),
    ("PAID", "paid_at"),
    ("AMOUNT", "amount"),
    ("REFUNDED", "refunded"),
    ("DISPUTED", "disputed"),
    ("ID", "id"),
    ("PROVIDER", "provider"),
];
const DISPUTES: Columns = &[
    ("ORG", "org_id"),
    ("AT", "created_at"),
    ("AMOUNT", "amount"),
    ("STATE", "state"),
    ("ID", "id"),
    ("REASON", "reason"),
    ("PAYMENT", "payment_id"),
];
const EVENTS: Columns = &[
    ("TYPE", "event_type"),
    ("STATE", "state"),
    ("RECEIVED", "received_at"),
    ("ATTEMPTS", "attempts"),
    ("ID", "id"),
    ("REASON", "state_reason"),
];
const DAYS: Columns = &[
    ("DAY", "day"),
    ("STATE", "state"),
    ("LISTED", "listed"),
    ("MISSING", "missing"),
    ("EXTRA", "extra"),
    ("DIFFERENT", "different"),
];

pub async fn payments(app: &App, client: &Client, command: PaymentsCommand) -> Result {
    match command {
        PaymentsCommand::List { limit } => {
            let found: Vec<types::Payment> =
                pages!(limit.get(), |page| client.platform_payment_list(page.cursor(), page.size()))?;
            on_platform::priced(app, client, &found, PAYMENTS).await
        }
        PaymentsCommand::Show { payment } => {
            let id = resolve::on_platform(client, &kinds::PLATFORM_PAYMENT, &payment).await?;
            on_platform::priced_item(app, client, &send!(client.platform_payment_get(&id)), PAYMENTS).await
        }
    }
}

pub async fn disputes(app: &App, client: &Client, command: DisputesCommand) -> Result {
    match command {
        DisputesCommand::List { limit } => {
            let found: Vec<types::Dispute> =
                pages!(limit.get(), |page| client.platform_dispute_list(page.cursor(), page.size()))?;
            on_platform::priced(app, client, &found, DISPUTES).await
        }
        DisputesCommand::Show { dispute } => {
            let id = resolve::on_platform(client, &kinds::PLATFORM_DISPUTE, &dispute).await?;
            on_platform::priced_item(app, client, &send!(client.platform_dispute_get(&id)), DISPUTES).await
        }
    }
}

pub async fn events(app: &App, client: &Client, command: EventsCommand) -> Result {
    match command {
        EventsCommand::List { state, limit } => {
            let state = optional("state", state.and_then(name))?;
            let found: Vec<types::PaymentMessage> =
                pages!(limit.get(), |page| client.webhook_event_list(page.cursor(), page.size(), state))?;
            app.out.list(&found, EVENTS)
        }
        EventsCommand::Requeue { event, reason } => {
            let id = resolve::on_platform(client, &kinds::PAYMENT_MESSAGE, &event).await?;
            let body = types::MessageRequeue { reason };
            app.out.item(&send!(client.webhook_event_requeue(&id, &body)), EVENTS)
        }
    }
}

pub async fn days(app: &App, client: &Client, command: DaysCommand) -> Result {
    match command {
        DaysCommand::List { limit } => {
            let found: Vec<types::PaymentDay> =
                pages!(limit.get(), |page| client.payment_reconcile_list(page.cursor(), page.size()))?;
            app.out.list(&found, DAYS)
        }
        DaysCommand::Start { day } => {
            let body = types::ReconcileRequest { day: field("day", day)? };
            app.out.item(&send!(client.payment_reconcile(&body)), DAYS)
        }
    }
}
