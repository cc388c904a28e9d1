//! Billing: what is used becomes what is owed, in a ledger that can be proven right.
//!
//! **How it works.** A launch sets money aside and makes a meter in its own transaction (`service/holds`); the meter
//! opens when the machine is ready and closes with the release. Every window the worker turns what all meters ran into
//! usage and ledger lines, a batch of organizations in one statement (`service/accrual`, `meters_accrue.sql`).
//! Whoever else moves money posts (`service/posting`). Each posting is a link of its organization's hash chain
//! and carries the balances after it, so a balance is read from one row, and the state of an organization
//! (`model/balance`) follows from it in the same transaction.
//!
//! **What it promises.** The lines of a posting sum to zero and nothing in the ledger is ever changed or removed: the
//! database refuses it to every role that services use. What is posted for a meter is the floor of its exact cost,
//! whatever the windows were. Each window of a meter is charged once, whoever crashes, races or steps the clock. One
//! changed byte is found and named by whoever checks a chain, in the product or on an export (`kernel::ledger`).

pub mod api;
mod http;
pub mod jobs;
pub mod model;
pub mod service;
mod store;

use endpoint::Endpoint;
use identity::api::Policies;
use kernel::Secret;
use pg::Db;

use model::particulars::{Seller, TaxRule};

/// What an installation decides.
pub struct Settings {
    /// ISO 4217; the currency of every new ledger.
    pub currency: String,
    /// Signs the daily heads of the chains. It is not in the database, so who can write there cannot sign.
    pub checkpoint_seed: Secret<[u8; 32]>,
}

/// The domain as the composition root holds it. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Billing {
    db: Db,
    policies: Policies,
    settings: std::sync::Arc<Settings>,
    former_keys: std::sync::Arc<[Vec<u8>]>,
    names: std::sync::Arc<dyn service::resource_names::ResourceNames>,
    seller: std::sync::Arc<(Option<Seller>, Option<TaxRule>)>,
}

impl Billing {
    pub fn new(db: Db, policies: Policies, settings: Settings) -> Self {
        let names = std::sync::Arc::new(service::resource_names::Unnamed);
        Self {
            db,
            policies,
            settings: std::sync::Arc::new(settings),
            former_keys: [].into(),
            names,
            seller: Default::default(),
        }
    }

    /// Statements name this seller and show this tax; neither when the installation configures none.
    pub fn with_seller(mut self, seller: Option<Seller>, tax: Option<TaxRule>) -> Self {
        self.seller = std::sync::Arc::new((seller, tax));
        self
    }

    /// Shows allocations and products by these names.
    pub fn with_names(mut self, names: std::sync::Arc<dyn service::resource_names::ResourceNames>) -> Self {
        self.names = names;
        self
    }

    /// Trusts checkpoints that were signed with these public keys as well: what signed before the current key did.
    pub fn with_former_checkpoint_keys(mut self, public_keys: Vec<Vec<u8>>) -> Self {
        self.former_keys = public_keys.into();
        self
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The currency of new ledgers.
    pub fn currency(&self) -> &str {
        &self.settings.currency
    }
}

/// Every endpoint of the domain.
pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    http::endpoints(billing)
}
