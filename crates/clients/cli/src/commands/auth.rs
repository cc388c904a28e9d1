//! `gpuaas auth`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{allocations::refusal::quoted, sessions};
use crate::{
    app::App,
    config::Config,
    failure::{Exit, Failure, Result, local},
    login::{self, Flow},
    output::{Columns, note},
    resolve,
    session::Origin,
};

#[derive(Subcommand)]
pub enum Command {
    /// Sign in as a user.
    Login {
        /// Sign in with a code on another device (device flow), for a machine without a browser.
        #[arg(long)]
        device: bool,
        /// Print the address instead of opening a browser.
        #[arg(long, conflicts_with = "device")]
        no_browser: bool,
    },
    /// Show who you are: a user with organizations and projects, or a service account.
    Whoami,
    /// Print an access token for other programs, such as `curl -H "Authorization: Bearer $(gpuaas auth token)"`. It expires
    /// soon: ask again rather than store it.
    Token,
    /// Change your account: the display name.
    #[command(alias = "rename")]
    Update {
        /// Your display name.
        #[arg(long, required_unless_present = "old_name")]
        name: Option<String>,
        #[arg(hide = true)]
        old_name: Option<String>,
    },
    /// Sign out: revoke this session and delete its tokens.
    Logout,
    /// Your sessions.
    #[command(subcommand)]
    Sessions(sessions::Command),
}

/// Which organization and project commands use from now on: the only ones, or what to choose from.
async fn say_where(app: &App, client: &Client) -> Result {
    let invited: Vec<types::ReceivedInvitation> =
        pages!(Some(5), |page| client.invitation_list_received(page.cursor(), page.size()))?;
    for one in &invited {
        let name = quoted(&one.org_name);
        note(&format!("You are invited to {}: gpuaas invitations accept {name}", one.org_name));
    }
    let chosen = async {
        let org = send!(client.org_get(&resolve::org(app, client).await?));
        let project = send!(client.project_get(&resolve::project(app, client).await?));
        Ok::<_, Failure>(format!("Organization {}, project {}.", org.slug, project.slug))
    };
    match chosen.await {
        Ok(text) => note(&text),
        // There is nothing to choose from, or too much: the next command will say the same.
        Err(failure) => {
            note(&failure.message);
            note(&failure.suggestion.unwrap_or_default());
        }
    }
    Ok(())
}

/// Makes the server of the sign-in the default of later commands.
fn remember_server(app: &App) -> Result {
    if app.config.server.as_ref() == Some(&app.server) {
        return Ok(());
    }
    // Organization and project belong to the previous server.
    Config { server: Some(app.server.clone()), org: None, project: None }.save(&app.directory)
}

/// For people: organizations by slug and role, and how many projects.
fn summarise(me: &mut serde_json::Value) {
    let text = |value: &serde_json::Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let orgs = me["orgs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let orgs: Vec<String> =
        orgs.iter().map(|o| format!("{} ({})", text(o, "slug"), text(o, "role"))).collect();
    me["projects"] = me["projects"].as_array().map_or(0, Vec::len).into();
    me["orgs"] = orgs.join(", ").into();
}

const WHO: Columns = &[
    ("KIND", "kind"),
    ("NAME", "name"),
    ("ROLES", "roles"),
    ("PROJECT", "project_name"),
    ("ORG", "org_name"),
    ("KEY", "key_id"),
    ("TOKEN EXPIRES", "token_expires_at"),
    ("ID", "id"),
];
const ME: Columns = &[("NAME", "name"), ("EMAIL", "email"), ("ID", "id"), ("SESSION", "session_id")];

pub async fn run(app: &App, command: Command) -> Result {
    match command {
        Command::Login { device, no_browser } => {
            let flow = if device { Flow::Device } else { Flow::Browser { open: !no_browser } };
            login::sign_in(app, flow).await?;
            let client = app.client().await?;
            let me = send!(client.me_get());
            note(&format!("Signed in to {} as {}.", app.server, me.name));
            remember_server(app)?;
            say_where(app, &client).await
        }
        Command::Whoami => {
            let client = app.client().await?;
            let who = send!(client.whoami_get());
            if who.kind != types::PrincipalKind::User {
                return app.out.item(&who, WHO);
            }
            let mut me = serde_json::to_value(send!(client.me_get()))
                .map_err(local("the response cannot be printed"))?;
            if app.out.is_table() {
                summarise(&mut me);
            }
            app.out.item(&me, ME)
        }
        Command::Token => {
            let token = app.session()?.current_token().await?;
            app.out
                .value(&serde_json::json!({ "access_token": token, "token_type": "Bearer" }), "access_token")
        }
        Command::Update { name, old_name } => {
            let client = app.client().await?;
            let body = types::MeUpdate { name: name.or(old_name) };
            app.out.item(&send!(client.me_update(&body)), ME)
        }
        Command::Logout => logout(app).await,
        Command::Sessions(command) => sessions::run(app, command).await,
    }
}

/// Deletes the local tokens in any case, and reports a session that the server did not revoke.
async fn logout(app: &App) -> Result {
    let session = app.session()?;
    if !matches!(session.origin, Origin::Stored) {
        return Err(Failure::client(format!(
            "this command uses {}, which has no session to sign out",
            session.origin.describe()
        )));
    }
    let revoked = revoke(app).await;
    let known = app.credentials().lock().await?.forget(&app.server)?;
    match revoked {
        Err(failure) if known && failure.exit != Exit::Auth => Err(failure.suggest(
            "The local tokens were deleted, but the session may still be valid: revoke it with `gpuaas auth sessions`.",
        )),
        _ if known => {
            note(&format!("Signed out of {}.", app.server));
            Ok(())
        }
        _ => {
            note(&format!("You were not signed in to {}.", app.server));
            Ok(())
        }
    }
}

async fn revoke(app: &App) -> Result {
    let client = app.client().await?;
    let me = send!(client.me_get());
    send!(client.session_revoke(&me.session_id.to_string()));
    Ok(())
}
