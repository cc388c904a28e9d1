//! `gpuaas projects`.

use clap::Subcommand;
use sdk::{Client, types};

use super::field;
use crate::{
    app::App,
    args::{Confirm, Limit, Role},
    failure::Result,
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// List the projects of the organization.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a project; defaults to that of the context.
    #[command(alias = "get")]
    Show {
        /// Project, by slug or id.
        project: Option<String>,
    },
    /// Create a project.
    Create {
        /// Slug, unique in the organization: lower-case letters, digits and hyphens.
        slug: String,
        /// Display name; defaults to the slug.
        #[arg(long)]
        name: Option<String>,
    },
    /// Change a project: its display name.
    Update {
        /// Project, by slug or id.
        project: String,
        /// Display name.
        #[arg(long)]
        name: String,
    },
    #[command(hide = true)]
    Rename { project: String, name: String },
    /// Delete a project. Refused while it still has service accounts.
    Delete {
        /// Project, by slug or id.
        project: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Users with a role in a project.
    #[command(subcommand)]
    Members(MembersCommand),
}

#[derive(Subcommand)]
pub enum MembersCommand {
    /// List the members of the project.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Give a member of the organization a role in the project.
    Set {
        /// Member of the organization, by e-mail address or id.
        user: String,
        /// Role in the project.
        role: Role,
    },
    /// Revoke a user's role in the project.
    #[command(alias = "remove")]
    Delete {
        /// Member of the project, by e-mail address or id.
        user: String,
    },
}

const COLUMNS: Columns =
    &[("SLUG", "slug"), ("NAME", "name"), ("CREATED", "created_at"), ("ID", "id"), ("ORG", "org_id")];
pub const MEMBERS: Columns =
    &[("NAME", "name"), ("EMAIL", "email"), ("ROLE", "role"), ("SINCE", "created_at"), ("ID", "id")];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { limit } => {
            let org = resolve::org(app, &client).await?;
            let projects: Vec<types::Project> =
                pages!(limit.get(), |page| client.project_list(&org, page.cursor(), page.size()))?;
            app.out.list(&projects, COLUMNS)
        }
        Command::Show { project } => {
            let id = match project {
                Some(text) => resolve::project_named(app, &client, &text).await?,
                None => resolve::project(app, &client).await?,
            };
            app.out.item(&send!(client.project_get(&id)), COLUMNS)
        }
        Command::Create { slug, name } => {
            let org = resolve::org(app, &client).await?;
            let body = types::ProjectCreate {
                name: name.as_deref().unwrap_or(&slug).to_owned(),
                slug: slug.clone(),
            };
            app.out.item(&send!(client.project_create(&org, &body)), COLUMNS)
        }
        Command::Update { project, name } | Command::Rename { project, name } => {
            let id = resolve::project_named(app, &client, &project).await?;
            let body = types::ProjectUpdate { name: Some(name) };
            app.out.item(&send!(client.project_update(&id, &body)), COLUMNS)
        }
        Command::Delete { project, confirm } => {
            let id = resolve::project_named(app, &client, &project).await?;
            app.confirm(
                &confirm,
                &format!("Delete project {project} with its service accounts and memberships"),
            )?;
            send!(client.project_delete(&id));
            note(&format!("Deleted the project {project}."));
            Ok(())
        }
        Command::Members(command) => members(app, &client, command).await,
    }
}

async fn members(app: &App, client: &Client, command: MembersCommand) -> Result {
    let project = resolve::project(app, client).await?;
    match command {
        MembersCommand::List { limit } => {
            let list: Vec<types::ProjectMember> =
                pages!(limit.get(), |page| client.project_member_list(&project, page.cursor(), page.size()))?;
            app.out.list(&list, MEMBERS)
        }
        MembersCommand::Set { user, role } => {
            let body = types::ProjectMemberPut { role: field("role", role.name())? };
            let id = resolve::user(client, &project, &user).await?;
            app.out.item(&send!(client.project_member_set(&project, &id, &body)), MEMBERS)
        }
        MembersCommand::Delete { user } => {
            let id = resolve::user(client, &project, &user).await?;
            send!(client.project_member_remove(&project, &id));
            note(&format!("Removed {user} from the project."));
            Ok(())
        }
    }
}
