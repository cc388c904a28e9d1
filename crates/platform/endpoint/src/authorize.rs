//! Scope and permission: resolved once, here, before any handler runs.

use kernel::{
    Code, Failure, Granted, PermissionSet, Problem, Role,
    ids::{OrgId, ProjectId},
    principal::PrincipalId,
};
use pg::{Actor, Scope};

use crate::{
    caller::{Caller, Directory},
    declare::{Declaration, ScopeKind},
    missing_role::missing_role,
};

/// What a handler may know of the caller. Only the pipeline makes one.
#[derive(Clone, Debug)]
pub struct Access {
    caller: Option<Caller>,
    scope: Scope,
    permissions: PermissionSet,
    roles: Vec<Role>,
}

impl Access {
    pub(crate) fn public() -> Self {
        Self { caller: None, scope: Scope::Person, permissions: PermissionSet::EMPTY, roles: Vec::new() }
    }

    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// The signed-in person, where a machine cannot stand in.
    pub fn user(&self) -> Result<kernel::ids::UserId, Problem> {
        self.caller.as_ref().and_then(Caller::user).ok_or_else(|| {
            Problem::new(Code::InsufficientPermissions, "Only a user can do this, not a service account.")
        })
    }

    /// Whoever is signed in, a person or a machine.
    pub fn principal(&self) -> Result<PrincipalId, Problem> {
        let caller = self.caller.as_ref().ok_or_else(|| Problem::from_code(Code::TokenMissing))?;
        Ok(caller.principal())
    }

    pub fn org(&self) -> Result<OrgId, Problem> {
        self.scope.org().ok_or_else(|| Problem::not_found("organization"))
    }

    pub fn project(&self) -> Result<ProjectId, Problem> {
        self.scope.project().ok_or_else(|| Problem::not_found("project"))
    }

    /// Everything the caller may do in this scope.
    pub fn permissions(&self) -> PermissionSet {
        self.permissions
    }

    pub fn roles(&self) -> &[Role] {
        &self.roles
    }
}

pub(crate) struct Decision {
    pub access: Access,
    pub actor: Actor,
    pub scope: Scope,
    pub granted: Granted,
}

/// A refusal, with the scope whose audit chain it belongs to.
pub(crate) struct Refusal {
    pub problem: Failure,
    pub scope: Scope,
}

fn refuse(problem: Problem, scope: Scope) -> Refusal {
    Refusal { problem: problem.into(), scope }
}

/// Roles held in a scope, and whether the organization is suspended.
struct HeldRoles {
    scope: Scope,
    roles: Vec<Role>,
    suspended: bool,
}

pub(crate) async fn decide(
    declaration: &Declaration,
    caller: &Caller,
    path: &[(String, String)],
    directory: &dyn Directory,
) -> Result<Decision, Refusal> {
    let held = roles_held(declaration.scope, caller, path, directory).await?;
    let full = union(held.roles.iter().copied());
    let permissions = if held.suspended {
        let platform = union(held.roles.iter().copied().filter(|r| is_platform(*r)));
        full.reads_only().union(platform)
    } else {
        full
    };
    let Some(permission) = declaration.permission else {
        return Err(refuse(Problem::from_code(Code::InsufficientPermissions), held.scope));
    };
    let Some(granted) = permissions.authorize(permission) else {
        let code = if full.holds(permission) {
            Code::TenantSuspended
        } else if declaration.scope == ScopeKind::Platform && held.roles.is_empty() {
            Code::AdminRequired
        } else {
            Code::InsufficientPermissions
        };
        let problem = match code {
            Code::TenantSuspended => Problem::from_code(code).detail("permission", permission.name()),
            _ => missing_role(code, declaration.scope, permission, &held.roles),
        };
        return Err(refuse(problem, held.scope));
    };
    let role = held.roles.iter().find(|r| r.permissions().holds(permission)).map_or("none", |r| r.name());
    Ok(Decision {
        actor: caller.actor(role),
        scope: held.scope,
        granted,
        access: Access { caller: Some(caller.clone()), scope: held.scope, permissions, roles: held.roles },
    })
}

fn union(roles: impl Iterator<Item = Role>) -> PermissionSet {
    roles.fold(PermissionSet::EMPTY, |set, role| set.union(role.permissions()))
}

