//! `gpuaas platform billing` and `gpuaas platform deliveries`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{
    billing::{DISPUTES, PAYMENTS, amount},
    field, optional, platform_refunds,
    webhooks::DELIVERIES,
};
use crate::{
    app::App,
    args::{Limit, Once},
    failure::{Exit, Failure, Result},
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// Adjustments: credits and corrections by administrators.
    #[command(subcommand)]
    Adjustments(AdjustmentsCommand),
    /// Payments of all organizations.
    #[command(subcommand)]
    Payments(super::billing::PaymentsCommand),
    /// Refunds.
    #[command(subcommand)]
    Refunds(platform_refunds::Command),
    /// Disputes of all organizations.
    #[command(subcommand)]
    Disputes(super::billing::DisputesCommand),
    /// Billing findings: where ledgers, records and the provider disagree. Nothing is repaired automatically.
    #[command(subcommand)]
    Findings(FindingsCommand),
    /// Messages of the payment provider.
    #[command(subcommand)]
    WebhookEvents(EventsCommand),
    /// Daily reconciliations with the payment provider.
    #[command(subcommand)]
    Reconciliations(DaysCommand),
    /// Verify every ledger.
    Verify,
    /// Trial balance: each account over all ledgers; the sum is zero.
    Totals,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    /// Real money, granted.
    Credit,
    /// Promotional credit, spent before real money and never refunded.
    Promo,
    /// The correction of an entry.
    Correction,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum State {
    Proposed,
    Posted,
    Rejected,
}

#[derive(Subcommand)]
pub enum AdjustmentsCommand {
    List {
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        limit: Limit,
    },
    #[command(visible_alias = "get")]
    Show { adjustment: String },
    /// Post an adjustment, or propose it when its amount needs the approval of another administrator. For the organization of
    /// `--org` or of the context.
    Create {
        #[arg(long, value_enum)]
        kind: Kind,
        /// Amount, such as 25.00; negative amounts only for corrections.
        #[arg(long, allow_hyphen_values = true)]
        amount: String,
        #[arg(long)]
        reason: String,
        /// The corrected entry, by id.
        #[arg(long, value_name = "ID")]
        corrects: Option<String>,
        #[command(flatten)]
        once: Once,
    },
    /// Approve an adjustment that another administrator proposed.
    Approve {
        adjustment: String,
        #[command(flatten)]
        once: Once,
    },
    /// Reject a proposed adjustment.
    Reject { adjustment: String },
}

#[derive(Subcommand)]
pub enum FindingsCommand {
    List {
        /// Include resolved ones.
        #[arg(long)]
        all: bool,
        /// Only those of this kind.
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    #[command(visible_alias = "get")]
    Show { finding: String },
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
    List {
        #[arg(long, value_enum)]
        state: Option<EventState>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Process a message again.
    Requeue {
        event: String,
        #[arg(long)]
        reason: String,
    },
}

#[derive(Subcommand)]
pub enum DaysCommand {
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Reconcile a day with the provider's list.
    Start {
        /// Such as 2026-11-15.
        day: String,
    },
}

#[derive(Subcommand)]
pub enum DeliveriesCommand {
    /// Deliveries of mail and webhooks.
    List {
        #[arg(long, value_enum)]
        state: Option<DeliveryState>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Retry an abandoned delivery.
    Retry { delivery: String },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum DeliveryState {
    Queued,
    Sent,
    Failed,
}

fn name(value: impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}

const ADJUSTMENTS: Columns = &[
    ("ID", "id"),
    ("ORG", "org_id"),
    ("KIND", "kind"),
    ("AMOUNT", "amount"),
    ("STATE", "state"),
    ("REASON", "reason"),
    ("AT", "created_at"),
];
const FINDINGS: Columns = &[
    ("ID", "id"),
    ("KIND", "kind"),
    ("SUBJECT", "subject"),
    ("STATE", "state"),
    ("SINCE", "first_seen_at"),
    ("SUGGESTION", "suggestion"),
];
const EVENTS: Columns = &[
    ("ID", "id"),
    ("TYPE", "event_type"),
    ("STATE", "state"),
    ("REASON", "state_reason"),
    ("ATTEMPTS", "attempts"),
    ("RECEIVED", "received_at"),
];
const DAYS: Columns = &[
    ("DAY", "day"),
    ("STATE", "state"),
    ("LISTED", "listed"),
    ("MISSING", "missing"),
    ("EXTRA", "extra"),
    ("DIFFERENT", "different"),
];
const VERIFIED: Columns = &[
    ("OK", "ok"),
    ("CHAINS", "chains"),
    ("POSTINGS", "postings"),
    ("LINES", "lines"),
    ("CHECKPOINTS", "checkpoints"),
    ("BROKEN", "broken"),
];
const TOTALS: Columns = &[("ACCOUNT", "account"), ("TOTAL", "amount")];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    use super::billing::{DisputesCommand as Disputes, PaymentsCommand as Payments};
    match command {
        Command::Adjustments(command) => adjustments(app, client, command).await,
        Command::Payments(Payments::List { limit }) => {
            let found: Vec<types::Payment> =
                pages!(limit.get(), |page| client.platform_payment_list(page.cursor(), page.size()))?;
            app.out.priced(&found, PAYMENTS)
        }
        Command::Payments(Payments::Show { payment }) => {
            app.out.priced_item(&send!(client.platform_payment_get(&payment)), PAYMENTS)
        }
        Command::Refunds(command) => platform_refunds::run(app, client, command).await,
        Command::Disputes(Disputes::List { limit }) => {
            let found: Vec<types::Dispute> =
                pages!(limit.get(), |page| client.platform_dispute_list(page.cursor(), page.size()))?;
            app.out.priced(&found, DISPUTES)
        }
        Command::Disputes(Disputes::Show { dispute }) => {
            app.out.priced_item(&send!(client.platform_dispute_get(&dispute)), DISPUTES)
        }
        Command::Findings(FindingsCommand::List { all, kind, limit }) => {
            let state = (!all).then_some(types::BillingFindingState::Open);
            let kind = optional("kind", kind)?;
            let found: Vec<types::BillingFinding> = pages!(limit.get(), |page| client.billing_finding_list(
                page.cursor(),
                kind,
                page.size(),
                state
            ))?;
            app.out.list(&found, FINDINGS)
        }
        Command::Findings(FindingsCommand::Show { finding }) => {
            app.out.item(&send!(client.billing_finding_get(&finding)), FINDINGS)
        }
        Command::WebhookEvents(EventsCommand::List { state, limit }) => {
            let state = optional("state", state.and_then(name))?;
            let found: Vec<types::PaymentMessage> =
                pages!(limit.get(), |page| client.webhook_event_list(page.cursor(), page.size(), state))?;
            app.out.list(&found, EVENTS)
        }
        Command::WebhookEvents(EventsCommand::Requeue { event, reason }) => {
            let body = types::MessageRequeue { reason };
            app.out.item(&send!(client.webhook_event_requeue(&event, &body)), EVENTS)
        }
        Command::Reconciliations(DaysCommand::List { limit }) => {
            let found: Vec<types::PaymentDay> =
                pages!(limit.get(), |page| client.payment_reconcile_list(page.cursor(), page.size()))?;
            app.out.list(&found, DAYS)
        }
        Command::Reconciliations(DaysCommand::Start { day }) => {
            let body = types::ReconcileRequest { day: field("day", day)? };
            app.out.item(&send!(client.payment_reconcile(&body)), DAYS)
        }
        Command::Verify => {
            let found = send!(client.platform_ledger_verify());
            let (ok, broken) = (found.ok, found.broken);
            app.out.item(&found, VERIFIED)?;
            if ok {
                return Ok(());
            }
            Err(Failure::new(
                Exit::Server,
                format!("{broken} ledgers failed verification; -o json lists the faults"),
            ))
        }
        Command::Totals => app.out.priced(&send!(client.platform_ledger_totals()).accounts, TOTALS),
    }
}

async fn adjustments(app: &App, client: &Client, command: AdjustmentsCommand) -> Result {
    match command {
        AdjustmentsCommand::List { state, limit } => {
            let state = optional("state", state.and_then(name))?;
            let org_id = None;
            let found: Vec<types::Adjustment> = pages!(limit.get(), |page| client.adjustment_list(
                page.cursor(),
                org_id,
                page.size(),
                state
            ))?;
            app.out.priced(&found, ADJUSTMENTS)
        }
        AdjustmentsCommand::Show { adjustment } => {
            app.out.priced_item(&send!(client.adjustment_get(&adjustment)), ADJUSTMENTS)
        }
        AdjustmentsCommand::Create { kind, amount: text, reason, corrects, once } => {
            let org = resolve::org(app, client).await?;
            let currency = send!(client.billing_balance_get(&org)).currency;
            let body = types::AdjustmentCreate {
                org_id: org,
                kind: field("kind", name(kind).unwrap_or_default())?,
                amount_minor: amount(&text, &currency)?,
                reason,
                corrects_entry_id: corrects,
            };
            let made = send!(client.adjustment_create(&once.key(), &body));
            if made.state == types::AdjustmentState::Proposed {
                note(&format!(
                    "It is not posted yet: with what was posted in the last day it is so large that another administrator \
                     has to approve it. They were notified: gpuaas platform billing adjustments approve {}",
                    made.id
                ));
            }
            app.out.priced_item(&made, ADJUSTMENTS)
        }
        AdjustmentsCommand::Approve { adjustment, once } => {
            app.out.priced_item(&send!(client.adjustment_approve(&adjustment, &once.key())), ADJUSTMENTS)
        }
        AdjustmentsCommand::Reject { adjustment } => {
            app.out.priced_item(&send!(client.adjustment_reject(&adjustment)), ADJUSTMENTS)
        }
    }
}

pub async fn deliveries(app: &App, client: &Client, command: DeliveriesCommand) -> Result {
    match command {
        DeliveriesCommand::List { state, limit } => {
            let state = optional("state", state.and_then(name))?;
            let channel = None;
            let found: Vec<types::Delivery> =
                pages!(limit.get(), |page| client.delivery_list(channel, page.cursor(), page.size(), state))?;
            app.out.list(&found, DELIVERIES)
        }
        DeliveriesCommand::Retry { delivery } => {
            app.out.item(&send!(client.delivery_retry(&delivery)), DELIVERIES)
        }
    }
}
