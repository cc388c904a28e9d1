//! `gpuaas billing`.

mod budgets;
mod files;
pub mod ledger;
mod reports;
mod topups;

use clap::Subcommand;
use sdk::{Client, types};

use crate::{
    app::App,
    args::{Limit, Watch},
    failure::{Failure, Result},
    output::{Columns, minor},
    resolve,
    resources::{Kind, find, kinds},
};

pub use files::save;

#[derive(Subcommand)]
pub enum Command {
    /// Balance, money on hold, spending rate and estimated time of depletion.
    Balance {
        #[command(flatten)]
        watch: Watch,
    },
    /// Usage and cost.
    Usage(reports::Usage),
    /// Usage records, one per charged window.
    Records(reports::Records),
    /// The ledger.
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Top up the balance.
    Topup(topups::Topup),
    /// Top-ups.
    #[command(subcommand)]
    Topups(topups::Command),
    /// Received payments.
    #[command(subcommand)]
    Payments(PaymentsCommand),
    /// Refunds.
    #[command(subcommand)]
    Refunds(RefundsCommand),
    /// Disputed payments.
    #[command(subcommand)]
    Disputes(DisputesCommand),
    /// Monthly budgets of projects.
    #[command(subcommand)]
    Budgets(budgets::Command),
    /// Monthly statements.
    #[command(subcommand)]
    Statements(reports::StatementsCommand),
    /// Export usage as CSV, or a month as FOCUS.
    Export(reports::Export),
}

#[derive(Subcommand)]
pub enum PaymentsCommand {
    /// List the payments, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a payment.
    #[command(alias = "get")]
    Show {
        /// Payment, by id or the tail of its id.
        payment: String,
    },
}

#[derive(Subcommand)]
pub enum RefundsCommand {
    /// List the refunds, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a refund.
    #[command(alias = "get")]
    Show {
        /// Refund, by id or the tail of its id.
        refund: String,
    },
}

#[derive(Subcommand)]
pub enum DisputesCommand {
    /// List the disputes, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a dispute.
    #[command(alias = "get")]
    Show {
        /// Dispute, by id or the tail of its id.
        dispute: String,
    },
}

const BALANCE: Columns = &[
    ("STATE", "state"),
    ("AVAILABLE", "available"),
    ("HELD", "held"),
    ("PROMO", "promo"),
    ("DISPUTED", "disputed"),
    ("TOTAL", "total"),
    ("USED, NOT POSTED", "unposted"),
    ("PER HOUR", "burn_per_hour"),
    ("ENDS", "projected_depletion_at"),
];
pub const PAYMENTS: Columns = &[
    ("PAID", "paid_at"),
    ("AMOUNT", "amount"),
    ("REFUNDED", "refunded"),
    ("DISPUTED", "disputed"),
    ("ID", "id"),
    ("PROVIDER", "provider"),
];
pub const REFUNDS: Columns = &[
    ("AT", "created_at"),
    ("AMOUNT", "amount"),
    ("STATE", "state"),
    ("TO", "destination"),
    ("ID", "id"),
    ("REASON", "reason"),
    ("PAYMENT", "payment_id"),
];
pub const DISPUTES: Columns = &[
    ("AT", "created_at"),
    ("AMOUNT", "amount"),
    ("STATE", "state"),
    ("ID", "id"),
    ("REASON", "reason"),
    ("PAYMENT", "payment_id"),
];

/// The organization that billing commands use.
pub struct Purse<'a> {
    pub app: &'a App,
    pub client: &'a Client,
    pub org: String,
}

impl Purse<'_> {
    /// Something of the organization, by id or the tail of its id.
    pub async fn find(&self, kind: &Kind, text: &str) -> Result<String> {
        find(self.client, kind, &[("org", &self.org)], text).await
    }

    /// A decimal amount in the currency of the ledger.
    pub async fn amount(&self, text: &str) -> Result<i64> {
        let balance = send!(self.client.billing_balance_get(&self.org));
        amount(text, &balance.currency)
    }
}

/// `12.50` in minor units, with an optional sign.
pub fn amount(text: &str, currency: &str) -> Result<i64> {
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let parsed = minor(rest, currency).map(|amount| sign * amount);
    parsed.ok_or_else(|| {
        Failure::client(format!("{text:?} is not an amount in {currency}: use the form 12.50"))
    })
}

pub async fn run(app: &App, command: Command) -> Result {
    if let Command::Ledger(command) = command {
        return ledger::run(app, command).await;
    }
    let client = app.client().await?;
    let org = resolve::org(app, &client).await?;
    let purse = Purse { app, client: &client, org };
    match command {
        Command::Balance { watch: _ } => {
            let balance = send!(client.billing_balance_get(&purse.org));
            app.out.priced_item(&balance, BALANCE)
        }
        Command::Usage(usage) => reports::usage(&purse, usage).await,
        Command::Records(records) => reports::records(&purse, records).await,
        Command::Topup(topup) => topups::pay(&purse, topup).await,
        Command::Topups(command) => topups::run(&purse, command).await,
        Command::Payments(command) => payments(&purse, command).await,
        Command::Refunds(command) => refunds(&purse, command).await,
        Command::Disputes(command) => disputes(&purse, command).await,
        Command::Budgets(command) => budgets::run(&purse, command).await,
        Command::Statements(command) => reports::statements(&purse, command).await,
        Command::Export(export) => reports::export(&purse, export).await,
        Command::Ledger(command) => ledger::run(app, command).await,
    }
}

async fn payments(purse: &Purse<'_>, command: PaymentsCommand) -> Result {
    let (app, client, org) = (purse.app, purse.client, purse.org.as_str());
    match command {
        PaymentsCommand::List { limit } => {
            let found: Vec<types::Payment> =
                pages!(limit.get(), |page| client.payment_list(org, page.cursor(), page.size()))?;
            app.out.priced(&found, PAYMENTS)
        }
        PaymentsCommand::Show { payment } => {
            let id = purse.find(&kinds::PAYMENT, &payment).await?;
            app.out.priced_item(&send!(client.payment_get(org, &id)), PAYMENTS)
        }
    }
}

async fn refunds(purse: &Purse<'_>, command: RefundsCommand) -> Result {
    let (app, client, org) = (purse.app, purse.client, purse.org.as_str());
    match command {
        RefundsCommand::List { limit } => {
            let found: Vec<types::Refund> =
                pages!(limit.get(), |page| client.refund_list(org, page.cursor(), page.size()))?;
            app.out.priced(&found, REFUNDS)
        }
        RefundsCommand::Show { refund } => {
            let id = purse.find(&kinds::REFUND, &refund).await?;
            app.out.priced_item(&send!(client.refund_get(org, &id)), REFUNDS)
        }
    }
}

async fn disputes(purse: &Purse<'_>, command: DisputesCommand) -> Result {
    let (app, client, org) = (purse.app, purse.client, purse.org.as_str());
    match command {
        DisputesCommand::List { limit } => {
            let found: Vec<types::Dispute> =
                pages!(limit.get(), |page| client.dispute_list(org, page.cursor(), page.size()))?;
            app.out.priced(&found, DISPUTES)
        }
        DisputesCommand::Show { dispute } => {
            let id = purse.find(&kinds::DISPUTE, &dispute).await?;
            app.out.priced_item(&send!(client.dispute_get(org, &id)), DISPUTES)
        }
    }
}
