//! `gpuaas members`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{field, projects::MEMBERS};
use crate::{
    app::App,
    args::{Confirm, Limit, Role},
    failure::Result,
    output::note,
    resolve,
    resources::{find, kinds},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the members of the organization.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a member.
    #[command(alias = "get")]
    Show {
        /// Member, by e-mail address or id.
        user: String,
    },
    /// Change a member's role in the organization.
    Update {
        /// Member, by e-mail address or id.
        user: String,
        /// Role in the organization.
        #[arg(long)]
        role: Role,
    },
    #[command(hide = true)]
    SetRole { user: String, role: Role },
    /// Remove a member from the organization and all its projects.
    #[command(alias = "remove")]
    Delete {
        /// Member, by e-mail address or id.
        user: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let org = resolve::org(app, &client).await?;
    match command {
        Command::List { limit } => {
            let members: Vec<types::Member> =
                pages!(limit.get(), |page| client.member_list(&org, page.cursor(), page.size()))?;
            app.out.list(&members, MEMBERS)
        }
        Command::Show { user } => {
            let id = member(&client, &org, &user).await?;
            app.out.item(&send!(client.member_get(&org, &id)), MEMBERS)
        }
        Command::Update { user, role } | Command::SetRole { user, role } => {
            let id = member(&client, &org, &user).await?;
            let body = types::MemberUpdate { role: Some(field("role", role.name())?) };
            app.out.item(&send!(client.member_update(&org, &id, &body)), MEMBERS)
        }
        Command::Delete { user, confirm } => {
            let id = member(&client, &org, &user).await?;
            app.confirm(&confirm, &format!("Remove {user} from the organization"))?;
            send!(client.member_delete(&org, &id));
            note(&format!("Removed {user}."));
            Ok(())
        }
    }
}

async fn member(client: &Client, org: &str, text: &str) -> Result<String> {
    find(client, &kinds::MEMBER, &[("org", org)], text).await
}
