//! `gpuaas invitations`.

use clap::{Subcommand, ValueEnum};
use sdk::types;

use super::{field, optional, projects::MEMBERS, read_input};
use crate::{
    app::App,
    args::{Limit, Role},
    failure::Result,
    output::{Columns, note},
    resolve,
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
    /// List the invitations to the organization.
    List {
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an invitation.
    Get { invitation: String },
    /// Invite a user. The link is sent by mail if mail is configured; otherwise pass on the token, which is shown only once.
    Create {
        email: String,
        #[arg(long, value_enum, default_value_t = Role::Member)]
        role: Role,
    },
    /// Revoke an invitation.
    Revoke { invitation: String },
    /// Accept an invitation, with its token or the code that the mailed link shows.
    Accept {
        invitation: String,
        /// The file with the token; `-` for standard input.
        #[arg(long, value_name = "FILE")]
        token_file: String,
    },
}

const COLUMNS: Columns = &[
    ("ID", "id"),
    ("EMAIL", "email"),
    ("ROLE", "role"),
    ("STATE", "state"),
    ("EXPIRES", "expires_at"),
    ("CREATED", "created_at"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { state, limit } => {
            let org = resolve::org(app, &client).await?;
            let state = optional("state", state.map(State::name))?;
            let list: Vec<types::Invitation> =
                pages!(limit.get(), |page| client.invitation_list(&org, page.cursor(), page.size(), state))?;
            app.out.list(&list, COLUMNS)
        }
        Command::Get { invitation } => {
            let org = resolve::org(app, &client).await?;
            app.out.item(&send!(client.invitation_get(&org, &invitation)), COLUMNS)
        }
        Command::Create { email, role } => {
            let org = resolve::org(app, &client).await?;
            let body = types::InvitationCreate { email, role: field("role", role.name())? };
            let made = send!(client.invitation_create(&org, &body));
            match &made.mailed_to {
                Some(address) => note(&format!(
                    "A mail with a link goes to {address}: whoever opens it makes an account there, or joins with theirs. Revoke \
                     and invite again to send it again. The token, shown only once, is for a user who has an account."
                )),
                None => note(
                    "Mail is not configured. Pass the id and the token to the invited user: the token is shown only once.",
                ),
            }
            app.out.item(&made, COLUMNS)
        }
        Command::Revoke { invitation } => {
            let org = resolve::org(app, &client).await?;
            send!(client.invitation_revoke(&org, &invitation));
            note(&format!("Revoked {invitation}."));
            Ok(())
        }
        Command::Accept { invitation, token_file } => {
            // Not an argument: every user of the machine can read arguments of processes.
            let token = read_input(&token_file)?;
            let body = types::InvitationAccept { token: token.trim().to_owned() };
            app.out.item(&send!(client.invitation_accept(&invitation, &body)), MEMBERS)
        }
    }
}
