//! Notifications: people hear of what concerns them, also when they are not signed in.
//!
//! **How it works.** Consumers turn events into notifications for the people concerned, and into messages on their way:
//! mail to each of them as they prefer, and signed webhooks to where their organization wants them (`service/notifying`).
//! That is one transaction per event. The relay (`jobs/relay`) sends what is due, each message by itself, with a bound
//! on time and attempts; what cannot be sent waits longer each time, keeps nobody else waiting, and is given up in the
//! end, visibly.
//!
//! An invitation is mailed to its address, whether or not that belongs to somebody. What waits to be sent names the
//! invitation only: the link, which is a secret, is made for the message and stands nowhere.
//!
//! **What it promises.** A notification is made once for each event and person, in the transaction that consumed the
//! event. Messages leave at least once: a process that dies after sending sends again, and the receiver can tell, because
//! a mail keeps its Message-ID and a webhook's message its event id. A dead mail server delays mail and nothing else.
//! Webhooks reach the open internet only, carry a signature, and their secrets are sealed at rest.

pub mod api;
mod http;
pub mod jobs;
pub mod model;
pub mod service;
mod store;

use std::sync::Arc;

use endpoint::{Endpoint, Streams};
use pg::{Db, Wake};

use crate::service::{listening, mail::Mailer, watching::streams};

pub use crate::service::webhook_client::WebhookClient;

/// Where the database says that somebody was told something (their id), or that there is something to send (its channel).
pub(crate) const CHANNEL: &str = "gpuaas_notify";

/// How mail leaves.
pub struct Smtp {
    pub host: String,
    pub port: u16,
    /// `none`, `starttls` or `tls`.
    pub encryption: String,
    pub username: Option<String>,
    pub password: Option<kernel::Secret<String>>,
    /// Whom mail is from: `GPUaaS <no-reply@example.org>`.
    pub from: String,
}

/// What an installation decides.
pub struct Settings {
    /// No mail without it; notifications in the product are made all the same.
    pub smtp: Option<Smtp>,
    /// What links in messages begin with.
    pub public_url: String,
    /// Whether webhooks may go to private and loopback addresses, which is for development.
    pub private_webhooks: bool,
    /// Seals the secrets of webhooks.
    pub sealer: trust::Sealer,
    /// Makes the links in mails that invite.
    pub invitation_links: identity::api::InvitationLinks,
}

/// The domain as the composition root holds it. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Notify {
    db: Db,
    policies: identity::api::Policies,
    settings: Arc<Settings>,
    wake: Option<Wake>,
    streams: Streams,
    listener_streams: Streams,
}

impl Notify {
    pub fn new(db: Db, policies: identity::api::Policies, settings: Settings) -> Self {
        Self {
            db,
            policies,
            settings: Arc::new(settings),
            wake: None,
            streams: streams(),
            listener_streams: listening::streams(),
        }
    }

    /// With the notifications of the database, so that streams and the relay wake at once.
    pub fn listening(mut self, wake: Wake) -> Self {
        self.wake = Some(wake);
        self
    }

    pub fn db(&self) -> &Db {
        &self.db
    }
}

/// Sends messages. Only this holds clients of the network: endpoints and consumers, which work inside transactions, are
/// given a [`Notify`], which has none, so no transaction can wait for a name lookup or a receiver.
#[derive(Clone)]
pub struct Relay {
    notify: Notify,
    http: WebhookClient,
    mailer: Arc<Mailer>,
}

impl Relay {
    pub fn new(notify: Notify, http: WebhookClient) -> Self {
        Self { notify, http, mailer: Arc::default() }
    }
}

/// Every endpoint of the domain.
pub fn endpoints(notify: &Notify) -> Vec<Endpoint> {
    http::endpoints(notify)
}
