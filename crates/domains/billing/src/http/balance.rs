//! The balance of an organization.

use endpoint::{Empty, Endpoint, In, Json, OrgPath, ScopeKind, get};
use kernel::{Failure, Permission};
use pg::ReadTx;

use crate::{
    Billing,
    service::ledger::{Balance, balance_get},
};

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/orgs/{org_id}/billing/balance",
            "billing_balance_get",
            "Show the balance of an organization",
        )
        .describe(
            "Amounts are those of the last posting; what is used and not posted is beside them, and decides the \
             state and the time of depletion.",
        )
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), show),
    ]
}

async fn show(
    billing: Billing,
    mut tx: ReadTx,
    input: In<OrgPath, Empty, ()>,
) -> Result<Json<Balance>, Failure> {
    Ok(Json(balance_get(&billing, &mut tx, input.path.org_id).await?))
}
