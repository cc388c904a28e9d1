//! `gpuaas open`.

use clap::{Args as ClapArgs, ValueEnum};
use sdk::types;

use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    output::write,
    process::open_browser,
    resolve,
};

#[derive(Clone, Copy, ValueEnum)]
pub enum Page {
    /// The first page of the server.
    Console,
    /// The checkout page of the newest unpaid top-up.
    Checkout,
}

#[derive(ClapArgs)]
pub struct Command {
    /// Page to open.
    #[arg(value_enum, default_value = "console")]
    page: Page,
    /// Print the address only.
    #[arg(long)]
    no_browser: bool,
}

pub async fn run(app: &App, command: Command) -> Result {
    let address = match command.page {
        Page::Console => app.server.clone(),
        Page::Checkout => checkout(app).await?,
    };
    if !command.no_browser && app.may_ask() {
        open_browser(&address);
    }
    write(&format!("{address}\n"))
}

async fn checkout(app: &App) -> Result<String> {
    let client = app.client().await?;
    let org = resolve::org(app, &client).await?;
    let topups: Vec<types::Topup> =
        pages!(Some(20), |page| client.topup_list(&org, page.cursor(), page.size()))?;
    let open = topups.into_iter().filter(|topup| topup.state == types::TopupState::Open);
    open.filter_map(|topup| topup.url).next().ok_or_else(|| {
        Failure::new(Exit::NotFound, "there is no unpaid top-up")
            .suggest("Start one with `gpuaas billing topup 50.00`.")
    })
}
