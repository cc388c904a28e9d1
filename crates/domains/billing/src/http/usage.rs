//! What was used and what it cost: added up, one by one, and as files.

use endpoint::{Access, Csv, Endpoint, Given, In, Json, OrgPath, ProjectPath, ScopeKind, get};
use kernel::{
    Failure, Page, Permission, Problem,
    ids::{AllocationId, OrgId, ProjectId, UserId},
    text::Term,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::{
    Billing,
    model::report::{Every, Groups, Moment, Month, Place, Span, UsageRecord, UsageRow},
    service::reports::{Filter, Records, Sums, focus_export, usage_export, usage_record_list, usage_report},
};

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    const REPORT: &str = "Summed by `group` (some of org, project, person, sku, app_instance, allocation) and by hour, \
                          day or month (`every`, UTC), of windows that begin between `from` and `to`. Credits \
                          are subtracted. Always grouped by unit as well.";
    const RECORDS: &str = "One record per window and meter, in posting order.";
    const FOCUS: &str = "CSV with the columns of FOCUS 1.0: every charge and credit posted in the month. \
                         `BilledCost` sums to exactly the revenue less the credits of the ledger.";
    vec![
        get(
            "/api/v1/orgs/{org_id}/billing/usage",
            "usage_report",
            "Report usage and cost of an organization",
        )
        .describe(REPORT)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), org_report),
        get(
            "/api/v1/orgs/{org_id}/billing/usage/records",
            "usage_record_list",
            "List metered windows of an organization",
        )
        .describe(RECORDS)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), org_records),
        get("/api/v1/orgs/{org_id}/billing/usage/export", "usage_export", "Export metered windows as CSV")
            .describe(RECORDS)
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(billing.clone(), export),
        get(
            "/api/v1/orgs/{org_id}/billing/focus/{month}",
            "focus_export",
            "Export the charges of a month as FOCUS",
        )
        .describe(FOCUS)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), focus),
        get(
            "/api/v1/projects/{project_id}/usage",
            "project_usage_report",
            "Report usage and cost of a project",
        )
        .describe(REPORT)
        .in_scope(ScopeKind::Project)
        .needs(Permission::UsageRead)
        .handle(billing.clone(), project_report),
        get(
            "/api/v1/projects/{project_id}/usage/records",
            "project_usage_record_list",
            "List metered windows of a project",
        )
        .describe(RECORDS)
        .in_scope(ScopeKind::Project)
        .needs(Permission::UsageRead)
        .handle(billing.clone(), project_records),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct MonthPath {
    org_id: OrgId,
    month: Month,
}

const MOST_ROWS: i64 = 1000;

/// How many rows are wanted.
#[derive(Clone, Copy)]
struct Rows(i64);

impl Default for Rows {
    fn default() -> Self {
        Self(200)
    }
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let rows = text.parse().ok().filter(|rows| (1..=MOST_ROWS).contains(rows));
        rows.map(Self).ok_or_else(|| serde::de::Error::custom("must be an integer from 1 to 1000"))
    }
}

impl JsonSchema for Rows {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Rows".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": MOST_ROWS })
    }
}

