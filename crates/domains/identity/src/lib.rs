//! Identity: who people and machines are, which organizations and projects they belong to, what they may
//! do there, which policies hold for them, and the trail of what they did.
//!
//! **How it works.** Authority comes from rows only: memberships, project memberships and platform
//! bindings, with built-in roles that nobody can edit. Each use case (`service/`) loads what it needs
//! inside the request's transaction, asks a pure function (`model/`) whether the step is allowed, writes
//! through `store/`, and leaves the audit target, the events and the cache invalidations in the same
//! transaction. Endpoints (`http/`) only translate.
//!
//! **What it promises.** An organization never loses its last owner and the platform never its last
//! administrator, also under concurrent requests. Nobody gives or takes a role above their own. Secrets
//! (invitation tokens, service-account keys) are shown once and kept as hashes. A revoked session or key
//! and a changed role are announced in the transaction that changes them. A policy value in force is always
//! within its bounds, and can be explained.

pub mod api;
pub mod authn;
mod http;
pub mod issuer;
pub mod jobs;
pub mod model;
pub mod service;
mod store;

use std::sync::Arc;

use endpoint::Endpoint;
use pg::Db;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{model::invitation_link::InvitationLinks, service::policy_cache::Policies};

/// What a client must know to sign in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AuthConfig")]
pub struct AuthInfo {
    /// The OpenID Connect issuer; its discovery document lies under `/.well-known/openid-configuration`.
    pub issuer: String,
    /// The public client that the command line signs in as.
    pub cli_client_id: String,
    /// What tokens must be made for.
    pub audience: String,
}

/// The domain as the composition root holds it. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Identity {
    db: Db,
    policies: Policies,
    auth: Arc<AuthInfo>,
    links: InvitationLinks,
}

impl Identity {
    pub fn new(db: Db, auth: AuthInfo, links: InvitationLinks) -> Self {
        let policies = Policies::new(db.clone());
        Self { db, policies, auth: Arc::new(auth), links }
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    pub fn auth(&self) -> &AuthInfo {
        &self.auth
    }

    /// What invitations are mailed with.
    pub fn links(&self) -> &InvitationLinks {
        &self.links
    }
}

/// Every endpoint of the domain.
pub fn endpoints(identity: Identity) -> Vec<Endpoint> {
    http::endpoints(&identity)
}
