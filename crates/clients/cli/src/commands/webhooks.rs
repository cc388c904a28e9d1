//! `gpuaas webhooks`.

use clap::Subcommand;
use sdk::types;

use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::{Result, local},
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Create a webhook that receives events. Prints the signing secret, which is shown only once.
    Create {
        name: String,
        url: String,
        /// Only events of this type; all by default. May be given several times.
        #[arg(long = "event", value_name = "TYPE")]
        events: Vec<String>,
    },
    #[command(visible_alias = "get")]
    Show { webhook: String },
    Update {
        webhook: String,
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        url: Option<String>,
        #[arg(long = "event", value_name = "TYPE")]
        events: Vec<String>,
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
        #[arg(long)]
        disable: bool,
    },
    /// Create a new signing secret. The old one also signs during the grace period.
    RotateSecret { webhook: String },
    /// Send a test event.
    Test { webhook: String },
    /// List deliveries and their results.
    Deliveries {
        webhook: String,
        #[command(flatten)]
        limit: Limit,
    },
    Delete {
        webhook: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("URL", "url"),
    ("STATE", "state"),
    ("SECRET", "secret"),
    ("LAST", "last_delivered_at"),
];
const LISTED: Columns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("URL", "url"),
    ("STATE", "state"),
    ("LAST", "last_delivered_at"),
    ("DROPPED", "dropped_events"),
];
pub const DELIVERIES: Columns = &[
    ("ID", "id"),
    ("CHANNEL", "channel"),
    ("EVENT", "event_type"),
    ("STATE", "state"),
    ("ATTEMPTS", "attempts"),
    ("ERROR", "last_error"),
    ("AT", "created_at"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let org = resolve::org(app, &client).await?;
    let org = org.as_str();
    match command {
        Command::List { limit } => {
            let found: Vec<types::Webhook> =
                pages!(limit.get(), |page| client.webhook_list(org, page.cursor(), page.size()))?;
            app.out.list(&found, LISTED)
        }
        Command::Create { name, url, events } => {
            let mut body = serde_json::json!({ "name": name, "url": url });
            if !events.is_empty() {
                body["event_types"] = events.into();
            }
            let body: types::WebhookCreate =
                serde_json::from_value(body).map_err(local("the request is not valid"))?;
            let made = send!(client.webhook_create(org, &body));
            note("The secret is shown only once.");
            app.out.item(&made, COLUMNS)
        }
        Command::Show { webhook } => app.out.item(&send!(client.webhook_get(org, &webhook)), LISTED),
        Command::Update { webhook, name, url, events, enable, disable } => {
            let mut body = serde_json::Map::new();
            let mut put = |key: &str, value: Option<serde_json::Value>| {
                if let Some(value) = value {
                    body.insert(key.to_owned(), value);
                }
            };
            put("name", name.map(Into::into));
            put("url", url.map(Into::into));
            put("event_types", (!events.is_empty()).then(|| events.into()));
            put("enabled", (enable || disable).then(|| enable.into()));
            let body: types::WebhookUpdate =
                serde_json::from_value(body.into()).map_err(local("the request is not valid"))?;
            app.out.item(&send!(client.webhook_update(org, &webhook, &body)), LISTED)
        }
        Command::RotateSecret { webhook } => {
            let made = send!(client.webhook_rotate_secret(org, &webhook));
            note("The secret is shown only once. The previous secret also signs during the grace period.");
            app.out.item(&made, COLUMNS)
        }
        Command::Test { webhook } => app.out.item(&send!(client.webhook_test(org, &webhook)), DELIVERIES),
        Command::Deliveries { webhook, limit } => {
            let found: Vec<types::Delivery> = pages!(limit.get(), |page| client.webhook_delivery_list(
                org,
                &webhook,
                page.cursor(),
                page.size()
            ))?;
            app.out.list(&found, DELIVERIES)
        }
        Command::Delete { webhook, confirm } => {
            app.confirm(&confirm, &format!("Delete {webhook}: it receives no more events"))?;
            send!(client.webhook_delete(org, &webhook));
            Ok(())
        }
    }
}
