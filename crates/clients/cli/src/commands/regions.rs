//! `gpuaas regions`.

use clap::Subcommand;
use sdk::types;

use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the regions.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a region.
    #[command(alias = "get")]
    Show {
        /// Region, by its code.
        region: String,
    },
    /// Create a region.
    Create {
        /// Code of the region, unique and immutable, such as eu-north.
        code: String,
        /// Display name; defaults to the code.
        #[arg(long)]
        name: Option<String>,
    },
    /// Change a region's name.
    Update {
        /// Region, by its code.
        region: String,
        /// New display name.
        #[arg(long)]
        name: String,
    },
    /// The older form of `update`.
    #[command(hide = true)]
    Rename {
        /// Region, by its code.
        region: String,
        /// New display name.
        name: String,
    },
    /// Delete a region. Refused while it has nodes or pools.
    Delete {
        /// Region, by its code.
        region: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[("CODE", "code"), ("NAME", "name"), ("CREATED", "created_at")];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { limit } => {
            let regions: Vec<types::Region> =
                pages!(limit.get(), |page| client.region_list(page.cursor(), page.size()))?;
            app.out.list(&regions, COLUMNS)
        }
        Command::Show { region } => app.out.item(&send!(client.region_get(&region)), COLUMNS),
        Command::Create { code, name } => {
            let body =
                types::RegionCreate { name: name.as_deref().unwrap_or(&code).to_owned(), code: code.clone() };
            app.out.item(&send!(client.region_create(&body)), COLUMNS)
        }
        Command::Update { region, name } | Command::Rename { region, name } => {
            let body = types::RegionUpdate { name: Some(name) };
            app.out.item(&send!(client.region_update(&region, &body)), COLUMNS)
        }
        Command::Delete { region, confirm } => {
            app.confirm(&confirm, &format!("Delete the region {region}"))?;
            send!(client.region_delete(&region));
            note(&format!("Deleted {region}."));
            Ok(())
        }
    }
}
