//! What the fleet tells the rest of the product. Consumers read these from the stream NODES.

use chrono::{DateTime, Utc};
use kernel::ids::{AuthorityId, FindingId, NodeId, SlotId};
use serde_json::Value;

lifecycle::named_enum! {
    HealthAction = "health action" {
        /// Kept, nothing else.
        Observe = "observe",
        /// Kept and told.
        Warn = "warn",
        /// No new work is placed on the node.
        Cordon = "cordon",
        /// The slot, or the node, is taken out of service.
        Quarantine = "quarantine",
        /// Cordoned, and whoever used it is owed a credit.
        Credit = "credit",
    }
}

lifecycle::named_enum! {
    AuthorityState = "authority state" {
        Staged = "staged", Active = "active", Grace = "grace", Retired = "retired", Revoked = "revoked",
    }
}

lifecycle::named_enum! {
    SignerState = "signer state" {
        Staged = "staged", Active = "active", Grace = "grace", Retired = "retired", Revoked = "revoked",
    }
}

lifecycle::named_columns! { AuthorityState, HealthAction, SignerState }

crate::declare::events! { Nodes;
    NodeEnrolled = "nodes.enrolled", "A node enrolled for the first time." { node_id: NodeId, region: String, reason: String }
    NodeDiscovered = "nodes.discovered", "A discovery of a node succeeded; its slots may wait for approval." { node_id: NodeId, slots: u32, blocked: u32 }
    NodeDoubted = "nodes.doubted", "An operation failed on a node that should succeed; the node is probed." { node_id: NodeId }
    NodeActivated = "nodes.activated", "A node may serve tenants." { node_id: NodeId, region: String, reason: String }
    NodeOffline = "nodes.offline", "A node missed its heartbeats." { node_id: NodeId, region: String, reason: String }
    NodeRecovered = "nodes.recovered", "A node reports again, or left quarantine." { node_id: NodeId, region: String, reason: String }
    NodeCertificateEnding = "nodes.certificate_ending", "A node's certificate expires soon and is not being renewed." { node_id: NodeId, region: String, ends_at: DateTime<Utc> }
    NodeQuarantined = "nodes.quarantined", "A node was quarantined because of a finding or by an operator." { node_id: NodeId, region: String, reason: String }
    NodeDraining = "nodes.draining", "A node accepts no new allocations and waits for the running ones to end." { node_id: NodeId, region: String, reason: String }
    NodeRetired = "nodes.retired", "A node left service." { node_id: NodeId, region: String, reason: String }
    NodeRemoving = "nodes.removing", "A node is being removed: its certificates and tokens are revoked." { node_id: NodeId, region: String, reason: String }
    NodeDeleted = "nodes.deleted", "A node is no longer part of the fleet." { node_id: NodeId, region: String, reason: String }
    FindingOpened = "nodes.finding_opened", "A node reported a new health finding." { finding_id: FindingId, node_id: NodeId, slot_id: Option<SlotId>, code: String, subject: String, action: HealthAction, message: String }
    CreditDue = "nodes.credit_due", "The tenant of this part of a node is due a credit from `since` on." { finding_id: FindingId, node_id: NodeId, slot_id: Option<SlotId>, code: String, subject: String, evidence: Value, since: DateTime<Utc> }
    CreditEnded = "nodes.credit_ended", "The fault of a credit has ended: from `at` on this part of a node is charged again." { finding_id: FindingId, node_id: NodeId, slot_id: Option<SlotId>, at: DateTime<Utc> }
    AuthorityChanged = "nodes.authority_changed", "A generation of the certificate authority was staged, activated, retired or revoked." { authority_id: AuthorityId, state: AuthorityState, reason: String }
    SignerChanged = "nodes.signer_changed", "A task signer was staged, activated, retired or revoked." { signer_version: u32, state: SignerState, keyset_serial: u64, reason: String }
}
