//! Who may do what where: every kind of scope, with and without the role.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use kernel::{
    Permission,
    ids::{InvitationId, ServiceAccountId, ServiceAccountKeyId, SessionId},
};
use uuid::Uuid;

use super::*;
use crate::{
    caller::{Grants, OrgFacts, OrgGrant, ProjectFacts},
    declare::{Idempotency, Lane, Types},
};

fn id<T: From<Uuid>>(n: u128) -> T {
    T::from(Uuid::from_u128(n))
}

const ORG: u128 = 1;
const PROJECT: u128 = 2;
const INVITATION: u128 = 3;
const USER: u128 = 4;
const ELSEWHERE: u128 = 9;

/// One organization with one project and one invitation.
#[derive(Default)]
struct World {
    suspended: bool,
    fails: bool,
}

impl World {
    fn find<T>(&self, known: bool, value: T) -> Result<Option<T>, Failure> {
        match self.fails {
            true => Err(Failure::bug("the directory is away")),
            false => Ok(known.then_some(value)),
        }
    }
}

#[async_trait]
impl Directory for World {
    async fn org(&self, org: OrgId) -> Result<Option<OrgFacts>, Failure> {
        self.find(org == id(ORG), OrgFacts { suspended: self.suspended })
    }

    async fn project(&self, project: ProjectId) -> Result<Option<ProjectFacts>, Failure> {
        self.find(project == id(PROJECT), ProjectFacts { org: id(ORG), suspended: self.suspended })
    }

    async fn invitation(&self, invitation: InvitationId) -> Result<Option<OrgId>, Failure> {
        self.find(invitation == id(INVITATION), id(ORG))
    }
}

fn declaration(scope: ScopeKind, permission: Permission) -> Declaration {
    let nothing = |_: &mut schemars::SchemaGenerator| schemars::Schema::default();
    Declaration {
        method: http::Method::GET,
        path: "/api/v1/doors",
        id: "door_list",
        summary: "",
        description: "",
        scope,
        permission: Some(permission),
        audit: None,
        lane: Lane::Api,
        idempotency: Idempotency::None,
        body_limit_bytes: 0,
        timeout: Duration::from_secs(1),
        errors: &[],
        types: Types {
            path: nothing,
            query: nothing,
            body: None,
            reply: None,
            reply_status: 200,
            reply_content: "application/json",
        },
    }
}

fn person(platform: &[Role], org: Option<Role>, project: Option<Role>) -> Caller {
    let orgs: HashMap<OrgId, OrgGrant> =
        org.map(|role| (id(ORG), OrgGrant { role, suspended: false })).into_iter().collect();
    let projects = project.map(|role| (id(PROJECT), role)).into_iter().collect();
    let grants = Arc::new(Grants { platform: platform.to_vec(), orgs, projects });
    Caller::User { id: id(USER), session: SessionId::from(Uuid::from_u128(5)), grants }
}

fn machine(project: u128) -> Caller {
    Caller::ServiceAccount {
        id: ServiceAccountId::from(Uuid::from_u128(6)),
        org: id(ORG),
        project: id(project),
        role: Role::ServiceAccount,
        key: ServiceAccountKeyId::from(Uuid::from_u128(7)),
        token_expires_at: chrono::DateTime::UNIX_EPOCH,
    }
}

fn path(scope: ScopeKind, n: u128) -> Vec<(String, String)> {
    let text = match scope {
        ScopeKind::Org => id::<OrgId>(n).to_string(),
        ScopeKind::Project => id::<ProjectId>(n).to_string(),
        ScopeKind::Invitation => id::<InvitationId>(n).to_string(),
        ScopeKind::Public | ScopeKind::Person | ScopeKind::Platform => return Vec::new(),
    };
    let name = scope.parameter().unwrap_or_default().to_owned();
    vec![("other".to_owned(), "x".to_owned()), (name, text)]
}

/// What the decision is for the thing of the world that the scope names.
async fn asked(
    world: &World,
    scope: ScopeKind,
    at: u128,
    permission: Permission,
    caller: &Caller,
) -> Result<Decision, (Code, Scope)> {
    let outcome = decide(&declaration(scope, permission), caller, &path(scope, at), world).await;
    outcome.map_err(|refusal| match refusal.problem {
        Failure::Problem(problem) => (problem.code, refusal.scope),
        Failure::Internal(_) | Failure::Bug(_) => (Code::InternalError, refusal.scope),
    })
}

async fn here(scope: ScopeKind, permission: Permission, caller: &Caller) -> Result<Decision, (Code, Scope)> {
    let at = match scope {
        ScopeKind::Org => ORG,
        ScopeKind::Project => PROJECT,
        _ => INVITATION,
    };
    asked(&World::default(), scope, at, permission, caller).await
}

fn org_scope() -> Scope {
    Scope::Org(id(ORG))
}

