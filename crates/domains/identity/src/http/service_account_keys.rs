//! Keys of a service account.

use endpoint::{Created, Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem,
    ids::{ProjectId, ServiceAccountId, ServiceAccountKeyId},
    policy::keys,
    secret::ShownOnce,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Given, ServiceAccountPath};
use crate::{
    Identity,
    model::service_account::ServiceAccountKey,
    service::{
        policy_cache::Where,
        service_accounts::{
            service_account_key_create, service_account_key_list, service_account_key_revoke,
        },
    },
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/keys";
    const ONE: &str = "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/keys/{key_id}";
    vec![
        get(ALL, "service_account_key_list", "List the keys of a service account")
            .in_scope(ScopeKind::Project)
            .needs(Permission::ServiceAccountRead)
            .handle(identity.clone(), list),
        post(ALL, "service_account_key_create", "Create a key for a service account")
            .describe(
                "The response contains the key, which is shown only once. An account can have several keys, \
                 so that keys can be rotated with overlap.",
            )
            .in_scope(ScopeKind::Project)
            .errors(&[Code::QuotaExceeded])
            .needs(Permission::ServiceAccountManage)
            .audited("service_account_key.create")
            .handle(identity.clone(), create),
        delete(ONE, "service_account_key_revoke", "Revoke a key of a service account")
            .describe("The key and the tokens made from it stop working within five seconds.")
            .in_scope(ScopeKind::Project)
            .needs(Permission::ServiceAccountManage)
            .audited("service_account_key.revoke")
            .handle(identity.clone(), revoke),
    ]
}

async fn list(
    identity: Identity,
    mut tx: ReadTx,
    input: In<ServiceAccountPath, PageQuery, ()>,
) -> Result<Json<Page<ServiceAccountKey>>, Failure> {
    let (path, now) = (input.path, identity.db().ambient().now());
    let (project, account) = (path.project_id, path.service_account_id);
    Ok(Json(service_account_key_list(&mut tx, project, account, &input.query, now).await?))
}

const MAX_DAYS: u16 = 3650;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceAccountKeyCreate {
    /// Days until the key expires (1–3650); it does not expire when absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3650))]
    expires_in_days: Given<u16>,
}

/// A new key with its secret form.
#[derive(Serialize, JsonSchema)]
struct ServiceAccountKeyCreated {
    #[serde(flatten)]
    key: ServiceAccountKey,
    secret: ShownOnce,
}

async fn create(
    identity: Identity,
    mut tx: Write,
    input: In<ServiceAccountPath, Empty, Json<ServiceAccountKeyCreate>>,
) -> Result<Created<ServiceAccountKeyCreated>, Failure> {
    let (path, org, days) = (input.path, input.access.org()?, input.body.0.expires_in_days.0);
    if days.is_some_and(|days| !(1..=MAX_DAYS).contains(&days)) {
        return Err(Problem::field("expires_in_days", "must be from 1 to 3650").into());
    }
    let place = Where { org: Some(org), project: Some(path.project_id), user: None };
    let limit = identity.policies().setting_at(keys::KEYS_PER_SERVICE_ACCOUNT, place).await?;
    let (key, secret) =
        service_account_key_create(&mut tx, (org, path.project_id), path.service_account_id, days, limit)
            .await?;
    Ok(Created(ServiceAccountKeyCreated { key, secret: ShownOnce::new(secret) }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct KeyPath {
    project_id: ProjectId,
    service_account_id: ServiceAccountId,
    key_id: ServiceAccountKeyId,
}

async fn revoke(_: Identity, mut tx: Write, input: In<KeyPath, Empty, ()>) -> Result<NoContent, Failure> {
    let path = input.path;
    service_account_key_revoke(&mut tx, path.project_id, path.service_account_id, path.key_id).await?;
    Ok(NoContent)
}
