//! The roles of the domain, and how far somebody's authority over other people's roles reaches.

use kernel::{Code, Problem, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

lifecycle::named_enum! {
    /// A role in an organization or in a project, from the least to the most.
    MemberRole = "member role" { Viewer = "viewer", Member = "member", Admin = "admin", Owner = "owner" }
}

impl MemberRole {
    pub const fn in_org(self) -> Role {
        match self {
            Self::Viewer => Role::OrgViewer,
            Self::Member => Role::OrgMember,
            Self::Admin => Role::OrgAdmin,
            Self::Owner => Role::OrgOwner,
        }
    }

    pub const fn in_project(self) -> Role {
        match self {
            Self::Viewer => Role::ProjectViewer,
            Self::Member => Role::ProjectMember,
            Self::Admin => Role::ProjectAdmin,
            Self::Owner => Role::ProjectOwner,
        }
    }

    /// The other way round: what a held role is called among members of its place.
    pub const fn of(role: Role) -> Option<Self> {
        match role {
            Role::OrgViewer | Role::ProjectViewer => Some(Self::Viewer),
            Role::OrgMember | Role::ProjectMember => Some(Self::Member),
            Role::OrgAdmin | Role::ProjectAdmin => Some(Self::Admin),
            Role::OrgOwner | Role::ProjectOwner => Some(Self::Owner),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PlatformRole {
    PlatformAdmin,
    PlatformOps,
    PlatformAuditor,
}

impl PlatformRole {
    pub const ALL: [Self; 3] = [Self::PlatformAdmin, Self::PlatformOps, Self::PlatformAuditor];

    pub const fn role(self) -> Role {
        match self {
            Self::PlatformAdmin => Role::PlatformAdmin,
            Self::PlatformOps => Role::PlatformOps,
            Self::PlatformAuditor => Role::PlatformAuditor,
        }
    }

    pub const fn name(self) -> &'static str {
        self.role().name()
    }

    /// Reads a stored name; a binding that names no role grants nothing.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    pub fn of(role: Role) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.role() == role)
    }
}

/// How far somebody reaches over the roles of others: up to and including this role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority(MemberRole);

impl Authority {
    pub fn in_org(roles: &[Role]) -> Self {
        Self::highest(roles, |role| match role {
            Role::PlatformAdmin | Role::OrgOwner => MemberRole::Owner,
            Role::OrgAdmin => MemberRole::Admin,
            _ => MemberRole::Viewer,
        })
    }

    /// Whoever administers the organization stands above every role of its projects.
    pub fn in_project(roles: &[Role]) -> Self {
        Self::highest(roles, |role| match role {
            Role::PlatformAdmin | Role::OrgOwner | Role::OrgAdmin | Role::ProjectOwner => MemberRole::Owner,
            Role::ProjectAdmin => MemberRole::Admin,
            _ => MemberRole::Viewer,
        })
    }

    fn highest(roles: &[Role], reach: impl Fn(Role) -> MemberRole) -> Self {
        Self(roles.iter().map(|role| reach(*role)).max().unwrap_or(MemberRole::Viewer))
    }

    /// May this person give `role` to, or take it from, somebody?
    pub fn reaches(self, role: MemberRole) -> Result<(), Problem> {
        if role <= self.0 {
            return Ok(());
        }
        if role == MemberRole::Owner {
            return Err(Problem::new(
                Code::OwnershipRequired,
                "Only an owner may give or take the role owner.",
            ));
        }
        let text = format!("Your own role does not reach the role {}.", role.name());
        Err(Problem::new(Code::InsufficientPermissions, text))
    }
}
