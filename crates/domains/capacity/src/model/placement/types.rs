//! What placement is asked, what it sees, and what it answers.

use std::collections::BTreeMap;

use kernel::ids::{NodeId, PoolId, SlotId};
pub use kernel::policy::Packing;
use schemars::JsonSchema;
use serde::Serialize;

/// How the request takes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// One whole free node with exactly so many slots.
    Whole { slots: u32 },
    /// So many slots of one node.
    Slots { slots: u32 },
}

impl Take {
    pub const fn slots(self) -> u32 {
        match self {
            Self::Whole { slots } | Self::Slots { slots } => slots,
        }
    }
}

/// What is to be placed: `count` times the same, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub take: Take,
    pub count: u32,
    /// Where: one region, or all that come into question, tried in this order.
    pub regions: Vec<String>,
    pub pool: Option<PoolId>,
    pub labels: BTreeMap<String, String>,
    pub sku: String,
    /// Other sizes that the product comes in, for saying what would fit.
    pub other_sizes: Vec<u32>,
}

/// Which machines whoever installs can install anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installs {
    Every,
    /// Only those that are made of software.
    Simulated,
}

/// A free slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    pub id: SlotId,
    pub index: u32,
    pub numa: Option<i32>,
    pub fabric_vf: Option<String>,
    pub fabric_numa: Option<i32>,
    /// GPUs need a fabric function of their own, on their NUMA node; slots without GPU need none.
    pub needs_fabric: bool,
}

/// A node as placement sees it: of the right kind and model, eligible for the product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub id: NodeId,
    pub region: String,
    pub pool: Option<PoolId>,
    pub labels: BTreeMap<String, String>,
    /// Active and not cordoned.
    pub placeable: bool,
    /// All slots of this kind, whatever their state.
    pub total: u32,
    /// Unused, being cleaned.
    pub cleaning: u32,
    /// Unused, not ready: not approved, sick, or failed to clean.
    pub blocked: u32,
    /// All slots of the node are free.
    pub whole: bool,
    /// The free ones. Empty in an outlook, where only the counts are known.
    pub slots: Vec<SlotView>,
    /// As many as could be sold, were the node placeable.
    pub free: u32,
}

/// Where one member goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub node: NodeId,
    pub region: String,
    /// In the order of their places on the node.
    pub slots: Vec<SlotId>,
}

/// The constraint that binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RefusalReason {
    /// There is nothing of it in the region, or all is in use.
    NoCapacityInRegion,
    /// Enough is free, but not on one node.
    NoSingleNodeFits,
    /// It would fit if nodes or slots that are offline, cordoned, sick or being cleaned were ready.
    ReadinessBlocks,
    /// Machines are to be installed anew after their tenants, and nothing can do that to those that are free.
    NotReimageable,
    Quota,
    /// The balance does not cover the hold.
    Funds,
    /// The balance is in another currency than the price.
    Currency,
    /// The budget of the project is used up.
    BudgetBlocked,
    /// The spend cap of the service account does not cover it, or the account has neither a cap nor a budget of the project
    /// that releases.
    SpendCap,
    /// Nobody could log in.
    NoSshKey,
}

/// The smallest change of the request that would succeed now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
#[schemars(rename = "PlacementChange")]
pub enum Change {
    /// The same in another region.
    Region { region: String },
    /// Fewer members.
    Count { count: u32 },
    /// A smaller size, in the wanted region.
    Gpus { gpus: u32 },
    /// A smaller size, elsewhere.
    GpusAndRegion { gpus: u32, region: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PlacementRefusal")]
pub struct Refusal {
    pub reason: RefusalReason,
    pub message: String,
    /// Nothing known would succeed when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Change")]
    pub smallest_change: Option<Change>,
    /// True when slots that are being cleaned would be enough: soon, as far as is known.
    pub after_cleaning: bool,
}
