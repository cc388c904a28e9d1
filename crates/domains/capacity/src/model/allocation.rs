//! An allocation and its states.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Problem,
    ids::{AllocationId, GroupId, NodeId, OrgId, ProjectId, SlotId, UserId},
    policy::IsolationModel,
    principal::PrincipalKind,
};
use lifecycle::{Lifecycle as _, Named as _};
use node_proto::catalog::Isolation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{launch_warning::LaunchWarning, sku::PriceUnit};

lifecycle::lifecycle! {
    /// From the request to the end. `failed` means that a launch came to nothing, `released` that somebody wanted the
    /// end; `release_failed` that the capacity stays fenced until the release was tried again.
    AllocationLifecycle = "allocation", initial Requested;
    states AllocationState {
        Requested = "requested", Provisioning = "provisioning", Active = "active", Releasing = "releasing",
        Released = "released", ReleaseFailed = "release_failed", Failed = "failed",
    }
    events AllocationEvent {
        Provision = "provision", Activate = "activate", Fail = "fail", Release = "release",
        Released = "released", ReleaseFailed = "release_failed", RetryRelease = "retry_release",
    }
    Requested on Provision => Provisioning;
    Requested on Fail => Failed;
    Requested on Released => Released;
    Provisioning on Activate => Active;
    Provisioning on Fail => Failed;
    Provisioning on Released => Released;
    Active on Release => Releasing;
    Releasing on Released => Released;
    Releasing on ReleaseFailed => ReleaseFailed;
    ReleaseFailed on RetryRelease => Releasing;
}

impl AllocationState {
    /// Nothing will happen to it any more, and it holds nothing.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Released | Self::Failed)
    }

    /// On its way somewhere by itself.
    pub const fn is_moving(self) -> bool {
        matches!(self, Self::Requested | Self::Provisioning | Self::Releasing)
    }
}

lifecycle::named_enum! {
    /// What a machine is made of and how it is sold.
    Shape = "shape" as "SkuShape" { Baremetal = "baremetal", GpuSlice = "gpu_slice", CpuVm = "cpu_vm" }
}

/// Whether the tenant is root on the host itself, where the agent and the devices are. In a virtual machine they are root
/// among their own devices only.
pub fn tenant_is_root(shape: Shape, isolation: IsolationModel) -> bool {
    shape == Shape::Baremetal && Isolation::from(isolation).gives_sudo()
}

pub use events::capacity::ReleaseCause;

/// The size of a machine, as it was when it was sold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AllocationProfile")]
pub struct ProfileSnapshot {
    pub name: String,
    pub gpus: i32,
    /// None: all that the machine has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<i64>,
    /// For machines that are made from an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Everything about an allocation, for our own use. Tenants get an [`AllocationView`].
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    pub id: AllocationId,
    pub org_id: OrgId,
    pub project_id: ProjectId,
    pub group_id: Option<GroupId>,
    pub name: String,
    pub creator_kind: PrincipalKind,
    pub creator_id: Uuid,
    pub sku: String,
    pub shape: Shape,
    pub region: String,
    pub gpus: i32,
    pub profile: ProfileSnapshot,
    pub price_unit: PriceUnit,
    pub unit_price_minor: i64,
    pub currency: String,
    pub isolation_model: IsolationModel,
    pub node_id: NodeId,
    pub slot_ids: Vec<SlotId>,
    pub username: String,
    pub uid: i32,
    pub ssh_host: String,
    pub ssh_port: i32,
    /// As the node reported them; empty when it did not.
    pub ssh_host_keys: Vec<String>,
    pub work_order: Vec<u8>,
    pub access_version: i64,
    pub installed_access: i64,
    pub access_order: Option<Vec<u8>>,
    pub restart_order: Option<Vec<u8>>,
    pub state: AllocationState,
    pub state_reason: String,
    pub failure_code: Option<String>,
    pub state_changed_at: DateTime<Utc>,
    pub release_cause: Option<ReleaseCause>,
    pub active_at: Option<DateTime<Utc>>,
    pub meter_opened_at: Option<DateTime<Utc>>,
    pub meter_closed_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// What an allocation or a group is called when nobody chose a name: the end of the name is the end of the id, by which
/// people find it too. Only as good as chance; that live names differ is an index.
pub fn default_name(sku: &str, id: uuid::Uuid) -> String {
    let id = id.simple().to_string();
    format!("{sku}-{}", &id[id.len() - 8..])
}

impl Allocation {
    pub fn tenant_is_root(&self) -> bool {
        tenant_is_root(self.shape, self.isolation_model)
    }

