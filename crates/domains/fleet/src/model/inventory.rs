//! What a node says is in use on it, and what its slots are made of.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, SlotId};
use node_proto::contract::Inventory;

use super::{
    node::NodeState,
    slot::{SlotKind, SlotState},
};

/// What a node last said.
#[derive(Clone, Debug)]
pub struct NodeInventory {
    pub node_id: NodeId,
    pub state: NodeState,
    /// When it said so; nothing while it has never been heard of.
    pub last_seen_at: Option<DateTime<Utc>>,
    pub inventory: Inventory,
}

/// A slot with its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotFacts {
    pub id: SlotId,
    pub node_id: NodeId,
    pub slot_index: i32,
    pub kind: SlotKind,
    pub state: SlotState,
    pub pci_address: Option<String>,
    pub nvme_device: Option<String>,
    pub fabric_vf: Option<String>,
    pub numa_node: Option<i32>,
    pub cleanup_reason: Option<String>,
}
