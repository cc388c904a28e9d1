//! Top-ups.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use sdk::types;

use super::Purse;
use crate::{
    args::{Limit, Once, Wait},
    commands::field,
    failure::{Exit, Failure, Result},
    output::{Columns, money, note},
    process::open_browser,
    resources::kinds,
};

#[derive(ClapArgs)]
pub struct Topup {
    /// Amount, such as 50.00.
    amount: String,
    /// Print the address of the checkout page instead of opening it.
    #[arg(long)]
    no_browser: bool,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    once: Once,
}

#[derive(Subcommand)]
pub enum Command {
    /// List top-ups, newest first.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a top-up, with its checkout page while it is open.
    #[command(alias = "get")]
    Show {
        /// Top-up, by id or the tail of its id.
        topup: String,
    },
    /// Cancel an unpaid top-up.
    Cancel {
        /// Top-up, by id or the tail of its id.
        topup: String,
    },
}

const COLUMNS: Columns =
    &[("AMOUNT", "amount"), ("STATE", "state"), ("AT", "created_at"), ("ID", "id"), ("PAGE", "url")];
/// Duration of one long poll.
const POLL: &str = "20s";
/// The payment provider creates the page, usually within a second.
const PAGE_WITHIN: Duration = Duration::from_secs(60);

pub async fn run(purse: &Purse<'_>, command: Command) -> Result {
    let (app, client, org) = (purse.app, purse.client, purse.org.as_str());
    match command {
        Command::List { limit } => {
            let found: Vec<types::Topup> =
                pages!(limit.get(), |page| client.topup_list(org, page.cursor(), page.size()))?;
            app.out.priced(&found, COLUMNS)
        }
        Command::Show { topup } => {
            let (id, wait) = (purse.find(&kinds::TOPUP, &topup).await?, None);
            app.out.priced_item(&send!(client.topup_get(org, &id, wait)), COLUMNS)
        }
        Command::Cancel { topup } => {
            let id = purse.find(&kinds::TOPUP, &topup).await?;
            app.out.priced_item(&send!(client.topup_cancel(org, &id)), COLUMNS)
        }
    }
}

pub async fn pay(purse: &Purse<'_>, topup: Topup) -> Result {
    let Topup { amount, no_browser, wait, once } = topup;
    let body =
        types::TopupCreate { amount_minor: field("amount", purse.amount(&amount).await?.to_string())? };
    let made = send!(purse.client.topup_create(&purse.org, &once.key(), &body));
    let opened = until(purse, made, PAGE_WITHIN, |topup| topup.url.is_some() || is_over(topup)).await?;
    let shown = money(opened.amount_minor, &opened.currency);
    if let Some(url) = opened.url.as_deref().filter(|_| !is_over(&opened)) {
        note(&format!("Pay {shown} here: {url}"));
        if !no_browser && purse.app.may_ask() {
            open_browser(url);
        }
    }
    let Some(limit) = wait.limit() else { return purse.app.out.priced_item(&opened, COLUMNS) };
    let ended = until(purse, opened, limit, is_over).await?;
    purse.app.out.priced_item(&ended, COLUMNS)?;
    if ended.state == types::TopupState::Paid {
        note(&format!("{shown} added to the balance."));
        return Ok(());
    }
    Err(Failure::new(Exit::Conflict, format!("the top-up is {}: {}", ended.state, ended.state_reason)))
}

fn is_over(topup: &types::Topup) -> bool {
    !matches!(topup.state, types::TopupState::Created | types::TopupState::Open)
}

/// Repeats a long poll until the condition is met.
async fn until(
    purse: &Purse<'_>,
    mut topup: types::Topup,
    limit: Duration,
    wanted: impl Fn(&types::Topup) -> bool,
) -> Result<types::Topup> {
    let deadline = tokio::time::Instant::now() + limit;
    while !wanted(&topup) {
        if tokio::time::Instant::now() >= deadline {
            let text = format!("{} is still {} after {} s", topup.id.as_str(), topup.state, limit.as_secs());
            return Err(Failure::new(Exit::Server, text).suggest(format!(
                "The top-up is still open: see `gpuaas billing topups show {}`.",
                topup.id.as_str()
            )));
        }
        let id = topup.id.to_string();
        topup = send!(purse.client.topup_get(&purse.org, &id, Some(POLL)));
    }
    Ok(topup)
}
