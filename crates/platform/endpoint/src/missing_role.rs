//! A refusal for a missing role: the role that somebody has, the least that would be enough, and who can give it.

use kernel::{Code, Permission, Problem, Role};

use crate::declare::ScopeKind;

const PROJECT: [Role; 4] = [Role::ProjectViewer, Role::ProjectMember, Role::ProjectAdmin, Role::ProjectOwner];
const ORG: [Role; 4] = [Role::OrgMember, Role::OrgViewer, Role::OrgAdmin, Role::OrgOwner];
/// From the least to the most.
const MACHINE: [Role; 3] = [Role::ServiceAccount, Role::ServiceAccountReader, Role::ServiceAccountLauncher];
const PLATFORM: [Role; 3] = [Role::PlatformAuditor, Role::PlatformOps, Role::PlatformAdmin];

/// The least role that counts in this scope and allows it, the narrowest kind of role first.
fn needed(scope: ScopeKind, permission: Permission) -> Option<Role> {
    let kinds: &[&[Role]] = match scope {
        ScopeKind::Project => &[&PROJECT, &ORG, &PLATFORM],
        ScopeKind::Org => &[&ORG, &PLATFORM],
        ScopeKind::Platform => &[&PLATFORM],
        ScopeKind::Public | ScopeKind::Person | ScopeKind::Invitation => &[],
    };
    kinds.iter().copied().flatten().copied().find(|role| role.permissions().holds(permission))
}

/// Nobody gives more than they have.
const fn giver(role: Role) -> &'static str {
    match role {
        Role::ProjectOwner => {
            "Ask an owner of the project, or an owner or admin of the organization, for it."
        }
        Role::ProjectAdmin | Role::ProjectMember | Role::ProjectViewer => {
            "Ask an owner or admin of the project or of the organization for it."
        }
        Role::OrgOwner => "Ask an owner of the organization for it.",
        Role::OrgAdmin | Role::OrgMember | Role::OrgViewer => {
            "Ask an owner or admin of the organization for it."
        }
        Role::PlatformAdmin | Role::PlatformOps | Role::PlatformAuditor => {
            "Ask a platform administrator for it."
        }
        Role::Person | Role::ServiceAccount | Role::ServiceAccountReader | Role::ServiceAccountLauncher => {
            "Sign in as a user."
        }
    }
}

/// Service accounts get few roles, from whoever administers their project.
fn missing_role_of_machine(code: Code, permission: Permission, own: Role) -> Problem {
    let enough = MACHINE.into_iter().find(|role| role.permissions().holds(permission));
    let Some(needed) = enough else {
        let text = "No role of service accounts allows the operation.";
        return Problem::new(code, text).suggest(giver(own));
    };
    let (needed, own) = (needed.name(), own.name());
    let text = format!("The operation needs the role {needed}, and the service account's is {own}.");
    Problem::new(code, text)
        .suggest("Ask an owner or admin of the project to give the service account the role.")
        .detail("needed_role", needed)
}

pub fn missing_role(code: Code, scope: ScopeKind, permission: Permission, held: &[Role]) -> Problem {
    let roles: Vec<&str> = held.iter().map(|role| role.name()).collect();
    let plain = |text: Problem| text.detail("permission", permission.name()).detail("roles", roles.clone());
    if let [own] = held
        && MACHINE.contains(own)
    {
        return plain(missing_role_of_machine(code, permission, *own));
    }
    let Some(role) = needed(scope, permission) else { return plain(Problem::from_code(code)) };
    let needed = role.name();
    let text = match &roles[..] {
        [] => format!("The operation needs the role {needed}, and you have none there."),
        [own] => format!("The operation needs the role {needed}, and yours is {own}."),
        own => format!("The operation needs the role {needed}, and yours are {}.", own.join(" and ")),
    };
    plain(Problem::new(code, text).suggest(giver(role)).detail("needed_role", needed))
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
        let code = Code::InsufficientPermissions;
        let problem = missing_role(code, ScopeKind::Person, Permission::SelfUpdate, &[Role::Person]);
        assert_eq!(problem.message, code.meaning());
        assert!(!problem.details.contains_key("needed_role") && problem.suggestion.is_none());
        let machine = [Role::ServiceAccountLauncher];
        let problem = missing_role(code, ScopeKind::Project, Permission::ProjectDelete, &machine);
        assert!(problem.message.contains("No role of service accounts"), "{problem:?}");
        assert_eq!(problem.suggestion.as_deref(), Some("Sign in as a user."));
        assert!(!problem.details.contains_key("needed_role"));
    }

    #[test]
    fn a_service_account_is_told_the_least_of_its_roles_that_is_enough() {
        let code = Code::InsufficientPermissions;
        for (permission, held, needed) in [
            (Permission::AllocationCreate, Role::ServiceAccountReader, "service_account_launcher"),
            (Permission::UsageRead, Role::ServiceAccount, "service_account_reader"),
        ] {
            let problem = missing_role(code, ScopeKind::Project, permission, &[held]);
            assert_eq!(problem.details["needed_role"], needed);
            assert!(problem.suggestion.is_some_and(|text| text.contains("admin of the project")));
        }
    }

    #[test]
    fn nobody_is_sent_to_somebody_who_cannot_give_the_role() {
        let giver = |scope, permission| {
            missing_role(Code::InsufficientPermissions, scope, permission, &[]).suggestion.unwrap_or_default()
        };
        assert_eq!(
            giver(ScopeKind::Project, Permission::ProjectDelete),
            "Ask an owner of the project, or an owner or admin of the organization, for it."
        );
        assert_eq!(
            giver(ScopeKind::Org, Permission::OrgRead),
            "Ask an owner or admin of the organization for it."
        );
    }
}
