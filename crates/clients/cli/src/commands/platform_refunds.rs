//! `gpuaas platform billing refunds`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{billing::amount, field};
use crate::{
    app::App,
    args::{Limit, Once},
    failure::Result,
    output::{Columns, money, note},
};

#[derive(Subcommand)]
pub enum Command {
    List {
        #[command(flatten)]
        limit: Limit,
    },
    #[command(visible_alias = "get")]
    Show { refund: String },
    /// Refund unused money of a payment to the card, within the refund window.
    Create {
        #[arg(long, value_name = "ID")]
        payment: String,
        #[arg(long)]
        amount: String,
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        once: Once,
    },
    /// Settle a refund with an unknown result, after checking the provider's own list.
    Settle {
        refund: String,
        /// The result at the provider.
        #[arg(long, value_enum)]
        outcome: SettledAs,
        /// The provider's id of the refund, when it was sent.
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
    ("ID", "id"),
    ("ORG", "org_id"),
    ("PAYMENT", "payment_id"),
    ("AMOUNT", "amount"),
    ("STATE", "state"),
    ("PROVIDER ID", "provider_refund"),
    ("UNKNOWN SINCE", "unknown_since"),
    ("REASON", "reason"),
    ("AT", "created_at"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { limit } => {
            let found: Vec<types::Refund> =
                pages!(limit.get(), |page| client.platform_refund_list(page.cursor(), page.size()))?;
            app.out.priced(&found, COLUMNS)
        }
        Command::Show { refund } => {
            let found = send!(client.platform_refund_get(&refund));
            if found.unknown_since.is_some() {
                note(&format!(
                    "Whether it was sent is not known. Look it up at the provider (metadata refund_id), then: \
                     gpuaas platform billing refunds settle {refund} --outcome sent --provider-refund ID --reason WHY, \
                     or --outcome not_sent --reason WHY"
                ));
            }
            app.out.priced_item(&found, COLUMNS)
        }
        Command::Create { payment, amount: text, reason, once } => {
            let paid = send!(client.platform_payment_get(&payment));
            let body = types::RefundCreate {
                payment_id: payment,
                amount_minor: field("amount", amount(&text, &paid.currency)?.to_string())?,
                reason,
            };
            let made = send!(client.refund_create(&once.key(), &body));
            app.out.priced_item(&made, COLUMNS)
        }
        Command::Settle { refund, outcome, provider_refund, reason, once } => {
            let body =
                types::RefundSettle { outcome: field("outcome", outcome.name())?, provider_refund, reason };
            let done = send!(client.refund_settle(&refund, &once.key(), &body));
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
            app.out.priced_item(&done, COLUMNS)
        }
    }
}
