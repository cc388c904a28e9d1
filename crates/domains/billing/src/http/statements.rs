//! Monthly statements.

use endpoint::{Empty, Endpoint, Html, In, Json, OrgPath, Pdf, ScopeKind, get};
use kernel::{Failure, Page, PageQuery, Permission, ids::OrgId};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Billing,
    model::{
        report::Month,
        statement::{Statement, StatementSummary},
        statement_page::StatementPage,
    },
    service::{
        html::html,
        pdf::pdf,
        statements::{statement_get, statement_list},
    },
};

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    const WHAT: &str = "Opening balance, postings of the month (UTC), closing balance. The current month has \
                        a provisional statement.";
    vec![
        get("/api/v1/orgs/{org_id}/billing/statements", "statement_list", "List the monthly statements")
            .describe("All months since the first posting, newest first.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(billing.clone(), list),
        get(
            "/api/v1/orgs/{org_id}/billing/statements/{month}",
            "statement_get",
            "Show the statement of a month",
        )
        .describe(WHAT)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), show),
        get(
            "/api/v1/orgs/{org_id}/billing/statements/{month}/html",
            "statement_html",
            "Show a statement as a page",
        )
        .describe(WHAT)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), show_html),
        get(
            "/api/v1/orgs/{org_id}/billing/statements/{month}/pdf",
            "statement_pdf",
            "Show a statement as PDF",
        )
        .describe(WHAT)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), show_pdf),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct StatementPath {
    org_id: OrgId,
    month: Month,
}

async fn list(
    billing: Billing,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<StatementSummary>>, Failure> {
    Ok(Json(statement_list(&billing, &mut tx, input.path.org_id, &input.query).await?))
}

async fn show(
    billing: Billing,
    mut tx: ReadTx,
    input: In<StatementPath, Empty, ()>,
) -> Result<Json<Statement>, Failure> {
    Ok(Json(statement_get(&billing, &mut tx, input.path.org_id, input.path.month).await?))
}

async fn show_html(
    billing: Billing,
    mut tx: ReadTx,
    input: In<StatementPath, Empty, ()>,
) -> Result<Html, Failure> {
    let statement = statement_get(&billing, &mut tx, input.path.org_id, input.path.month).await?;
    Ok(Html(html(&StatementPage::from_statement(&statement))))
}

async fn show_pdf(
    billing: Billing,
    mut tx: ReadTx,
    input: In<StatementPath, Empty, ()>,
) -> Result<Pdf, Failure> {
    let statement = statement_get(&billing, &mut tx, input.path.org_id, input.path.month).await?;
    Ok(Pdf(pdf(&StatementPage::from_statement(&statement))?))
}
