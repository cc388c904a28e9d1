//! `gpuaas webhooks`.

mod listen;

use clap::Subcommand;
use sdk::types;

use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::{Result, local},
    output::{Columns, note},
    resolve,
    resources::{find, kinds},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the webhooks of the organization.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Create a webhook that receives events. Prints the signing secret, which is shown only once.
    Create {
        /// Name of the webhook, unique within the organization.
        name: String,
        /// Address that events are posted to; https, and public.
        url: String,
        /// Only events of this type; all by default. May be given several times.
        #[arg(long = "event", value_name = "TYPE")]
        events: Vec<String>,
    },
    /// Show a webhook, and whether its deliveries arrive.
    #[command(visible_alias = "get")]
    Show {
        /// Webhook, by name or id.
        webhook: String,
    },
    /// Change, enable or disable a webhook.
    Update {
        /// Webhook, by name or id.
        webhook: String,
        /// New name, unique within the organization.
        #[arg(long)]
        name: Option<String>,
        /// New address that events are posted to.
        #[arg(long)]
        url: Option<String>,
        /// From now on only events of this type. May be given several times.
        #[arg(long = "event", value_name = "TYPE")]
        events: Vec<String>,
        /// Send events to it again.
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
        /// Send no more events to it.
        #[arg(long)]
        disable: bool,
    },
    /// Create a new signing secret. The old one also signs during the grace period.
    RotateSecret {
        /// Webhook, by name or id.
        webhook: String,
    },
    /// Send a test event.
    Test {
        /// Webhook, by name or id.
        webhook: String,
    },
    /// Print and verify events as a webhook would receive them, until interrupted; optionally forward them.
    ///
    /// Works for a machine that the server cannot reach: a temporary webhook is created whose messages are streamed to
    /// this command, signed as deliveries are. It is deleted at the end.
    Listen {
        /// Only events of this type; all by default. May be given several times.
        #[arg(long = "event", value_name = "TYPE")]
        events: Vec<String>,
        /// Post each message to this address, with the headers that a delivery has.
        #[arg(long, value_name = "URL")]
        forward_to: Option<String>,
        /// End after so many messages.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// List deliveries and their results.
    Deliveries {
        /// Webhook, by name or id.
        webhook: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Delete a webhook and what waits to be sent to it.
    Delete {
        /// Webhook, by name or id.
        webhook: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("NAME", "name"),
    ("STATE", "state"),
    ("URL", "url"),
    ("SECRET", "secret"),
    ("LAST", "last_delivered_at"),
    ("ID", "id"),
];
const LISTED: Columns = &[
    ("NAME", "name"),
    ("STATE", "state"),
    ("URL", "url"),
    ("LAST", "last_delivered_at"),
    ("DROPPED", "dropped_events"),
    ("ID", "id"),
];
pub const DELIVERIES: Columns = &[
    ("EVENT", "event_type"),
    ("STATE", "state"),
    ("ATTEMPTS", "attempts"),
    ("AT", "created_at"),
    ("ERROR", "last_error"),
    ("ID", "id"),
    ("CHANNEL", "channel"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let org = resolve::org(app, &client).await?;
    let org = org.as_str();
    let found = async |webhook: &str| find(&client, &kinds::WEBHOOK, &[("org", org)], webhook).await;
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
        Command::Show { webhook } => {
            app.out.item(&send!(client.webhook_get(org, &found(&webhook).await?)), LISTED)
        }
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
            app.out.item(&send!(client.webhook_update(org, &found(&webhook).await?, &body)), LISTED)
        }
        Command::RotateSecret { webhook } => {
            let made = send!(client.webhook_rotate_secret(org, &found(&webhook).await?));
            note("The secret is shown only once. The previous secret also signs during the grace period.");
            app.out.item(&made, COLUMNS)
        }
        Command::Test { webhook } => {
            app.out.item(&send!(client.webhook_test(org, &found(&webhook).await?)), DELIVERIES)
        }
        Command::Listen { events, forward_to, count } => {
            let options = listen::Options { events, forward_to, count };
            Box::pin(listen::run(app, &client, org, options)).await
        }
        Command::Deliveries { webhook, limit } => {
            let webhook = found(&webhook).await?;
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
            send!(client.webhook_delete(org, &found(&webhook).await?));
            Ok(())
        }
    }
}
