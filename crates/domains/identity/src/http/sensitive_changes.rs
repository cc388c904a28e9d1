//! `/platform/sensitive-changes`: what one administrator proposes and another applies.

use endpoint::{Created, Empty, Endpoint, Given, In, Json, ScopeKind, UserPath, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem,
    ids::{OrgId, SensitiveChangeId},
    text::Reason,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Identity,
    model::{
        role::PlatformRole,
        sensitive_change::{SensitiveChange, SensitiveChangeState},
    },
    service::sensitive_changes::{
        Decider, Wanted, sensitive_change_approve, sensitive_change_get, sensitive_change_list,
        sensitive_change_propose, sensitive_change_reject,
    },
};

const ONE: &str = "/api/v1/platform/sensitive-changes/{change_id}";
const APPROVE: &str = "/api/v1/platform/sensitive-changes/{change_id}/approve";
const REJECT: &str = "/api/v1/platform/sensitive-changes/{change_id}/reject";

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    let mut all = proposals(identity);
    all.extend(decisions(identity));
    all
}

fn proposals(identity: &Identity) -> Vec<Endpoint> {
    vec![
        post(
            "/api/v1/platform/policies/{key}/proposals",
            "platform_policy_propose",
            "Propose a policy value that needs a second administrator",
        )
        .describe(
            "For keys that control when a second person is needed. Another administrator approves it; \
             without a value, the stored value is removed.",
        )
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::Unprocessable])
        .needs(Permission::PlatformPolicyManage)
        .audited("sensitive_change.propose")
        .handle(identity.clone(), propose_policy),
        post(
            "/api/v1/platform/users/{user_id}/roles/proposals",
            "platform_user_roles_propose",
            "Propose platform roles that include the permission to approve",
        )
        .describe("The complete platform roles of the user. Another administrator approves it.")
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::Unprocessable])
        .needs(Permission::PlatformUserManage)
        .audited("sensitive_change.propose")
        .handle(identity.clone(), propose_roles),
    ]
}

fn decisions(identity: &Identity) -> Vec<Endpoint> {
    let decide = |path: &'static str, operation: &'static str, summary: &'static str| {
        post(path, operation, summary)
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::InvalidTransition, Code::Unprocessable, Code::Conflict, Code::AdminRequired])
            .needs(Permission::MoneyManage)
    };
    vec![
        get(
            "/api/v1/platform/sensitive-changes",
            "sensitive_change_list",
            "List changes that need a second person",
        )
        .describe("Newest first.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::PlatformRead)
        .handle(identity.clone(), list),
        get(ONE, "sensitive_change_get", "Show a change that needs a second person")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformRead)
            .handle(identity.clone(), show),
        decide(APPROVE, "sensitive_change_approve", "Approve and apply a change that somebody else proposed")
            .audited("sensitive_change.approve")
            .handle(identity.clone(), approve),
        decide(REJECT, "sensitive_change_reject", "Reject a change that somebody else proposed")
            .audited("sensitive_change.reject")
            .handle(identity.clone(), reject),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct KeyPath {
    /// Such as `billing.adjustment_approval_minor`.
    #[schemars(length(max = 100))]
    key: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyProposal {
    /// What the key takes; without it what is stored there is removed.
    #[serde(default)]
    value: Given<Value>,
    /// For this organization rather than the whole platform.
    #[serde(default)]
    org_id: Given<OrgId>,
    reason: Reason,
}

async fn propose_policy(
    _: Identity,
    mut tx: Write,
    input: In<KeyPath, Empty, Json<PolicyProposal>>,
) -> Result<Created<SensitiveChange>, Failure> {
    let (by, body) = (input.access.user()?, input.body.0);
    let wanted = Wanted::Policy { key: input.path.key, org: body.org_id.0, value: body.value.0 };
    Ok(Created(sensitive_change_propose(&mut tx, by, wanted, body.reason).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlatformRolesProposal {
    /// All the platform roles the user is to hold.
    #[schemars(length(max = 10))]
    roles: Vec<PlatformRole>,
    reason: Reason,
}

async fn propose_roles(
    _: Identity,
    mut tx: Write,
    input: In<UserPath, Empty, Json<PlatformRolesProposal>>,
) -> Result<Created<SensitiveChange>, Failure> {
    let (by, body) = (input.access.user()?, input.body.0);
    let wanted = Wanted::PlatformRoles { user: input.path.user_id, roles: body.roles };
    Ok(Created(sensitive_change_propose(&mut tx, by, wanted, body.reason).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ChangePath {
    change_id: SensitiveChangeId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those in this state.
    #[serde(default)]
    state: Given<SensitiveChangeState>,
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<SensitiveChange>>, Failure> {
    Ok(Json(sensitive_change_list(&mut tx, input.query.state.0, &input.query.page).await?))
}

async fn show(
    _: Identity,
    mut tx: ReadTx,
    input: In<ChangePath, Empty, ()>,
) -> Result<Json<SensitiveChange>, Failure> {
    Ok(Json(sensitive_change_get(&mut tx, input.path.change_id).await?))
}

fn decider(access: &endpoint::Access) -> Result<Decider<'_>, Problem> {
    Ok(Decider { user: access.user()?, roles: access.roles(), permissions: access.permissions() })
}

async fn approve(
    _: Identity,
    mut tx: Write,
    input: In<ChangePath, Empty, ()>,
) -> Result<Json<SensitiveChange>, Failure> {
    let by = decider(&input.access)?;
    Ok(Json(sensitive_change_approve(&mut tx, by, input.path.change_id).await?))
}

async fn reject(
    _: Identity,
    mut tx: Write,
    input: In<ChangePath, Empty, ()>,
) -> Result<Json<SensitiveChange>, Failure> {
    let by = decider(&input.access)?;
    Ok(Json(sensitive_change_reject(&mut tx, by, input.path.change_id).await?))
}
