//! Who may log in to an allocation.

use clap::Subcommand;
use sdk::types;

use super::{Place, page};
use crate::{
    args::Limit,
    failure::Result,
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum GrantsCommand {
    /// List the users with access.
    List {
        allocation: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Grant a user access with their own SSH keys.
    Add {
        allocation: String,
        /// By id or e-mail address.
        user: String,
    },
    /// Revoke a user's access. Open sessions are not closed.
    Remove {
        allocation: String,
        /// By id or e-mail address.
        user: String,
    },
}

#[derive(Subcommand)]
pub enum AccessCommand {
    /// Install the current SSH keys of its users on the machine.
    Refresh { allocation: String },
}

const GRANTS: Columns = &[("USER", "user_id"), ("GRANTED BY", "granted_by"), ("SINCE", "granted_at")];

pub async fn grants(place: &Place<'_>, command: GrantsCommand) -> Result {
    let (client, project) = (place.client, place.project.as_str());
    match command {
        GrantsCommand::List { allocation, limit } => {
            let id = place.allocation(&allocation).await?;
            let grants: Vec<types::AccessGrant> = pages!(limit.get(), |page| client.allocation_grant_list(
                project,
                &id,
                page.cursor(),
                page.size()
            ))?;
            place.app.out.list(&grants, GRANTS)
        }
        GrantsCommand::Add { allocation, user } => {
            let id = place.allocation(&allocation).await?;
            let user = resolve::user(client, project, &user).await?;
            let body = types::AccessGrantCreate { user_id: user };
            let granted = send!(client.allocation_grant_create(project, &id, &body));
            on_their_way(&id);
            place.app.out.item(&granted, GRANTS)
        }
        GrantsCommand::Remove { allocation, user } => {
            let id = place.allocation(&allocation).await?;
            let user = resolve::user(client, project, &user).await?;
            send!(client.allocation_grant_delete(project, &id, &user));
            note(&format!("Revoked the access of {user}."));
            on_their_way(&id);
            Ok(())
        }
    }
}

pub async fn keys(place: &Place<'_>, command: AccessCommand) -> Result {
    let AccessCommand::Refresh { allocation } = command;
    let id = place.allocation(&allocation).await?;
    page::show(place.app, &send!(place.client.allocation_access_refresh(&place.project, &id)))
}

fn on_their_way(id: &str) {
    note(&format!(
        "The keys are being installed; `gpuaas allocations get {id}` shows when they are on the machine."
    ));
}
