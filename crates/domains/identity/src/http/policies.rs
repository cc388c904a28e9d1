//! Policies: what the keys mean, what holds where and why, and how to change it.

use endpoint::{
    Empty, Endpoint, In, Json, NoContent, OrgPath, ProjectPath, ScopeKind, Write, delete, get, put,
};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem,
    ids::{OrgId, ProjectId, UserId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Identity,
    model::policy::{PolicyDefinition, PolicyEffective, PolicyExplanation},
    service::policies::{
        NewPolicy, Place, policy_definition_list, policy_explain, policy_list, policy_set, policy_unset,
    },
};

const SET_ERRORS: &[Code] = &[Code::AdminRequired, Code::Unprocessable, Code::Conflict];

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    let mut all = definitions(identity);
    all.extend(of_org(identity));
    all.extend(of_project(identity));
    all.extend(of_member(identity));
    all.extend(of_platform(identity));
    all
}

fn definitions(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/policy-definitions",
            "policy_definition_list",
            "List the policy keys with their descriptions",
        )
        .in_scope(ScopeKind::Person)
        .needs(Permission::SelfRead)
        .handle(identity.clone(), definition_list),
    ]
}

fn of_org(identity: &Identity) -> Vec<Endpoint> {
    const ONE: &str = "/api/v1/orgs/{org_id}/policies/{key}";
    vec![
        get("/api/v1/orgs/{org_id}/policies", "org_policy_list", "List the policies of an organization")
            .in_scope(ScopeKind::Org)
            .needs(Permission::PolicyRead)
            .handle(identity.clone(), list::<OrgPath>),
        get(ONE, "org_policy_get", "Explain a policy of an organization")
            .in_scope(ScopeKind::Org)
            .needs(Permission::PolicyRead)
            .handle(identity.clone(), explain::<OrgKeyPath>),
        put(ONE, "org_policy_set", "Set a policy for an organization")
            .in_scope(ScopeKind::Org)
            .errors(SET_ERRORS)
            .needs(Permission::PolicyManage)
            .audited("policy.set")
            .handle(identity.clone(), set::<OrgKeyPath>),
        delete(ONE, "org_policy_unset", "Remove a policy value of an organization")
            .in_scope(ScopeKind::Org)
            .errors(SET_ERRORS)
            .needs(Permission::PolicyManage)
            .audited("policy.unset")
            .handle(identity.clone(), unset::<OrgKeyPath>),
    ]
}

fn of_project(identity: &Identity) -> Vec<Endpoint> {
    const ONE: &str = "/api/v1/projects/{project_id}/policies/{key}";
    vec![
        get(
            "/api/v1/projects/{project_id}/policies",
            "project_policy_list",
            "List the policies of a project",
        )
        .in_scope(ScopeKind::Project)
        .needs(Permission::PolicyRead)
        .handle(identity.clone(), list::<ProjectPath>),
        get(ONE, "project_policy_get", "Explain a policy of a project")
            .in_scope(ScopeKind::Project)
            .needs(Permission::PolicyRead)
            .handle(identity.clone(), explain::<ProjectKeyPath>),
        put(ONE, "project_policy_set", "Set a policy for a project")
            .in_scope(ScopeKind::Project)
            .errors(SET_ERRORS)
            .needs(Permission::PolicyManage)
            .audited("policy.set")
            .handle(identity.clone(), set::<ProjectKeyPath>),
        delete(ONE, "project_policy_unset", "Remove a policy value of a project")
            .in_scope(ScopeKind::Project)
            .errors(SET_ERRORS)
            .needs(Permission::PolicyManage)
            .audited("policy.unset")
            .handle(identity.clone(), unset::<ProjectKeyPath>),
    ]
}

fn of_member(identity: &Identity) -> Vec<Endpoint> {
    const ONE: &str = "/api/v1/orgs/{org_id}/members/{user_id}/policies/{key}";
    vec![
        get(ONE, "member_policy_get", "Explain a policy of a member")
            .in_scope(ScopeKind::Org)
            .needs(Permission::PolicyRead)
            .handle(identity.clone(), explain::<MemberKeyPath>),
        put(ONE, "member_policy_set", "Set a policy for a member")
            .in_scope(ScopeKind::Org)
            .errors(SET_ERRORS)
            .needs(Permission::PolicyManage)
            .audited("policy.set")
            .handle(identity.clone(), set::<MemberKeyPath>),
        delete(ONE, "member_policy_unset", "Remove a policy value of a member")
            .in_scope(ScopeKind::Org)
            .errors(SET_ERRORS)
            .needs(Permission::PolicyManage)
            .audited("policy.unset")
            .handle(identity.clone(), unset::<MemberKeyPath>),
    ]
}

