//! `gpuaas platform billing` and `gpuaas platform deliveries`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{
    billing::amount, field, on_platform, optional, platform_payments, platform_refunds, webhooks::DELIVERIES,
};
use crate::{
    app::App,
    args::{Limit, Once},
    failure::{Exit, Failure, Result},
    output::{Columns, note},
    resolve,
    resources::kinds,
};

#[derive(Subcommand)]
pub enum Command {
    /// Adjustments: credits and corrections by administrators.
    #[command(subcommand)]
    Adjustments(AdjustmentsCommand),
    /// Payments of all organizations.
    #[command(subcommand)]
    Payments(platform_payments::PaymentsCommand),
    /// Refunds of all organizations.
    #[command(subcommand)]
    Refunds(platform_refunds::Command),
    /// Disputes of all organizations.
    #[command(subcommand)]
    Disputes(platform_payments::DisputesCommand),
    /// Billing findings: where ledgers, records and the provider disagree. Nothing is repaired automatically.
    #[command(subcommand)]
    Findings(FindingsCommand),
    /// Messages of the payment provider.
    #[command(subcommand)]
    WebhookEvents(platform_payments::EventsCommand),
    /// Daily reconciliations with the payment provider.
    #[command(subcommand)]
    Reconciliations(platform_payments::DaysCommand),
    /// Verify every ledger.
    Verify,
    /// Show the trial balance: each account over all ledgers; the sum is zero.
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
    /// List adjustments of all organizations, newest first.
    List {
        /// Only adjustments in this state.
        #[arg(long, value_enum)]
        state: Option<State>,
        /// Only adjustments of this organization, by slug or id.
        #[arg(long, value_name = "ORG")]
        of_org: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an adjustment: who proposed it, and who decided.
    #[command(alias = "get")]
    Show {
        /// Adjustment, by id.
        adjustment: String,
    },
    /// Post an adjustment, or propose it when its amount needs the approval of another administrator. For the organization of
    /// `--org` or of the context.
    Create {
        /// What the adjustment is.
        #[arg(long, value_enum)]
        kind: Kind,
        /// Amount, such as 25.00; negative amounts only for corrections.
        #[arg(long, allow_hyphen_values = true)]
        amount: String,
        /// Reason, visible to the organization.
        #[arg(long)]
        reason: String,
        /// Posting that a correction corrects, by its number in `gpuaas ledger list` or by id.
        #[arg(long, value_name = "POSTING")]
        corrects: Option<String>,
        #[command(flatten)]
        once: Once,
    },
    /// Approve an adjustment that another administrator proposed.
    Approve {
        /// Adjustment, by id.
        adjustment: String,
        #[command(flatten)]
        once: Once,
    },
    /// Reject a proposed adjustment.
    Reject {
        /// Adjustment, by id.
        adjustment: String,
    },
}

#[derive(Subcommand)]
pub enum FindingsCommand {
    /// List billing findings that are open.
    List {
        /// Include resolved findings.
        #[arg(long)]
        all: bool,
        /// Only findings of this kind.
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a billing finding, and what to do about it.
    #[command(alias = "get")]
    Show {
        /// Finding, by id.
        finding: String,
    },
}

#[derive(Subcommand)]
pub enum DeliveriesCommand {
    /// List deliveries of mail and webhooks, newest first.
    List {
        /// Only deliveries in this state.
        #[arg(long, value_enum)]
        state: Option<DeliveryState>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Retry an abandoned delivery.
    Retry {
        /// Delivery, by id.
        delivery: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum DeliveryState {
    Queued,
    Sent,
    Failed,
}

pub fn name(value: impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}

const ADJUSTMENTS: Columns = &[
    ("ORG", "org_id"),
    ("KIND", "kind"),
    ("AMOUNT", "amount"),
    ("STATE", "state"),
    ("AT", "created_at"),
    ("ID", "id"),
    ("REASON", "reason"),
];
const FINDINGS: Columns = &[
    ("KIND", "kind"),
    ("ORG", "org_id"),
    ("STATE", "state"),
    ("SINCE", "first_seen_at"),
    ("ID", "id"),
    ("SUGGESTION", "suggestion"),
    ("SUBJECT", "subject"),
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
    match command {
        Command::Adjustments(command) => adjustments(app, client, command).await,
        Command::Payments(command) => platform_payments::payments(app, client, command).await,
        Command::Refunds(command) => platform_refunds::run(app, client, command).await,
        Command::Disputes(command) => platform_payments::disputes(app, client, command).await,
        Command::WebhookEvents(command) => platform_payments::events(app, client, command).await,
        Command::Reconciliations(command) => platform_payments::days(app, client, command).await,
        Command::Findings(FindingsCommand::List { all, kind, limit }) => {
            let state = (!all).then_some(types::BillingFindingState::Open);
            let kind = optional("kind", kind)?;
            let found: Vec<types::BillingFinding> = pages!(limit.get(), |page| client.billing_finding_list(
                page.cursor(),
                kind,
                page.size(),
                state
            ))?;
            on_platform::list(app, client, &found, FINDINGS).await
        }
        Command::Findings(FindingsCommand::Show { finding }) => {
            let id = resolve::on_platform(client, &kinds::BILLING_FINDING, &finding).await?;
            on_platform::item(app, client, &send!(client.billing_finding_get(&id)), FINDINGS).await
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
        AdjustmentsCommand::List { state, of_org, limit } => {
            let state = optional("state", state.and_then(name))?;
            let of_org = resolve::optional(client, &kinds::PLATFORM_ORG, &[], of_org.as_deref()).await?;
            let found: Vec<types::Adjustment> = pages!(limit.get(), |page| client.adjustment_list(
                page.cursor(),
                of_org.as_deref(),
                page.size(),
                state
            ))?;
            on_platform::priced(app, client, &found, ADJUSTMENTS).await
        }
        AdjustmentsCommand::Show { adjustment } => {
            let id = resolve::on_platform(client, &kinds::ADJUSTMENT, &adjustment).await?;
            on_platform::priced_item(app, client, &send!(client.adjustment_get(&id)), ADJUSTMENTS).await
        }
        AdjustmentsCommand::Create { kind, amount: text, reason, corrects, once } => {
            let org = match &app.org {
                Some(org) => resolve::on_platform(client, &kinds::PLATFORM_ORG, org).await?,
                None => resolve::org(app, client).await?,
            };
            let currency = send!(client.billing_balance_get(&org)).currency;
            let corrects_entry_id = match corrects.as_ref().map(|text| (text, text.parse())) {
                Some((_, Ok(number))) => Some(send!(client.ledger_get(&org, number)).posting.id),
                Some((id, Err(_))) => Some(id.clone()),
                None => None,
            };
            let body = types::AdjustmentCreate {
                org_id: org,
                kind: field("kind", name(kind).unwrap_or_default())?,
                amount_minor: amount(&text, &currency)?,
                reason,
                corrects_entry_id,
            };
            let made = send!(client.adjustment_create(&once.key(), &body));
            if made.state == types::AdjustmentState::Proposed {
                note(&format!(
                    "It is not posted yet: with what was posted in the last day it is so large that another administrator \
                     has to approve it. They were notified: gpuaas platform billing adjustments approve {}",
                    made.id
                ));
            }
            on_platform::priced_item(app, client, &made, ADJUSTMENTS).await
        }
        AdjustmentsCommand::Approve { adjustment, once } => {
            let id = resolve::on_platform(client, &kinds::ADJUSTMENT, &adjustment).await?;
            let done = send!(client.adjustment_approve(&id, &once.key()));
            on_platform::priced_item(app, client, &done, ADJUSTMENTS).await
        }
        AdjustmentsCommand::Reject { adjustment } => {
            let id = resolve::on_platform(client, &kinds::ADJUSTMENT, &adjustment).await?;
            on_platform::priced_item(app, client, &send!(client.adjustment_reject(&id)), ADJUSTMENTS).await
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
            on_platform::list(app, client, &found, DELIVERIES).await
        }
        DeliveriesCommand::Retry { delivery } => {
            let id = resolve::on_platform(client, &kinds::DELIVERY, &delivery).await?;
            on_platform::item(app, client, &send!(client.delivery_retry(&id)), DELIVERIES).await
        }
    }
}
