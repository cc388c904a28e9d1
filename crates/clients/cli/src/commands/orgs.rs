//! `gpuaas orgs`.

use clap::Subcommand;
use sdk::types;

use crate::{app::App, args::Limit, failure::Result, output::Columns, resolve};

#[derive(Subcommand)]
pub enum Command {
    /// List the organizations that you belong to.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an organization; defaults to that of the context.
    #[command(alias = "get")]
    Show {
        /// Organization, by slug or id.
        org: Option<String>,
    },
    /// Change an organization: its display name.
    Update {
        /// Organization, by slug or id.
        org: String,
        /// Display name.
        #[arg(long)]
        name: String,
    },
    #[command(hide = true)]
    Rename { org: String, name: String },
}

const MEMBERSHIP: Columns = &[
    ("SLUG", "slug"),
    ("NAME", "name"),
    ("ROLE", "role"),
    ("STATE", "state"),
    ("KIND", "kind"),
    ("ID", "id"),
];
pub const COLUMNS: Columns = &[
    ("SLUG", "slug"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("KIND", "kind"),
    ("CREATED", "created_at"),
    ("ID", "id"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { limit } => {
            let orgs: Vec<types::OrgMembership> =
                pages!(limit.get(), |page| client.org_list(page.cursor(), page.size()))?;
            app.out.list(&orgs, MEMBERSHIP)
        }
        Command::Show { org } => {
            let id = match org {
                Some(text) => resolve::org_named(&client, &text).await?,
                None => resolve::org(app, &client).await?,
            };
            app.out.item(&send!(client.org_get(&id)), COLUMNS)
        }
        Command::Update { org, name } | Command::Rename { org, name } => {
            let id = resolve::org_named(&client, &org).await?;
            let body = types::OrgUpdate { name: Some(name) };
            app.out.item(&send!(client.org_update(&id, &body)), COLUMNS)
        }
    }
}