fn of_platform(identity: &Identity) -> Vec<Endpoint> {
    const ONE: &str = "/api/v1/platform/policies/{key}";
    vec![
        get("/api/v1/platform/policies", "platform_policy_list", "List the policies of the platform")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformRead)
            .handle(identity.clone(), list::<Empty>),
        get(ONE, "platform_policy_get", "Explain a policy of the platform")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformRead)
            .handle(identity.clone(), explain::<KeyPath>),
        put(ONE, "platform_policy_set", "Set a policy for the whole platform")
            .in_scope(ScopeKind::Platform)
            .errors(SET_ERRORS)
            .needs(Permission::PlatformPolicyManage)
            .audited("policy.set")
            .handle(identity.clone(), set::<KeyPath>),
        delete(ONE, "platform_policy_unset", "Return a platform policy to its default")
            .in_scope(ScopeKind::Platform)
            .errors(SET_ERRORS)
            .needs(Permission::PlatformPolicyManage)
            .audited("policy.unset")
            .handle(identity.clone(), unset::<KeyPath>),
    ]
}

/// A path that names a place in which policies hold.
trait PlacePath: DeserializeOwned + JsonSchema + Send + 'static {
    /// `org` is the organization of the authorized scope, where there is one.
    fn place(&self, org: Result<OrgId, Problem>) -> Result<Place, Problem>;
}

/// A path that names a key as well.
trait KeyedPath: PlacePath {
    fn key(&self) -> &str;
}

macro_rules! keyed_paths {
    ($($name:ident { $($field:ident: $kind:ty),* } |$path:ident, $org:ident| $place:expr;)*) => {$(
        #[derive(Deserialize, JsonSchema)]
        #[schemars(inline)]
        struct $name {
            $($field: $kind,)*
            /// Such as `quota.gpus_per_project`.
            #[schemars(length(max = 100))]
            key: String,
        }
        impl PlacePath for $name {
            fn place(&self, $org: Result<OrgId, Problem>) -> Result<Place, Problem> {
                let $path = self;
                Ok($place)
            }
        }
        impl KeyedPath for $name {
            fn key(&self) -> &str {
                &self.key
            }
        }
    )*};
}

keyed_paths! {
    KeyPath {} |_path, _org| Place::Global;
    OrgKeyPath { org_id: OrgId } |path, _org| Place::Org(path.org_id);
    ProjectKeyPath { project_id: ProjectId } |path, org| Place::Project(org?, path.project_id);
    MemberKeyPath { org_id: OrgId, user_id: UserId } |path, _org| Place::User(path.org_id, path.user_id);
}

impl PlacePath for Empty {
    fn place(&self, _: Result<OrgId, Problem>) -> Result<Place, Problem> {
        Ok(Place::Global)
    }
}

impl PlacePath for OrgPath {
    fn place(&self, _: Result<OrgId, Problem>) -> Result<Place, Problem> {
        Ok(Place::Org(self.org_id))
    }
}

impl PlacePath for ProjectPath {
    fn place(&self, org: Result<OrgId, Problem>) -> Result<Place, Problem> {
        Ok(Place::Project(org?, self.project_id))
    }
}

async fn definition_list(
    _: Identity,
    _: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<PolicyDefinition>>, Failure> {
    Ok(Json(policy_definition_list(&input.query)))
}

async fn list<P: PlacePath>(
    _: Identity,
    mut tx: ReadTx,
    input: In<P, PageQuery, ()>,
) -> Result<Json<Page<PolicyEffective>>, Failure> {
    let place = input.path.place(input.access.org())?;
    Ok(Json(policy_list(&mut tx, place, &input.query).await?))
}

async fn explain<P: KeyedPath>(
    _: Identity,
    mut tx: ReadTx,
    input: In<P, Empty, ()>,
) -> Result<Json<PolicyExplanation>, Failure> {
    let place = input.path.place(input.access.org())?;
    Ok(Json(policy_explain(&mut tx, place, input.path.key()).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyPut {
    /// A whole number, true or false, or a choice: what the key takes.
    value: Value,
    /// Narrower scopes may choose otherwise. Without it the value is a bound for them.
    #[serde(default)]
    is_default: bool,
}

async fn set<P: KeyedPath>(
    _: Identity,
    mut tx: Write,
    input: In<P, Empty, Json<PolicyPut>>,
) -> Result<Json<PolicyExplanation>, Failure> {
    let place = input.path.place(input.access.org())?;
    let (key, roles) = (input.path.key(), input.access.roles());
    let new = NewPolicy { value: &input.body.0.value, is_default: input.body.0.is_default };
    Ok(Json(policy_set(&mut tx, place, key, new, input.if_match, roles).await?))
}

async fn unset<P: KeyedPath>(
    _: Identity,
    mut tx: Write,
    input: In<P, Empty, ()>,
) -> Result<NoContent, Failure> {
    let place = input.path.place(input.access.org())?;
    policy_unset(&mut tx, place, input.path.key(), input.if_match, input.access.roles()).await?;
    Ok(NoContent)
}
