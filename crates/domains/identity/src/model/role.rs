//! The roles of the domain, and how far somebody's authority over other people's roles reaches.

use kernel::{Code, Problem, Role};

pub use events::identity::{MemberRole, PlatformRole};

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
                "Only an owner can grant or revoke the role owner.",
            ));
        }
        let text = format!("The role {} is above your own role.", role.name());
        Err(Problem::new(Code::InsufficientPermissions, text))
    }
}