/// The parameters of the lists. (A macro: a query string cannot be flattened.)
macro_rules! usage_query {
    ($name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        #[derive(Deserialize, JsonSchema)]
        #[schemars(inline)]
        struct $name {
            $($(#[$doc])* #[serde(default)] $field: Given<$kind>,)*
            /// Only what was used from this time on.
            #[serde(default)]
            from: Given<Moment>,
            /// Only what was used before this time.
            #[serde(default)]
            to: Given<Moment>,
            /// Only what this person launched.
            #[serde(default)]
            person_id: Given<UserId>,
            /// Only this product.
            #[serde(default)]
            sku: Given<Term>,
            /// Only this allocation.
            #[serde(default)]
            allocation_id: Given<AllocationId>,
        }

        impl $name {
            fn filter(&self, project: Option<ProjectId>) -> Filter {
                Filter {
                    project,
                    person: self.person_id.0,
                    sku: self.sku.0.as_ref().map(Term::to_string),
                    allocation: self.allocation_id.0,
                }
            }
        }
    };
}

usage_query!(OrgReportQuery {
    group: Groups,
    every: Every,
    /// At most this many rows (1–1000).
    page_size: Rows,
    /// `next_cursor` of the previous page.
    cursor: Place,
    /// Only this project.
    project_id: ProjectId,
});
usage_query!(ProjectReportQuery {
    group: Groups,
    every: Every,
    /// At most this many rows (1–1000).
    page_size: Rows,
    /// `next_cursor` of the previous page.
    cursor: Place,
});
usage_query!(OrgRecordsQuery {
    /// At most this many records (1–1000).
    page_size: Rows,
    /// `next_cursor` of the previous page.
    cursor: Place,
    /// Only this project.
    project_id: ProjectId,
    /// Only what was posted from this time on.
    posted_from: Moment,
    /// Only what was posted before this time.
    posted_to: Moment,
});
usage_query!(ProjectRecordsQuery {
    /// At most this many records (1–1000).
    page_size: Rows,
    /// `next_cursor` of the previous page.
    cursor: Place,
});
usage_query!(ExportQuery {
    /// Only this project.
    project_id: ProjectId,
    /// Only what was posted from this time on.
    posted_from: Moment,
    /// Only what was posted before this time.
    posted_to: Moment,
});

async fn org_report(
    _: Billing,
    mut tx: ReadTx,
    input: In<OrgPath, OrgReportQuery, ()>,
) -> Result<Json<Page<UsageRow>>, Failure> {
    let (org, query) = (input.path.org_id, input.query);
    let filter = query.filter(query.project_id.0);
    let span = Span::from_bounds(query.from.0, query.to.0)?;
    let sums = Sums { groups: query.group.0.unwrap_or_default(), every: query.every.0, span };
    let limit = query.page_size.0.unwrap_or_default().0 + 1;
    Ok(Json(usage_report(&mut tx, org, &sums, &filter, query.cursor.0, limit).await?))
}

async fn project_report(
    _: Billing,
    mut tx: ReadTx,
    input: In<ProjectPath, ProjectReportQuery, ()>,
) -> Result<Json<Page<UsageRow>>, Failure> {
    let ((org, project), query) = (place(&input.access)?, input.query);
    let filter = query.filter(Some(project));
    let span = Span::from_bounds(query.from.0, query.to.0)?;
    let sums = Sums { groups: query.group.0.unwrap_or_default(), every: query.every.0, span };
    let limit = query.page_size.0.unwrap_or_default().0 + 1;
    Ok(Json(usage_report(&mut tx, org, &sums, &filter, query.cursor.0, limit).await?))
}

fn place(access: &Access) -> Result<(OrgId, ProjectId), Problem> {
    Ok((access.org()?, access.project()?))
}

async fn org_records(
    _: Billing,
    mut tx: ReadTx,
    input: In<OrgPath, OrgRecordsQuery, ()>,
) -> Result<Json<Page<UsageRecord>>, Failure> {
    let query = input.query;
    let records = Records {
        org: input.path.org_id,
        filter: query.filter(query.project_id.0),
        used: Span::from_bounds(query.from.0, query.to.0)?,
        posted: Span::from_bounds(query.posted_from.0, query.posted_to.0)?,
    };
    let limit = query.page_size.0.unwrap_or_default().0 + 1;
    Ok(Json(usage_record_list(&mut tx, &records, query.cursor.0, limit).await?))
}

async fn project_records(
    _: Billing,
    mut tx: ReadTx,
    input: In<ProjectPath, ProjectRecordsQuery, ()>,
) -> Result<Json<Page<UsageRecord>>, Failure> {
    let ((org, project), query) = (place(&input.access)?, input.query);
    let records = Records {
        org,
        filter: query.filter(Some(project)),
        used: Span::from_bounds(query.from.0, query.to.0)?,
        posted: Span::from_bounds(None, None)?,
    };
    let limit = query.page_size.0.unwrap_or_default().0 + 1;
    Ok(Json(usage_record_list(&mut tx, &records, query.cursor.0, limit).await?))
}

async fn export(billing: Billing, tx: ReadTx, input: In<OrgPath, ExportQuery, ()>) -> Result<Csv, Failure> {
    let query = input.query;
    let records = Records {
        org: input.path.org_id,
        filter: query.filter(query.project_id.0),
        used: Span::from_bounds(query.from.0, query.to.0)?,
        posted: Span::from_bounds(query.posted_from.0, query.posted_to.0)?,
    };
    Ok(Csv(usage_export(billing.db().clone(), tx.permit().clone(), records)))
}

async fn focus(
    billing: Billing,
    tx: ReadTx,
    input: In<MonthPath, endpoint::Empty, ()>,
) -> Result<Csv, Failure> {
    let records = Records::of_month(input.path.org_id, input.path.month)?;
    Ok(Csv(focus_export(billing.db().clone(), tx.permit().clone(), records)))
}
