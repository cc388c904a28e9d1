//! Who may log in to an allocation.

use clap::Subcommand;
use sdk::types;

use super::{Place, page, refusal::quoted};
use crate::{
    args::Limit,
    failure::Result,
    output::{Columns, note},
    resolve,
    resources::names::{self, Scope},
};

#[derive(Subcommand)]
pub enum GrantsCommand {
    /// List the users with access.
    List {
        /// Allocation, by name or id.
        allocation: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Grant a user access with their own SSH keys.
    #[command(alias = "add")]
    Create {
        /// Allocation, by name or id.
        allocation: String,
        /// Member of the organization, by e-mail address or id.
        user: String,
    },
    /// Revoke a user's access. Open sessions are not closed.
    #[command(alias = "remove")]
    Delete {
        /// Allocation, by name or id.
        allocation: String,
        /// Member, by e-mail address or id.
        user: String,
    },
}

#[derive(Subcommand)]
pub enum AccessCommand {
    /// Install the current SSH keys of its users on the machine.
    Refresh {
        /// Allocation, by name or id.
        allocation: String,
    },
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
            names::learn(place.app, client, &Scope::Project(project), &grants).await;
            place.app.out.list(&grants, GRANTS)
        }
        GrantsCommand::Create { allocation, user } => {
            let id = place.allocation(&allocation).await?;
            let user = resolve::user(client, project, &user).await?;
            let body = types::AccessGrantCreate { user_id: user };
            let granted = send!(client.allocation_grant_create(project, &id, &body));
            on_their_way(&allocation);
            place.app.out.item(&granted, GRANTS)
        }
        GrantsCommand::Delete { allocation, user } => {
            let id = place.allocation(&allocation).await?;
            let user_id = resolve::user(client, project, &user).await?;
            send!(client.allocation_grant_delete(project, &id, &user_id));
            note(&format!("Revoked the access of {user}."));
            on_their_way(&allocation);
            Ok(())
        }
    }
}

pub async fn keys(place: &Place<'_>, command: AccessCommand) -> Result {
    let AccessCommand::Refresh { allocation } = command;
    let id = place.allocation(&allocation).await?;
    page::show(place.app, &send!(place.client.allocation_access_refresh(&place.project, &id)))
}

fn on_their_way(typed: &str) {
    note(&format!(
        "The keys are being installed; `gpuaas allocations show {}` shows when they are on the machine.",
        quoted(typed)
    ));
}
