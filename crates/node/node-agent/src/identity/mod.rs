//! Who the node is, and whom it believes.
//!
//! A node joins with a token that an operator hands over: the token says which node this is, the digests that
//! come with it say which control plane is the right one. What it gets is a certificate for a key that never
//! leaves the node, the roots, and the list of signers. A node whose certificate has expired joins once more,
//! with a repair token; nothing else brings it back.

mod enroll;
mod keys;
mod store;
mod trust;

use std::{io, path::PathBuf};

use chrono::{DateTime, Utc};
use kernel::{Ambient, ids::NodeId};
use node_proto::{KeysetError, contract::JoinInfo};

pub use enroll::{Pins, enroll};
pub use keys::{Certified, FreshKey};
pub use store::{FileStore, IdentityStore, MemoryStore};
pub use trust::{StoredTrust, TrustInForce};

use crate::{
    client::CallError,
    transport::{TlsError, TransportError, client_config},
};

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("a key could not be made: {0}")]
    Key(String),
    #[error("the node's certificate cannot be used: {0}")]
    Certificate(String),
    #[error("what the control plane says to believe is refused: {0}")]
    Trust(String),
    #[error(transparent)]
    Keyset(#[from] KeysetError),
    #[error("{path}: {error}")]
    Store { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Join(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What a node says about itself.
#[derive(Clone, Debug)]
pub struct Facts {
    pub hostname: String,
    pub agent_version: String,
    /// Differs after every boot.
    pub boot_id: String,
    pub machine_id: String,
}

/// A node that has joined.
#[derive(Clone)]
pub struct Identity {
    pub join: JoinInfo,
    pub certified: Certified,
    pub trust: TrustInForce,
}

impl Identity {
    pub const fn node_id(&self) -> NodeId {
        self.join.node_id
    }

    pub const fn expires_at(&self) -> DateTime<Utc> {
        self.certified.not_after
    }

    pub fn tls(&self, ambient: &Ambient) -> Result<std::sync::Arc<rustls::ClientConfig>, TlsError> {
        client_config(ambient, &self.trust.believed(), Some(&self.certified.pair))
    }
}
