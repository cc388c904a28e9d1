//! Payments: money that comes in, goes back, or is disputed.
//!
//! **How it works.** A top-up is a checkout at a provider ([`Provider`]: Stripe, the simulated one that speaks its wire
//! format, or none). The provider tells by webhook what became of it: the raw message is checked against its signature
//! and stored before anything is done with it (`service/intake`), and processed from there in the transaction of its
//! effect (`service/processing`). Refunds go to the card within the policy's window and become credit after it;
//! disputed money is frozen. Each day the provider's own list is compared with ours.
//!
//! **What it promises.** Each payment is credited exactly once, whatever is duplicated, reordered, lost or killed: the
//! ledger takes a reference once. A message with a bad signature leaves nothing but a count. Nobody gets back more than
//! was paid.

pub mod api;
mod http;
pub mod jobs;
pub mod model;
pub mod provider;
pub mod return_page;
pub mod service;
mod store;
pub mod webhook;

use std::sync::Arc;

use billing::api::Billing;
use endpoint::{Endpoint, PolicySource};
use kernel::Secret;
use pg::{Db, Wake};

pub use provider::Provider;

/// What an installation decides.
pub struct Settings {
    /// Secrets that messages may be signed with; two while one is replaced by another.
    pub webhook_secrets: Vec<Secret<String>>,
    /// Where people come back to after a checkout.
    pub public_url: String,
}

/// The domain as the composition root holds it. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Payments {
    db: Db,
    billing: Billing,
    policies: Arc<dyn PolicySource>,
    provider: Arc<dyn Provider>,
    settings: Arc<Settings>,
    wake: Option<Wake>,
}

/// Where the database tells of new work.
pub(crate) const CHANNEL: &str = "gpuaas_webhooks";

impl Payments {
    pub fn new(
        db: Db,
        billing: Billing,
        policies: Arc<dyn PolicySource>,
        provider: Arc<dyn Provider>,
        settings: Settings,
    ) -> Self {
        Self { db, billing, policies, provider, settings: Arc::new(settings), wake: None }
    }

    /// With the notifications of the database, so that waiting for something ends at once when it comes.
    pub fn listening(mut self, wake: Wake) -> Self {
        self.wake = Some(wake);
        self
    }

    pub fn db(&self) -> &Db {
        &self.db
    }
}

/// Every endpoint of the domain.
pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    http::endpoints(payments)
}