    /// Where `event` leads from here.
    pub fn after(&self, event: AllocationEvent) -> Result<AllocationState, Problem> {
        AllocationLifecycle::next(self.state, event).ok_or_else(|| {
            let text =
                format!("The allocation is {}, which does not allow {}.", self.state.name(), event.name());
            Problem::new(Code::InvalidTransition, text)
                .detail("state", self.state.name())
                .detail("event", event.name())
        })
    }

    pub fn check_version(&self, if_match: Option<i64>) -> Result<(), Problem> {
        match if_match {
            Some(version) if version != self.version => Err(Problem::version_conflict(self.version)),
            _ => Ok(()),
        }
    }

    pub fn creator_user(&self) -> Option<UserId> {
        (self.creator_kind == PrincipalKind::User).then(|| UserId::from(self.creator_id))
    }

    /// Of the workflow that provisions or releases it: there is one at a time. And of the work that it orders.
    pub fn subject(&self) -> String {
        self.id.to_string()
    }

    /// Of the workflow that restarts the machine.
    pub fn restart_subject(&self) -> String {
        format!("{}/restart", self.id)
    }

    /// Of the workflow that brings its key set to the machine.
    pub fn access_subject(&self) -> String {
        format!("{}/access", self.id)
    }
}

/// How to reach the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllocationConnection")]
pub struct Connection {
    pub ssh_host: String,
    pub ssh_port: i32,
    pub username: String,
    /// The public keys of the machine's SSH server, as the machine itself reported them: whoever connects accepts no others.
    /// Absent where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
    /// True when there is no machine behind it: SSH leads nowhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

/// What its project may know: nothing about nodes and slots.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Allocation")]
pub struct AllocationView {
    pub id: AllocationId,
    pub project_id: ProjectId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<GroupId>,
    pub name: String,
    pub creator_kind: PrincipalKind,
    pub creator_id: String,
    pub sku: String,
    pub shape: Shape,
    pub region: String,
    pub gpus: i32,
    pub profile: ProfileSnapshot,
    pub price_unit: PriceUnit,
    pub unit_price_minor: i64,
    pub currency: String,
    pub isolation_model: IsolationModel,
    pub state: AllocationState,
    pub state_reason: String,
    /// Why it failed, when it did: a stable code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
    pub state_changed_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_cause: Option<ReleaseCause>,
    /// While it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Connection")]
    pub connection: Option<Connection>,
    /// Whether the machine is simulated; told where allocations are listed, shown or followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub simulated: Option<bool>,
    /// False while the machine does not have the newest key set yet.
    pub access_current: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter_opened_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter_closed_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// What whoever launches it should know; in the answer to the launch only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<LaunchWarning>,
}

impl AllocationView {
    /// With whether its machine is simulated.
    pub fn with_simulated(mut self, simulated: bool) -> Self {
        self.simulated = Some(simulated);
        if let Some(connection) = &mut self.connection {
            connection.simulated = simulated;
        }
        self
    }
}

impl From<Allocation> for AllocationView {
    fn from(a: Allocation) -> Self {
        let connection = (a.state == AllocationState::Active).then(|| Connection {
            ssh_host: a.ssh_host.clone(),
            ssh_port: a.ssh_port,
            username: a.username.clone(),
            host_keys: a.ssh_host_keys.clone(),
            simulated: false,
        });
        let creator_id = match a.creator_user() {
            Some(user) => user.to_string(),
            None => kernel::ids::ServiceAccountId::from(a.creator_id).to_string(),
        };
        Self {
            id: a.id,
            project_id: a.project_id,
            group_id: a.group_id,
            name: a.name,
            creator_kind: a.creator_kind,
            creator_id,
            sku: a.sku,
            shape: a.shape,
            region: a.region,
            gpus: a.gpus,
            profile: a.profile,
            price_unit: a.price_unit,
            unit_price_minor: a.unit_price_minor,
            currency: a.currency,
            isolation_model: a.isolation_model,
            state: a.state,
            state_reason: a.state_reason,
            failure_code: a.failure_code,
            state_changed_at: a.state_changed_at,
            release_cause: a.release_cause,
            connection,
            simulated: None,
            access_current: a.installed_access >= a.access_version,
            active_at: a.active_at,
            meter_opened_at: a.meter_opened_at,
            meter_closed_at: a.meter_closed_at,
            finished_at: a.finished_at,
            version: a.version,
            created_at: a.created_at,
            updated_at: a.updated_at,
            warnings: Vec::new(),
        }
    }
}

/// Which allocations are listed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    /// Everything of one project, or of the platform.
    pub project: Option<ProjectId>,
    pub state: Option<AllocationState>,
    /// Only what is not over.
    pub live: bool,
    pub group: Option<GroupId>,
    pub node: Option<NodeId>,
    pub org: Option<OrgId>,
    pub sku: Option<&'a str>,
}
