//! `gpuaas invitations`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{field, optional, projects::MEMBERS, read_input};
use crate::{
    app::App,
    args::{Limit, Role},
    failure::{Exit, Failure, Result},
    output::{Columns, note},
    resolve,
    resources::{
        find, kinds,
        names::{self, Scope},
    },
};

#[derive(Clone, Copy, ValueEnum)]
pub enum State {
    Pending,
    Accepted,
    Revoked,
    Expired,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// List the invitations to the organization; without the right to see them, those that you received.
    List {
        /// Only invitations in this state.
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        limit: Limit,
    },
    /// List the open invitations to your own address.
    Received {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an invitation.
    #[command(alias = "get")]
    Show {
        /// Invitation, by e-mail address or id.
        invitation: String,
    },
    /// Invite a user by one link, which joins the organization and, with --project, a project.
    Create {
        /// E-mail address of the person.
        email: String,
        /// Role in the organization.
        #[arg(long, value_enum, default_value_t = Role::Member)]
        role: Role,
        /// Role in the project that --project names; member by default.
        #[arg(long, value_enum)]
        project_role: Option<Role>,
    },
    /// Revoke an invitation.
    #[command(alias = "delete")]
    Revoke {
        /// Invitation, by e-mail address or id.
        invitation: String,
    },
    /// Accept an invitation to your own address, or any with its token.
    Accept {
        /// Invitation, by the name of its organization or by id.
        invitation: String,
        /// File with the token, or with the code that the link shows; `-` for standard input.
        #[arg(long, value_name = "FILE")]
        token_file: Option<String>,
    },
    /// Decline an invitation to your own address.
    Decline {
        /// Invitation, by the name of its organization or by id.
        invitation: String,
    },
}

const COLUMNS: Columns = &[
    ("EMAIL", "email"),
    ("ROLE", "role"),
    ("STATE", "state"),
    ("PROJECT", "project_id"),
    ("PROJECT ROLE", "project_role"),
    ("EXPIRES", "expires_at"),
    ("CREATED", "created_at"),
    ("ID", "id"),
];
const CREATED: Columns = &[
    ("EMAIL", "email"),
    ("LINK", "link"),
    ("ROLE", "role"),
    ("PROJECT", "project_id"),
    ("PROJECT ROLE", "project_role"),
    ("EXPIRES", "expires_at"),
];
const RECEIVED: Columns = &[
    ("ORGANIZATION", "org_name"),
    ("ROLE", "role"),
    ("PROJECT", "project_name"),
    ("INVITED BY", "invited_by"),
    ("EXPIRES", "expires_at"),
    ("ID", "id"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { state, limit } => list(app, &client, state, &limit).await,
        Command::Received { limit } => app.out.list(&received(&client, &limit).await?, RECEIVED),
        Command::Show { invitation } => {
            let org = resolve::org(app, &client).await?;
            let id = find(&client, &kinds::INVITATION, &[("org", &org)], &invitation).await?;
            app.out.item(&send!(client.invitation_get(&org, &id)), COLUMNS)
        }
        Command::Create { email, role, project_role } => {
            create(app, &client, email, role, project_role).await
        }
        Command::Revoke { invitation } => {
            let org = resolve::org(app, &client).await?;
            let id = find(&client, &kinds::INVITATION, &[("org", &org)], &invitation).await?;
            send!(client.invitation_revoke(&org, &id));
            note(&format!("Revoked the invitation {invitation}."));
            Ok(())
        }
        Command::Accept { invitation, token_file } => {
            // Not an argument: every user of the machine can read arguments of processes.
            let token = token_file.as_deref().map(read_input).transpose()?;
            let token = token.map(|token| token.trim().to_owned());
            // Somebody with a token may have another address, and cannot list the invitation.
            let id = match token {
                Some(_) => invitation,
                None => find(&client, &kinds::RECEIVED_INVITATION, &[], &invitation).await?,
            };
            let joined = send!(client.invitation_accept(&id, &types::InvitationAccept { token }));
            note("You joined. List what you can use with `gpuaas auth whoami`.");
            app.out.item(&joined, MEMBERS)
        }
        Command::Decline { invitation } => {
            let id = find(&client, &kinds::RECEIVED_INVITATION, &[], &invitation).await?;
            send!(client.invitation_decline(&id));
            note(&format!("Declined the invitation {invitation}."));
            Ok(())
        }
    }
}

async fn received(client: &Client, limit: &Limit) -> Result<Vec<types::ReceivedInvitation>> {
    Ok(pages!(limit.get(), |page| client.invitation_list_received(page.cursor(), page.size()))?)
}

/// Who administers no organization has only invitations to themselves to look at.
async fn list(app: &App, client: &Client, state: Option<State>, limit: &Limit) -> Result {
    let state = optional("state", state.map(State::name))?;
    let of_org = async {
        let org = resolve::org(app, client).await?;
        let found: Vec<types::Invitation> =
            pages!(limit.get(), |page| client.invitation_list(&org, page.cursor(), page.size(), state))?;
        names::learn(app, client, &Scope::Org(&org), &found).await;
        Ok::<_, Failure>(found)
    };
    match of_org.await {
        Ok(found) => {
            let own = received(client, limit).await?;
            for one in &own {
                note(&format!(
                    "You are invited to {}: accept with `gpuaas invitations accept {}`.",
                    one.org_name,
                    one.id.as_str()
                ));
            }
            app.out.list(&found, COLUMNS)
        }
        Err(failure) if app.org.is_none() && matches!(failure.exit, Exit::NotFound | Exit::Auth) => {
            app.out.list(&received(client, limit).await?, RECEIVED)
        }
        Err(failure) => Err(failure),
    }
}

/// The project is the one that the command line names: that of the context was not chosen for this.
async fn create(app: &App, client: &Client, email: String, role: Role, project_role: Option<Role>) -> Result {
    let org = resolve::org(app, client).await?;
    let project_id = match &app.given.project {
        Some(text) => Some(resolve::project_named(app, client, text).await?),
        None if project_role.is_some() => {
            return Err(Failure::client("--project-role needs a project").suggest("Add --project."));
        }
        None => None,
    };
    let body = types::InvitationCreate {
        email,
        role: field("role", role.name())?,
        project_id,
        project_role: optional("project-role", project_role.map(Role::name))?,
    };
    let made = send!(client.invitation_create(&org, &body));
    match &made.mailed_to {
        Some(address) => note(&format!(
            "A mail with the link goes to {address}. Whoever opens it signs up or signs in, and joins. Revoke and invite \
             again to send it again."
        )),
        None => note("Mail is not configured: pass on the link yourself. It is shown only once."),
    }
    app.out.item(&made, CREATED)
}
