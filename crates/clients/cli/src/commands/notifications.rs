//! `gpuaas notifications`.

use clap::Subcommand;
use futures_util::StreamExt as _;
use sdk::{Client, types};

use super::allocations::Frames;
use crate::{
    app::App,
    args::{Format, Limit},
    failure::{Failure, Result, local},
    output::{Columns, note, printable, write_on},
    resources::{find, kinds},
};

#[derive(Subcommand)]
pub enum Command {
    /// List notifications, newest first.
    List {
        /// Only unread ones.
        #[arg(long)]
        unread: bool,
        /// Print new notifications as they come, until interrupted.
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        limit: Limit,
    },
    /// Mark one notification, or all, as read.
    Read {
        /// Notification, by id or the tail of its id.
        #[arg(required_unless_present = "all")]
        notification: Option<String>,
        /// Mark all notifications as read.
        #[arg(long, conflicts_with = "notification")]
        all: bool,
    },
    /// Your notification preferences by kind and channel.
    #[command(subcommand)]
    Preferences(PreferencesCommand),
}

#[derive(Subcommand)]
pub enum PreferencesCommand {
    /// Show which notifications you get, and how.
    #[command(alias = "list")]
    Show,
    /// Enable or disable a kind of notification.
    Set {
        /// Kind of notification, such as low_balance.
        kind: String,
        /// By mail: on or off.
        #[arg(long, value_name = "on|off", value_parser = switch)]
        email: Option<bool>,
        /// In the product: on or off.
        #[arg(long, value_name = "on|off", value_parser = switch)]
        in_app: Option<bool>,
    },
}

fn switch(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

const COLUMNS: Columns =
    &[("AT", "created_at"), ("SEVERITY", "severity"), ("TITLE", "title"), ("READ", "read_at"), ("ID", "id")];
const PREFERENCES: Columns = &[("KIND", "kind"), ("IN PRODUCT", "in_app"), ("MAIL", "email")];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { unread, follow: follow_on, limit } => {
            if follow_on {
                return follow(app, &client).await;
            }
            let found: Vec<types::Notification> = pages!(limit.get(), |page| client.notification_list(
                page.cursor(),
                page.size(),
                unread.then_some(true)
            ))?;
            app.out.list(&found, COLUMNS)
        }
        Command::Read { notification: Some(notification), .. } => {
            let id = find(&client, &kinds::NOTIFICATION, &[], &notification).await?;
            app.out.item(&send!(client.notification_read(&id)), COLUMNS)
        }
        Command::Read { notification: None, .. } => {
            let body = types::NotificationReadAll { up_to_seq: None };
            let read = send!(client.notification_read_all(&body));
            note(&format!("{} marked as read.", read.count));
            Ok(())
        }
        Command::Preferences(PreferencesCommand::Show) => {
            app.out.list(&send!(client.notification_preferences_get()).items, PREFERENCES)
        }
        Command::Preferences(PreferencesCommand::Set { kind, email, in_app }) => {
            let known = send!(client.notification_preferences_get());
            let Some(mut wanted) = known.items.into_iter().find(|item| item.kind.to_string() == kind) else {
                return Err(Failure::client(format!("unknown kind {kind:?}"))
                    .suggest("List the kinds with `gpuaas notifications preferences show`."));
            };
            wanted.email = email.unwrap_or(wanted.email);
            wanted.in_app = in_app.unwrap_or(wanted.in_app);
            let value = serde_json::json!({
                "items": [{ "kind": wanted.kind, "email": wanted.email, "in_app": wanted.in_app }]
            });
            let body: types::NotificationPreferencesUpdate =
                serde_json::from_value(value).map_err(local("the request is not valid"))?;
            app.out.list(&send!(client.notification_preferences_update(&body)).items, PREFERENCES)
        }
    }
}

/// What comes, as it comes. A stream that ends is opened again after the last one seen.
async fn follow(app: &App, client: &Client) -> Result {
    let mut after: i64 = 0;
    loop {
        let mut stream = send!(client.notification_stream(Some(after)));
        let mut frames = Frames::default();
        loop {
            let piece = tokio::select! {
                piece = stream.next() => piece,
                _ = tokio::signal::ctrl_c() => return Ok(()),
            };
            let Some(Ok(piece)) = piece else { break };
            for frame in frames.feed(&piece)? {
                let notification: types::Notification = serde_json::from_str(&frame.data)
                    .map_err(local("the server sent an invalid response"))?;
                after = after.max(notification.seq);
                let line = if app.out.format == Format::Json {
                    frame.data
                } else {
                    let at = notification.created_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
                    printable(&format!(
                        "{at}  {}  {}  {}",
                        notification.severity, notification.title, notification.text
                    ))
                };
                if !write_on(format!("{line}\n").as_bytes())? {
                    return Ok(());
                }
            }
        }
        // The server ends streams after some minutes; pause before reconnecting.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
