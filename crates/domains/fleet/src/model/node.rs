//! A node and its states.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Problem,
    ids::{NodeId, PoolId},
    principal::ActorKind,
};
use lifecycle::{Lifecycle as _, Named as _};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::{
    contact::{Contact, ContactState},
    occupant::NodeOccupants,
    onboarding::Onboarding,
    slot::SlotCount,
    text::Labels,
};

lifecycle::lifecycle! {
    /// Offline only says that nobody has heard of the node: it stops new placement and nothing else.
    NodeLifecycle = "node", initial BootstrapIssued;
    states NodeState {
        BootstrapIssued = "bootstrap_issued", Enrolling = "enrolling", Active = "active", Offline = "offline",
        Quarantined = "quarantined", Draining = "draining", Retired = "retired", Removing = "removing",
        Deleted = "deleted",
    }
    events NodeEvent {
        Enroll = "enroll", Activate = "activate", LoseContact = "lose_contact", RegainContact = "regain_contact",
        Quarantine = "quarantine", Release = "release", Drain = "drain", Undrain = "undrain", Retire = "retire",
        Remove = "remove", Delete = "delete",
    }
    BootstrapIssued on Enroll => Enrolling;
    BootstrapIssued on Remove => Removing;
    Enrolling on Activate => Active;
    Enrolling on Quarantine => Quarantined;
    Enrolling on Remove => Removing;
    Active on LoseContact => Offline;
    Offline on RegainContact => Active;
    Active on Quarantine => Quarantined;
    Offline on Quarantine => Quarantined;
    Quarantined on Release => Active;
    Quarantined on Drain => Draining;
    Active on Drain => Draining;
    Offline on Drain => Draining;
    Draining on Undrain => Active;
    Draining on Retire => Retired;
    Retired on Remove => Removing;
    Removing on Delete => Deleted;
}

impl NodeState {
    /// Enrolled, and meant to do work or to be looked at: its agent may be given tasks.
    pub const fn takes_tasks(self) -> bool {
        match self {
            Self::Enrolling | Self::Active | Self::Offline | Self::Quarantined | Self::Draining => true,
            Self::BootstrapIssued | Self::Retired | Self::Removing | Self::Deleted => false,
        }
    }

    /// May hold a certificate, and so get a new one.
    pub const fn is_enrolled(self) -> bool {
        self.takes_tasks() || matches!(self, Self::Retired)
    }
}

/// What stands in the way of selling a part of a machine, and not in the way of selling the whole.
const SLICES_ONLY: [&str; 7] = [
    "iommu_disabled",
    "iommu_group_missing",
    "iommu_group_shared",
    "driver_bound",
    "no_nvme",
    "no_fabric_vf",
    "numa_unknown",
];

lifecycle::named_enum! {
    /// What a node is sold as.
    #[derive(Default)]
    Serves = "way to serve" as "NodeServes" {
        /// Anything that its slots fit.
        #[default]
        Any = "any",
        /// Only whole, with the drivers that it has.
        Baremetal = "baremetal",
    }
}

impl Serves {
    /// Whether what has this code stands in the way of selling it so.
    pub fn is_blocked_by(self, code: &str) -> bool {
        self == Self::Any || !SLICES_ONLY.contains(&code)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Node {
    pub id: NodeId,
    pub hostname: String,
    pub region: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<PoolId>,
    pub labels: Labels,
    /// The products that this node may serve; none named means any that its slots fit.
    pub sku_eligibility: Vec<String>,
    /// What it is sold as: `any` that its slots fit, or only whole (`baremetal`), with the drivers that it has.
    pub serves: Serves,
    /// Made of software: for tests and demonstrations.
    pub simulated: bool,
    pub state: NodeState,
    pub state_reason: String,
    pub state_changed_at: DateTime<Utc>,
    /// While there is one, no new work is placed here, whatever the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordon_reason: Option<String>,
    /// Where users of the machine reach it by SSH, when that is not its host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub ssh_host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16")]
    pub ssh_port: Option<u16>,
    pub desired_version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enrolled_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Node {
    /// Where `event` leads from here.
    pub fn after(&self, event: NodeEvent) -> Result<NodeState, Problem> {
        NodeLifecycle::next(self.state, event).ok_or_else(|| {
            let text = format!("The node is {}, which does not allow {}.", self.state, event.name());
            Problem::new(Code::InvalidTransition, text)
                .detail("state", self.state.name())
                .detail("event", event.name())
        })
    }

    /// Work can be queued for it.
    pub fn check_takes_tasks(&self) -> Result<(), Problem> {
        if self.state.takes_tasks() {
            return Ok(());
        }
        let text = format!("The node is {} and accepts no tasks.", self.state);
        Err(Problem::new(Code::InvalidTransition, text).detail("state", self.state.name()))
    }

    pub fn check_version(&self, if_match: Option<i64>) -> Result<(), Problem> {
        match if_match {
            Some(version) if version != self.version => Err(Problem::version_conflict(self.version)),
            _ => Ok(()),
        }
    }
}

/// A node in a list: with what is asked of it most.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeSummary {
    #[serde(flatten)]
    pub node: Node,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expires_at: Option<DateTime<Utc>>,
    pub open_findings: i64,
    pub slots_total: i64,
    /// Those that can be sold now; none when the node takes no new allocations.
    pub slots_available: i64,
}

/// What stands in the way of selling a node or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReadinessBlocker {
    pub code: String,
    pub subject: String,
    pub message: String,
}

impl From<node_proto::catalog::Blocker> for ReadinessBlocker {
    fn from(blocker: node_proto::catalog::Blocker) -> Self {
        Self { code: blocker.code, subject: blocker.subject, message: blocker.message }
    }
}

/// Everything about one node.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeDetail {
    #[serde(flatten)]
    pub node: Node,
    pub contact_state: ContactState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Contact")]
    pub contact: Option<Contact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Onboarding")]
    pub onboarding: Option<Onboarding>,
    pub slots: Vec<SlotCount>,
    /// Of the whole node and of its slots.
    pub blockers: Vec<ReadinessBlocker>,
    pub open_findings: i64,
    /// Tasks that were not finished yet.
    pub open_tasks: i64,
    /// Whose allocations are on it.
    pub occupants: NodeOccupants,
}

/// One change of a node's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NodeHistoryEntry")]
pub struct HistoryEntry {
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub from_state: NodeState,
    pub to_state: NodeState,
    pub event: String,
    pub reason: String,
    pub actor_kind: ActorKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<Uuid>,
    pub correlation_id: Uuid,
}