fn is_platform(role: Role) -> bool {
    matches!(role, Role::PlatformAdmin | Role::PlatformOps | Role::PlatformAuditor)
}

/// Somebody without any role in a place may not learn that it exists.
fn hidden(kind: &'static str) -> Refusal {
    refuse(Problem::not_found(kind), Scope::Platform)
}

async fn roles_held(
    kind: ScopeKind,
    caller: &Caller,
    path: &[(String, String)],
    directory: &dyn Directory,
) -> Result<HeldRoles, Refusal> {
    let platform = match caller {
        Caller::User { grants, .. } => grants.platform.clone(),
        Caller::ServiceAccount { .. } => Vec::new(),
    };
    match kind {
        ScopeKind::Public => Err(refuse(Problem::from_code(Code::InternalError), Scope::Platform)),
        ScopeKind::Platform => Ok(HeldRoles { scope: Scope::Platform, roles: platform, suspended: false }),
        ScopeKind::Person => {
            // A machine has nothing of its own, but reads what everybody who is signed in may read.
            let role = if caller.user().is_some() { Role::Person } else { Role::ServiceAccount };
            Ok(HeldRoles { scope: Scope::Person, roles: vec![role], suspended: false })
        }
        ScopeKind::Org => {
            let org: OrgId = parameter(path, "org_id", "organization")?;
            let facts = directory.org(org).await.map_err(internal)?.ok_or_else(|| hidden("organization"))?;
            let mut roles = org_roles(caller, org);
            roles.extend(platform);
            if roles.is_empty() {
                return Err(hidden("organization"));
            }
            Ok(HeldRoles { scope: Scope::Org(org), roles, suspended: facts.suspended })
        }
        ScopeKind::Project => {
            let project: ProjectId = parameter(path, "project_id", "project")?;
            let facts =
                directory.project(project).await.map_err(internal)?.ok_or_else(|| hidden("project"))?;
            let mut roles = project_roles(caller, facts.org, project);
            roles.extend(platform);
            if !union(roles.iter().copied()).holds(kernel::Permission::ProjectRead) {
                return Err(hidden("project"));
            }
            Ok(HeldRoles { scope: Scope::Project(facts.org, project), roles, suspended: facts.suspended })
        }
        ScopeKind::Invitation => {
            let id: kernel::ids::InvitationId = parameter(path, "invitation_id", "invitation")?;
            let org =
                directory.invitation(id).await.map_err(internal)?.ok_or_else(|| hidden("invitation"))?;
            let facts = directory.org(org).await.map_err(internal)?.ok_or_else(|| hidden("invitation"))?;
            let roles = if caller.user().is_some() { vec![Role::Person] } else { Vec::new() };
            Ok(HeldRoles { scope: Scope::Org(org), roles, suspended: facts.suspended })
        }
    }
}

fn internal(failure: Failure) -> Refusal {
    Refusal { problem: failure, scope: Scope::Platform }
}

fn parameter<T: std::str::FromStr<Err = kernel::ids::IdError>>(
    path: &[(String, String)],
    name: &'static str,
    kind: &'static str,
) -> Result<T, Refusal> {
    let text = path.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default();
    text.parse().map_err(|error: kernel::ids::IdError| {
        refuse(Problem::field(name, error).detail("kind", kind), Scope::Platform)
    })
}

fn org_roles(caller: &Caller, org: OrgId) -> Vec<Role> {
    match caller {
        Caller::User { grants, .. } => grants.orgs.get(&org).map(|g| g.role).into_iter().collect(),
        Caller::ServiceAccount { .. } => Vec::new(),
    }
}

fn project_roles(caller: &Caller, org: OrgId, project: ProjectId) -> Vec<Role> {
    match caller {
        Caller::User { grants, .. } => {
            let mut roles = org_roles(caller, org);
            roles.extend(grants.projects.get(&project));
            roles
        }
        Caller::ServiceAccount { project: own, role, .. } if *own == project => vec![*role],
        Caller::ServiceAccount { .. } => Vec::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "in a test, a failure is a failed test")]
#[path = "authorize_tests.rs"]
mod tests;