#[tokio::test]
async fn a_member_may_what_the_role_holds_and_acts_in_its_name() {
    let admin = person(&[], Some(Role::OrgAdmin), None);
    let decision = here(ScopeKind::Org, Permission::OrgUpdate, &admin).await.ok().unwrap();
    assert_eq!(decision.scope, org_scope());
    assert_eq!(decision.granted.permission(), Permission::OrgUpdate);
    assert_eq!((decision.actor.id, decision.actor.role), (Some(Uuid::from_u128(USER)), "org_admin"));
    let access = decision.access;
    assert_eq!(access.roles(), [Role::OrgAdmin]);
    assert_eq!(access.permissions(), Role::OrgAdmin.permissions());
    assert_eq!((access.org().ok(), access.project().is_ok()), (Some(id(ORG)), false));
    assert_eq!(
        (access.user().ok(), access.caller().and_then(Caller::user)),
        (Some(id(USER)), Some(id(USER)))
    );
    let member = person(&[], Some(Role::OrgMember), None);
    let refused = here(ScopeKind::Org, Permission::OrgUpdate, &member).await.err();
    assert_eq!(refused, Some((Code::InsufficientPermissions, org_scope())));
}

#[tokio::test]
async fn whoever_has_no_role_there_does_not_learn_that_it_exists() {
    let hidden = Some((Code::NotFound, Scope::Platform));
    let stranger = person(&[], None, None);
    assert_eq!(here(ScopeKind::Org, Permission::OrgRead, &stranger).await.err(), hidden);
    assert_eq!(here(ScopeKind::Project, Permission::ProjectRead, &stranger).await.err(), hidden);
    // A member of the organization without a role in the project sees no project either.
    let member = person(&[], Some(Role::OrgMember), None);
    assert_eq!(here(ScopeKind::Project, Permission::ProjectRead, &member).await.err(), hidden);
    // What does not exist looks the same to an administrator of everything.
    let admin = person(&[Role::PlatformAdmin], None, None);
    for scope in [ScopeKind::Org, ScopeKind::Project, ScopeKind::Invitation] {
        let permission = Permission::ProjectRead;
        assert_eq!(
            asked(&World::default(), scope, ELSEWHERE, permission, &admin).await.err(),
            hidden,
            "{scope:?}"
        );
    }
}

#[tokio::test]
async fn a_project_is_reached_by_its_own_role_by_the_organization_and_by_the_platform() {
    let scope = Scope::Project(id(ORG), id(PROJECT));
    for (caller, role) in [
        (person(&[], None, Some(Role::ProjectViewer)), "project_viewer"),
        (person(&[], Some(Role::OrgAdmin), None), "org_admin"),
        (person(&[Role::PlatformAuditor], None, None), "platform_auditor"),
        (machine(PROJECT), "service_account"),
    ] {
        let decision = here(ScopeKind::Project, Permission::ProjectRead, &caller).await.ok().unwrap();
        assert_eq!((decision.scope, decision.actor.role), (scope, role));
        assert_eq!(decision.access.project().ok(), Some(id(PROJECT)));
    }
    let elsewhere = here(ScopeKind::Project, Permission::ProjectRead, &machine(ELSEWHERE)).await.err();
    assert_eq!(elsewhere, Some((Code::NotFound, Scope::Platform)), "a machine stays in its own project");
    let machine_in_org = here(ScopeKind::Org, Permission::OrgRead, &machine(PROJECT)).await.err();
    assert_eq!(machine_in_org, Some((Code::NotFound, Scope::Platform)));
}

#[tokio::test]
async fn a_suspended_organization_keeps_its_reads_and_the_platform_keeps_everything() {
    let world = World { suspended: true, ..World::default() };
    let owner = person(&[], Some(Role::OrgOwner), None);
    assert!(asked(&world, ScopeKind::Org, ORG, Permission::OrgRead, &owner).await.is_ok());
    let refused = asked(&world, ScopeKind::Org, ORG, Permission::OrgUpdate, &owner).await.err();
    assert_eq!(refused, Some((Code::TenantSuspended, org_scope())));
    let in_project =
        asked(&world, ScopeKind::Project, PROJECT, Permission::ProjectUpdate, &owner).await.err();
    assert_eq!(in_project, Some((Code::TenantSuspended, Scope::Project(id(ORG), id(PROJECT)))));
    let declared = declaration(ScopeKind::Org, Permission::OrgUpdate);
    let refusal = decide(&declared, &owner, &path(ScopeKind::Org, ORG), &world).await.err().unwrap();
    let Failure::Problem(problem) = refusal.problem else { panic!("a refusal is a problem") };
    assert_eq!(problem.message, Code::TenantSuspended.meaning(), "another role would not help");
    // Not held at all is not a matter of the suspension.
    let viewer = person(&[], Some(Role::OrgViewer), None);
    let refused = asked(&world, ScopeKind::Org, ORG, Permission::OrgUpdate, &viewer).await.err();
    assert_eq!(refused, Some((Code::InsufficientPermissions, org_scope())));
    for role in [Role::PlatformAdmin, Role::PlatformOps, Role::PlatformAuditor] {
        let all = role.permissions();
        let operator = person(&[role], Some(Role::OrgOwner), None);
        let decision = asked(&world, ScopeKind::Org, ORG, Permission::OrgRead, &operator).await.ok().unwrap();
        let kept = Role::OrgOwner.permissions().reads_only().union(all);
        assert_eq!(decision.access.permissions(), kept, "{role:?}");
    }
}

