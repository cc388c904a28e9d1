//! What changes of trust tell the rest of the product.

use bus::asyncapi::EventDoc;
use kernel::{Event, Stream, ids::AuthorityId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{authority::AuthorityState, signer::SignerState};

/// A generation of the certificate authority has a new state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuthorityChanged {
    pub authority_id: AuthorityId,
    pub state: AuthorityState,
    pub reason: String,
}

impl Event for AuthorityChanged {
    const TYPE: &'static str = "nodes.authority_changed";
    const STREAM: Stream = Stream::Nodes;
    const SUMMARY: &'static str =
        "A generation of the certificate authority was staged, activated, retired or revoked.";
}

/// A signer has a new state, and there is a new list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignerChanged {
    pub signer_version: u32,
    pub state: SignerState,
    pub keyset_serial: u64,
    pub reason: String,
}

impl Event for SignerChanged {
    const TYPE: &'static str = "nodes.signer_changed";
    const STREAM: Stream = Stream::Nodes;
    const SUMMARY: &'static str = "A key that signs work was staged, activated, retired or revoked.";
}

pub fn docs() -> Vec<EventDoc> {
    vec![EventDoc::of::<AuthorityChanged>(), EventDoc::of::<SignerChanged>()]
}
