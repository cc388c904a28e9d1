//! `gpuaas auth`.

use clap::Subcommand;
use sdk::types;

use super::sessions;
use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    login::{self, Flow},
    output::{Columns, note},
    session::Origin,
};

#[derive(Subcommand)]
pub enum Command {
    /// Sign in as a person.
    Login {
        /// Confirm with a code on another device, for a machine without a browser.
        #[arg(long)]
        device: bool,
        /// Only print the address, do not open it.
        #[arg(long, conflicts_with = "device")]
        no_browser: bool,
    },
    /// Show who you are and where you belong.
    Whoami,
    /// Change your name.
    Rename { name: String },
    /// End this session and forget its tokens.
    Logout,
    /// Sessions of yours: where you are signed in.
    #[command(subcommand)]
    Sessions(sessions::Command),
}

const ME: Columns = &[("ID", "id"), ("NAME", "name"), ("EMAIL", "email"), ("SESSION", "session_id")];

pub async fn run(app: &App, command: Command) -> Result {
    match command {
        Command::Login { device, no_browser } => {
            let flow = if device { Flow::Device } else { Flow::Browser { open: !no_browser } };
            login::sign_in(app, flow).await?;
            let me = send!(app.client().await?.me_get());
            note(&format!("Signed in to {} as {}.", app.server, me.name));
            Ok(())
        }
        Command::Whoami => {
            let client = app.client().await?;
            app.out.item(&send!(client.me_get()), ME)
        }
        Command::Rename { name } => {
            let client = app.client().await?;
            let body = types::MeUpdate { name: Some(super::field("name", name)?) };
            app.out.item(&send!(client.me_update().body(body)), ME)
        }
        Command::Logout => logout(app).await,
        Command::Sessions(command) => sessions::run(app, command).await,
    }
}

/// The tokens are forgotten in any case; what the server did not hear of is said.
async fn logout(app: &App) -> Result {
    let session = app.session()?;
    if !matches!(session.origin, Origin::Stored) {
        return Err(Failure::client(format!(
            "this run uses {}, which cannot be signed out",
            session.origin.describe()
        )));
    }
    let revoked = revoke(app).await;
    let known = app.credentials().lock().await?.forget(&app.server)?;
    match revoked {
        Err(failure) if known && failure.exit != Exit::Auth => Err(failure.suggest(
            "The tokens are forgotten, but the session may live on: revoke it with `gpuaas auth sessions`.",
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
    send!(client.session_revoke().session_id(me.session_id.to_string()));
    Ok(())
}
