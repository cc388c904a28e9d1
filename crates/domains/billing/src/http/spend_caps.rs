//! Spend caps of service accounts.

use endpoint::{Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get, put};
use kernel::{
    Code, Failure, Permission,
    ids::{ProjectId, ServiceAccountId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Billing,
    model::spend_cap::SpendCap,
    service::spend_caps::{AccountPlace, spend_cap_delete, spend_cap_get, spend_cap_set},
};

const CAP: &str = "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/spend-cap";

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    vec![
        get(CAP, "spend_cap_get", "Show the spend cap of a service account")
            .in_scope(ScopeKind::Project)
            .needs(Permission::UsageRead)
            .handle(billing.clone(), show),
        put(CAP, "spend_cap_set", "Set the spend cap of a service account")
            .describe("For a calendar month (UTC). A launch that the rest of the cap does not cover is refused; when the cap is reached, the account's allocations are released and people are notified.")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::Conflict])
            .needs(Permission::BudgetManage)
            .audited("spend_cap.set")
            .handle(billing.clone(), set),
        delete(CAP, "spend_cap_delete", "Remove the spend cap of a service account")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::Conflict])
            .needs(Permission::BudgetManage)
            .audited("spend_cap.delete")
            .handle(billing.clone(), remove),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AccountPath {
    project_id: ProjectId,
    service_account_id: ServiceAccountId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SpendCapSet {
    amount_minor: i64,
}

fn place<Q, B>(input: &In<AccountPath, Q, B>) -> Result<AccountPlace, Failure> {
    let AccountPath { project_id, service_account_id } = input.path;
    Ok(AccountPlace { org: input.access.org()?, project: project_id, account: service_account_id })
}

async fn show(
    billing: Billing,
    mut tx: ReadTx,
    input: In<AccountPath, Empty, ()>,
) -> Result<Json<SpendCap>, Failure> {
    Ok(Json(spend_cap_get(&billing, &mut tx, place(&input)?).await?))
}

async fn set(
    billing: Billing,
    mut tx: Write,
    input: In<AccountPath, Empty, Json<SpendCapSet>>,
) -> Result<Json<SpendCap>, Failure> {
    let place = place(&input)?;
    Ok(Json(spend_cap_set(&billing, &mut tx, place, input.body.0.amount_minor, input.if_match).await?))
}

async fn remove(
    billing: Billing,
    mut tx: Write,
    input: In<AccountPath, Empty, ()>,
) -> Result<NoContent, Failure> {
    let place = place(&input)?;
    spend_cap_delete(&billing, &mut tx, place, input.if_match).await?;
    Ok(NoContent)
}
