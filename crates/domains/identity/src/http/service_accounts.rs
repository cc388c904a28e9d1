//! Service accounts of a project.

use endpoint::{
    Created, Empty, Endpoint, In, Json, NoContent, ProjectPath, ScopeKind, Write, delete, get, patch, post,
};
use kernel::{Code, Failure, Page, PageQuery, Permission, text::Name};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Given, ServiceAccountPath};
use crate::{
    Identity,
    model::service_account::{ServiceAccount, ServiceAccountRole},
    service::service_accounts::{
        AccountChange, NewAccount, service_account_create, service_account_delete, service_account_get,
        service_account_list, service_account_update,
    },
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/projects/{project_id}/service-accounts";
    const ONE: &str = "/api/v1/projects/{project_id}/service-accounts/{service_account_id}";
    vec![
        get(ALL, "service_account_list", "List the service accounts of a project")
            .in_scope(ScopeKind::Project)
            .needs(Permission::ServiceAccountRead)
            .handle(identity.clone(), list),
        post(ALL, "service_account_create", "Create a service account")
            .describe(
                "A `reader` reads what a viewer of the project reads. A `launcher` also launches, and releases and \
                 restarts what it launched, within its spend cap or while the project has a budget that releases \
                 allocations.",
            )
            .in_scope(ScopeKind::Project)
            .errors(&[Code::AlreadyExists])
            .needs(Permission::ServiceAccountManage)
            .audited("service_account.create")
            .handle(identity.clone(), create),
        get(ONE, "service_account_get", "Show a service account")
            .in_scope(ScopeKind::Project)
            .needs(Permission::ServiceAccountRead)
            .handle(identity.clone(), show),
        patch(ONE, "service_account_update", "Change a service account")
            .describe(
                "Name, role, SSH keys, disabled or enabled. The tokens of a disabled account stop working within \
                 five seconds, and its SSH keys are removed from the machines that it launched; these run on until \
                 an admin of the project releases them.",
            )
            .in_scope(ScopeKind::Project)
            .errors(&[Code::AlreadyExists, Code::Conflict])
            .needs(Permission::ServiceAccountManage)
            .audited("service_account.update")
            .handle(identity.clone(), update),
        delete(ONE, "service_account_delete", "Delete a service account and its keys")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::Conflict])
            .needs(Permission::ServiceAccountManage)
            .audited("service_account.delete")
            .handle(identity.clone(), remove),
    ]
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<ProjectPath, PageQuery, ()>,
) -> Result<Json<Page<ServiceAccount>>, Failure> {
    let (org, project) = (input.access.org()?, input.path.project_id);
    Ok(Json(service_account_list(&mut tx, org, project, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceAccountCreate {
    name: Name,
    /// What it may do in the project; `reader` if missing.
    #[serde(default)]
    role: Given<ServiceAccountRole>,
    /// Public keys that log in to the machines which the account launches.
    #[serde(default)]
    #[schemars(length(max = 20))]
    ssh_public_keys: Vec<String>,
}

async fn create(
    _: Identity,
    mut tx: Write,
    input: In<ProjectPath, Empty, Json<ServiceAccountCreate>>,
) -> Result<Created<ServiceAccount>, Failure> {
    let (org, project) = (input.access.org()?, input.path.project_id);
    let body = input.body.0;
    let new = NewAccount {
        name: body.name,
        role: body.role.0.unwrap_or(ServiceAccountRole::Reader),
        ssh_public_keys: body.ssh_public_keys,
    };
    Ok(Created(service_account_create(&mut tx, org, project, new).await?))
}

async fn show(
    _: Identity,
    mut tx: ReadTx,
    input: In<ServiceAccountPath, Empty, ()>,
) -> Result<Json<ServiceAccount>, Failure> {
    Ok(Json(service_account_get(&mut tx, input.path.project_id, input.path.service_account_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceAccountUpdate {
    #[serde(default)]
    name: Given<Name>,
    #[serde(default)]
    role: Given<ServiceAccountRole>,
    /// All of them: those that are missing are removed, also from running machines.
    #[serde(default)]
    #[schemars(length(max = 20))]
    ssh_public_keys: Given<Vec<String>>,
    #[serde(default)]
    disabled: Given<bool>,
}

async fn update(
    _: Identity,
    mut tx: Write,
    input: In<ServiceAccountPath, Empty, Json<ServiceAccountUpdate>>,
) -> Result<Json<ServiceAccount>, Failure> {
    let (path, body) = (input.path, input.body.0);
    let change = AccountChange {
        name: body.name.0,
        role: body.role.0,
        ssh_public_keys: body.ssh_public_keys.0,
        disabled: body.disabled.0,
    };
    let (project, account) = (path.project_id, path.service_account_id);
    Ok(Json(service_account_update(&mut tx, project, account, change, input.if_match).await?))
}

async fn remove(
    _: Identity,
    mut tx: Write,
    input: In<ServiceAccountPath, Empty, ()>,
) -> Result<NoContent, Failure> {
    let path = input.path;
    service_account_delete(&mut tx, path.project_id, path.service_account_id, input.if_match).await?;
    Ok(NoContent)
}
