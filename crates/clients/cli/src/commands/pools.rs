//! `gpuaas pools`.

use clap::Subcommand;
use sdk::types;

use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::{Failure, Result},
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// List the pools.
    List {
        /// Only pools of this region.
        #[arg(long)]
        region: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a pool.
    #[command(alias = "get")]
    Show {
        /// Pool, by name or id.
        pool: String,
    },
    /// Create a pool.
    Create {
        /// Name of the pool, unique within its region.
        name: String,
        /// Region of the pool, by its code.
        #[arg(long)]
        region: String,
        /// Description for operators.
        #[arg(long)]
        description: Option<String>,
    },
    /// Change a pool's name or description.
    Update {
        /// Pool, by name or id.
        pool: String,
        /// New name, unique within its region.
        #[arg(long)]
        name: Option<String>,
        /// New description.
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete a pool. Refused while it has nodes.
    Delete {
        /// Pool, by name or id.
        pool: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("NAME", "name"),
    ("REGION", "region"),
    ("DESCRIPTION", "description"),
    ("CREATED", "created_at"),
    ("ID", "id"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { region, limit } => {
            let pools: Vec<types::NodePool> =
                pages!(limit.get(), |page| client.pool_list(page.cursor(), page.size(), region.as_deref()))?;
            app.out.list(&pools, COLUMNS)
        }
        Command::Show { pool } => {
            let id = resolve::pool(&client, &pool, None).await?;
            app.out.item(&send!(client.pool_get(&id)), COLUMNS)
        }
        Command::Create { name, region, description } => {
            let body = types::PoolCreate { name, region, description };
            app.out.item(&send!(client.pool_create(&body)), COLUMNS)
        }
        Command::Update { pool, name, description } => {
            if name.is_none() && description.is_none() {
                return Err(Failure::client("nothing to change").suggest("Give --name or --description."));
            }
            let body = types::PoolUpdate { name, description };
            let id = resolve::pool(&client, &pool, None).await?;
            app.out.item(&send!(client.pool_update(&id, &body)), COLUMNS)
        }
        Command::Delete { pool, confirm } => {
            let id = resolve::pool(&client, &pool, None).await?;
            app.confirm(&confirm, &format!("Delete the pool {pool}"))?;
            send!(client.pool_delete(&id));
            note(&format!("Deleted {pool}."));
            Ok(())
        }
    }
}
