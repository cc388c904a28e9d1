//! `gpuaas members`.

use clap::Subcommand;
use sdk::types;

use super::{field, projects::MEMBERS};
use crate::{
    app::App,
    args::{Confirm, Limit, Role},
    failure::Result,
    output::note,
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// List the members of the organization.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a member.
    Get { user: String },
    /// Change a member's role.
    SetRole { user: String, role: Role },
    /// Remove a member from the organization and all its projects.
    Remove {
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
        Command::Get { user } => app.out.item(&send!(client.member_get(&org, &user)), MEMBERS),
        Command::SetRole { user, role } => {
            let body = types::MemberUpdate { role: Some(field("role", role.name())?) };
            app.out.item(&send!(client.member_update(&org, &user, &body)), MEMBERS)
        }
        Command::Remove { user, confirm } => {
            app.confirm(&confirm, &format!("Remove {user} from the organization"))?;
            send!(client.member_delete(&org, &user));
            note(&format!("Removed {user}."));
            Ok(())
        }
    }
}