#[tokio::test]
async fn the_platform_is_for_its_own_roles() {
    let admin = person(&[Role::PlatformAdmin], None, None);
    let decision = here(ScopeKind::Platform, Permission::PlatformUserManage, &admin).await.ok().unwrap();
    assert_eq!((decision.scope, decision.actor.role), (Scope::Platform, "platform_admin"));
    let auditor = person(&[Role::PlatformAuditor], None, None);
    let refused = here(ScopeKind::Platform, Permission::PlatformUserManage, &auditor).await.err();
    assert_eq!(refused, Some((Code::InsufficientPermissions, Scope::Platform)));
    for outsider in [person(&[], Some(Role::OrgOwner), None), machine(PROJECT)] {
        let refused = here(ScopeKind::Platform, Permission::PlatformRead, &outsider).await.err();
        assert_eq!(refused, Some((Code::AdminRequired, Scope::Platform)));
    }
}

#[tokio::test]
async fn a_person_has_things_of_their_own_and_a_machine_has_not() {
    let someone = person(&[], None, None);
    let decision = here(ScopeKind::Person, Permission::SelfUpdate, &someone).await.ok().unwrap();
    assert_eq!((decision.scope, decision.actor.role), (Scope::Person, "person"));
    let refused = here(ScopeKind::Person, Permission::SelfUpdate, &machine(PROJECT)).await.err();
    assert_eq!(refused, Some((Code::InsufficientPermissions, Scope::Person)));
    let read = here(ScopeKind::Person, Permission::CatalogRead, &machine(PROJECT)).await.ok().unwrap();
    assert_eq!((read.actor.role, read.access.user().is_err()), ("service_account", true));
}

#[tokio::test]
async fn an_invitation_is_for_any_person_and_no_machine() {
    let someone = person(&[], None, None);
    let decision = here(ScopeKind::Invitation, Permission::InvitationAccept, &someone).await.ok().unwrap();
    assert_eq!((decision.scope, decision.actor.role), (org_scope(), "person"));
    let refused = here(ScopeKind::Invitation, Permission::InvitationAccept, &machine(PROJECT)).await.err();
    assert_eq!(refused, Some((Code::InsufficientPermissions, org_scope())));
    let suspended = World { suspended: true, ..World::default() };
    let permission = Permission::InvitationAccept;
    let refused = asked(&suspended, ScopeKind::Invitation, INVITATION, permission, &someone).await.err();
    assert_eq!(refused, Some((Code::TenantSuspended, org_scope())));
}

#[tokio::test]
async fn without_a_permission_or_a_scope_nothing_is_allowed() {
    let admin = person(&[Role::PlatformAdmin], None, None);
    let nothing =
        Declaration { permission: None, ..declaration(ScopeKind::Platform, Permission::PlatformRead) };
    let refused = decide(&nothing, &admin, &[], &World::default()).await.err().unwrap();
    let Failure::Problem(problem) = refused.problem else { panic!("a refusal is a problem") };
    assert_eq!(problem.code, Code::InsufficientPermissions);
    let public = here(ScopeKind::Public, Permission::SelfRead, &admin).await.err();
    assert_eq!(public, Some((Code::InternalError, Scope::Platform)));
    let access = Access::public();
    assert!(access.caller().is_none() && access.user().is_err() && access.org().is_err());
    assert_eq!((access.permissions(), access.roles().len()), (PermissionSet::EMPTY, 0));
}

#[tokio::test]
async fn an_id_that_cannot_be_read_and_a_directory_that_is_away_are_refusals_too() {
    let admin = person(&[Role::PlatformAdmin], None, None);
    let declared = declaration(ScopeKind::Org, Permission::OrgRead);
    let broken = [("org_id".to_owned(), "nonsense".to_owned())];
    for path in [&broken[..], &[]] {
        let refused = decide(&declared, &admin, path, &World::default()).await.err().unwrap();
        let Failure::Problem(problem) = refused.problem else { panic!("a wrong id is the caller's problem") };
        assert_eq!((problem.code, &problem.details["kind"]), (Code::ValidationError, &"organization".into()));
    }
    let away = World { fails: true, ..World::default() };
    for scope in [ScopeKind::Org, ScopeKind::Project, ScopeKind::Invitation] {
        let failed = asked(&away, scope, ORG, Permission::OrgRead, &admin).await.err();
        assert_eq!(failed, Some((Code::InternalError, Scope::Platform)), "{scope:?}");
    }
}
