//! Who acts, where, and by what right: what a transaction is opened for.

use kernel::ids::{OrgId, ProjectId};
pub use kernel::principal::ActorKind;
use kernel::{CorrelationId, Granted};
use uuid::Uuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    pub kind: ActorKind,
    /// The user or service account; nothing for the system and for strangers.
    pub id: Option<Uuid>,
    pub role: &'static str,
}

impl Actor {
    pub const ANONYMOUS: Self = Self { kind: ActorKind::Anonymous, id: None, role: "anonymous" };
}

/// Where the work happens. Tenant scopes run behind row-level security.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Across tenants, as `gpuaas_system`.
    Platform,
    /// The acting person's own rows.
    Person,
    Org(OrgId),
    Project(OrgId, ProjectId),
}

impl Scope {
    pub const fn org(self) -> Option<OrgId> {
        match self {
            Self::Platform | Self::Person => None,
            Self::Org(org) | Self::Project(org, _) => Some(org),
        }
    }

    pub const fn project(self) -> Option<ProjectId> {
        match self {
            Self::Project(_, project) => Some(project),
            _ => None,
        }
    }
}

/// Where a request came from; follows the work into audit, outbox and logs.
#[derive(Clone, Debug)]
pub struct Origin {
    pub correlation_id: CorrelationId,
    pub source_ip: Option<String>,
    pub traceparent: Option<String>,
}

impl Origin {
    pub const fn internal(correlation_id: CorrelationId) -> Self {
        Self { correlation_id, source_ip: None, traceparent: None }
    }
}

#[derive(Clone, Copy, Debug)]
enum Right {
    Granted(#[allow(dead_code, reason = "kept for the debug output of a permit")] Granted),
    System(#[allow(dead_code, reason = "kept for the debug output of a permit")] &'static str),
}

/// The right to open a transaction. Made from a checked permission, or by the system for a stated reason.
#[derive(Clone, Debug)]
pub struct Permit {
    pub(crate) actor: Actor,
    pub(crate) scope: Scope,
    pub(crate) origin: Origin,
    #[allow(dead_code, reason = "kept for the debug output of a permit")]
    right: Right,
}

impl Permit {
    pub const fn granted(actor: Actor, scope: Scope, origin: Origin, granted: Granted) -> Self {
        Self { actor, scope, origin, right: Right::Granted(granted) }
    }

    /// The product itself acts, platform-wide. The reason is for the reader of the code and of debug logs.
    pub const fn system(reason: &'static str, origin: Origin) -> Self {
        let actor = Actor { kind: ActorKind::System, id: None, role: "system" };
        Self { actor, scope: Scope::Platform, origin, right: Right::System(reason) }
    }

    /// A node acts, known by its certificate (or by nothing yet, when a token is all it has).
    pub const fn node(reason: &'static str, node: kernel::ids::NodeId, origin: Origin) -> Self {
        let actor = Actor { kind: ActorKind::Node, id: Some(node.uuid()), role: "node" };
        Self { actor, scope: Scope::Platform, origin, right: Right::System(reason) }
    }

    pub const fn actor(&self) -> Actor {
        self.actor
    }

    pub const fn scope(&self) -> Scope {
        self.scope
    }

    pub const fn origin(&self) -> &Origin {
        &self.origin
    }
}
