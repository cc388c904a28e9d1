//! `gpuaas platform billing refunds`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{billing::amount, field, on_platform};
use crate::{
    app::App,
    args::{Limit, Once},
    failure::Result,
    output::{Columns, money, note},
    resolve,
    resources::kinds,
};

#[derive(Subcommand)]
pub enum Command {
    /// List refunds of all organizations, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a refund, and what to do when its result is not known.
    #[command(alias = "get")]
    Show {
        /// Refund, by id.
        refund: String,
    },
    /// Refund unused money of a payment to the card, within the refund window.
    Create {
        /// Payment to refund, by id.
        #[arg(long, value_name = "ID")]
        payment: String,
        /// Amount, such as 12.50, in the currency of the payment.
        #[arg(long)]
        amount: String,
        /// Reason, visible to the organization.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        once: Once,
    },
    /// Settle a refund with an unknown result, after checking the provider's own list.
    Settle {
        /// Refund, by id.
        refund: String,
        /// Result at the provider.
        #[arg(long, value_enum)]
        outcome: SettledAs,
        /// Id of the refund at the provider, when it was sent.
        #[arg(long, value_name = "ID", required_if_eq("outcome", "sent"))]
        provider_refund: Option<String>,
        /// How you determined the result, visible to the organization.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        once: Once,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum SettledAs {
    Sent,
    #[value(name = "not_sent")]
    NotSent,
}

impl SettledAs {
    const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::NotSent => "not_sent",
        }
    }
}

/// For operators: the organization, and whether the result is known.
const COLUMNS: Columns = &[
    ("ORG", "org_id"),
    ("AMOUNT", "amount"),
    ("STATE", "state"),
    ("AT", "created_at"),
    ("ID", "id"),
    ("REASON", "reason"),
    ("UNKNOWN SINCE", "unknown_since"),
    ("PAYMENT", "payment_id"),
    ("PROVIDER ID", "provider_refund"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { limit } => {
            let found: Vec<types::Refund> =
                pages!(limit.get(), |page| client.platform_refund_list(page.cursor(), page.size()))?;
            on_platform::priced(app, client, &found, COLUMNS).await
        }
        Command::Show { refund } => {
            let id = resolve::on_platform(client, &kinds::PLATFORM_REFUND, &refund).await?;
            let found = send!(client.platform_refund_get(&id));
            if found.unknown_since.is_some() {
                note(&format!(
                    "Whether it was sent is not known. Look it up at the provider (metadata refund_id), then: \
                     gpuaas platform billing refunds settle {refund} --outcome sent --provider-refund ID --reason WHY, \
                     or --outcome not_sent --reason WHY"
                ));
            }
            on_platform::priced_item(app, client, &found, COLUMNS).await
        }
        Command::Create { payment, amount: text, reason, once } => {
            let payment_id = resolve::on_platform(client, &kinds::PLATFORM_PAYMENT, &payment).await?;
            let paid = send!(client.platform_payment_get(&payment_id));
            let body = types::RefundCreate {
                payment_id,
                amount_minor: field("amount", amount(&text, &paid.currency)?.to_string())?,
                reason,
            };
            let made = send!(client.refund_create(&once.key(), &body));
            on_platform::priced_item(app, client, &made, COLUMNS).await
        }
        Command::Settle { refund, outcome, provider_refund, reason, once } => {
            let id = resolve::on_platform(client, &kinds::PLATFORM_REFUND, &refund).await?;
            let body =
                types::RefundSettle { outcome: field("outcome", outcome.name())?, provider_refund, reason };
            let done = send!(client.refund_settle(&id, &once.key(), &body));
            let amount = money(done.amount_minor, &done.currency);
            note(&match (outcome, &done.provider_refund) {
                (SettledAs::Sent, Some(id)) => {
                    format!(
                        "Recorded as sent, with id {id}. The daily reconciliation with the provider verifies it."
                    )
                }
                (SettledAs::Sent, None) => "Recorded as sent.".to_owned(),
                (SettledAs::NotSent, _) => format!("{amount} returned to the balance."),
            });
            on_platform::priced_item(app, client, &done, COLUMNS).await
        }
    }
}
