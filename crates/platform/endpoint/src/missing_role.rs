//! A refusal for a missing role: the role that somebody has, the least that would be enough, and who can give it.

use kernel::{Code, Permission, Problem, Role};

use crate::declare::ScopeKind;

const PROJECT: [Role; 4] = [Role::ProjectViewer, Role::ProjectMember, Role::ProjectAdmin, Role::ProjectOwner];
const ORG: [Role; 4] = [Role::OrgViewer, Role::OrgMember, Role::OrgAdmin, Role::OrgOwner];
const PLATFORM: [Role; 3] = [Role::PlatformAuditor, Role::PlatformOps, Role::PlatformAdmin];

/// The least role that counts in this scope and allows it, the narrowest kind of role first; and who gives it.
fn needed(scope: ScopeKind, permission: Permission) -> Option<(Role, &'static str)> {
    let project = (&PROJECT[..], "Ask an owner or admin of the project or of the organization for it.");
    let org = (&ORG[..], "Ask an owner or admin of the organization for it.");
    let platform = (&PLATFORM[..], "Ask a platform administrator for it.");
    let kinds = match scope {
        ScopeKind::Project => vec![project, org, platform],
        ScopeKind::Org => vec![org, platform],
        ScopeKind::Platform => vec![platform],
        ScopeKind::Public | ScopeKind::Person | ScopeKind::Invitation => Vec::new(),
    };
    kinds.into_iter().find_map(|(roles, giver)| {
        let role = roles.iter().copied().find(|role| role.permissions().holds(permission))?;
        Some((role, giver))
    })
}

pub fn missing_role(code: Code, scope: ScopeKind, permission: Permission, held: &[Role]) -> Problem {
    let roles: Vec<&str> = held.iter().map(|role| role.name()).collect();
    let Some((role, giver)) = needed(scope, permission) else {
        return Problem::from_code(code).detail("permission", permission.name()).detail("roles", roles);
    };
    let needed = role.name();
    let text = match &roles[..] {
        [] => format!("The operation needs the role {needed}, and you have none there."),
        [own] => format!("The operation needs the role {needed}, and yours is {own}."),
        own => format!("The operation needs the role {needed}, and yours are {}.", own.join(" and ")),
    };
    Problem::new(code, text)
        .suggest(giver)
        .detail("permission", permission.name())
        .detail("needed_role", needed)
        .detail("roles", roles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_role_of_the_narrowest_kind_is_named_with_who_gives_it() {
        let code = Code::InsufficientPermissions;
        for (scope, permission, held, needed, giver) in [
            (
                ScopeKind::Project,
                Permission::AllocationCreate,
                &[Role::ProjectViewer][..],
                "the role project_member, and yours is project_viewer.",
                "of the project or of the organization",
            ),
            (
                ScopeKind::Org,
                Permission::OrgUpdate,
                &[Role::OrgMember],
                "the role org_admin, and yours is org_member.",
                "owner or admin of the organization",
            ),
            (
                ScopeKind::Platform,
                Permission::PlatformUserManage,
                &[Role::PlatformOps, Role::PlatformAuditor],
                "the role platform_admin, and yours are platform_ops and platform_auditor.",
                "platform administrator",
            ),
            (
                ScopeKind::Platform,
                Permission::PlatformRead,
                &[],
                "the role platform_auditor, and you have none there.",
                "platform administrator",
            ),
        ] {
            let problem = missing_role(code, scope, permission, held);
            assert!(problem.message.ends_with(needed), "{}", problem.message);
            assert!(problem.suggestion.as_ref().is_some_and(|text| text.contains(giver)), "{problem:?}");
            assert_eq!(problem.details["permission"], permission.name());
            assert_eq!(problem.details["roles"].as_array().map(Vec::len), Some(held.len()));
        }
    }

    #[test]
    fn where_no_role_helps_none_is_named() {
        let problem = missing_role(
            Code::InsufficientPermissions,
            ScopeKind::Person,
            Permission::SelfUpdate,
            &[Role::ServiceAccount],
        );
        assert_eq!(problem.message, Code::InsufficientPermissions.meaning());
        assert!(!problem.details.contains_key("needed_role"));
    }
}
