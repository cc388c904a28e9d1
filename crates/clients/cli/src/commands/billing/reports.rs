//! Usage, statements and exports.

use chrono::{DateTime, Utc};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use sdk::types;

use super::{Purse, save};
use crate::{
    args::Limit,
    failure::{Failure, Result},
    output::Columns,
    resolve,
};

#[derive(ClapArgs)]
pub struct Usage {
    /// What to tell apart; may be given several times.
    #[arg(long, value_enum)]
    by: Vec<By>,
    /// In steps of this length; all of the time together when not given.
    #[arg(long, value_enum)]
    per: Option<Per>,
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    limit: Limit,
}

#[derive(ClapArgs)]
pub struct Records {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    limit: Limit,
}

/// Which use.
#[derive(ClapArgs)]
pub struct Of {
    /// Only from this time on (RFC 3339).
    #[arg(long, value_name = "TIME")]
    since: Option<DateTime<Utc>>,
    /// Only before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<DateTime<Utc>>,
    /// Only of this product.
    #[arg(long)]
    sku: Option<String>,
    /// Only what this person launched.
    #[arg(long, value_name = "USER")]
    person: Option<String>,
    /// Only of this allocation, by id.
    #[arg(long, value_name = "ID")]
    allocation: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum By {
    Project,
    Person,
    Sku,
    AppInstance,
    Allocation,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Person => "person",
            Self::Sku => "sku",
            Self::AppInstance => "app_instance",
            Self::Allocation => "allocation",
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Per {
    Hour,
    Day,
    Month,
}

impl Per {
    fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Each window of use, one row each.
    Csv,
    /// A month in the columns of FOCUS 1.0.
    Focus,
}

#[derive(ClapArgs)]
pub struct Export {
    #[arg(long, value_enum, default_value = "csv")]
    format: Shape,
    /// The month in which it was posted, such as 2026-11; for FOCUS.
    #[arg(long, value_name = "YYYY-MM", required_if_eq("format", "focus"))]
    month: Option<String>,
    #[command(flatten)]
    of: Of,
    /// Where to; standard output when not given.
    #[arg(short = 'f', long, value_name = "FILE")]
    out: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Page {
    Html,
    Pdf,
}

#[derive(Subcommand)]
pub enum StatementsCommand {
    /// The months there are.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// One of them.
    #[command(visible_alias = "get")]
    Show {
        /// Such as 2026-11.
        month: String,
        /// As a document instead.
        #[arg(long, value_enum)]
        format: Option<Page>,
        /// Where the document goes; standard output when not given.
        #[arg(short = 'f', long, value_name = "FILE", requires = "format")]
        out: Option<String>,
    },
}

const USAGE: Columns = &[
    ("PERIOD", "period_start"),
    ("PROJECT", "project_id"),
    ("PERSON", "person_id"),
    ("SKU", "sku"),
    ("ALLOCATION", "allocation_id"),
    ("UNIT", "unit"),
    ("HOURS", "unit_hours"),
    ("COST", "cost"),
];
const RECORDS: Columns = &[
    ("FROM", "window_start"),
    ("TO", "window_end"),
    ("KIND", "kind"),
    ("SKU", "sku"),
    ("ALLOCATION", "allocation_id"),
    ("UNITS", "units"),
    ("PRICE", "unit_price"),
    ("AMOUNT", "amount"),
    ("SEQ", "seq"),
];
const STATEMENTS: Columns =
    &[("MONTH", "month"), ("OPENING", "opening"), ("CLOSING", "closing"), ("PROVISIONAL", "provisional")];

/// The project is that of `-p`, and only that: a report is about the whole organization otherwise.
async fn project(purse: &Purse<'_>) -> Result<Option<String>> {
    match &purse.app.given.project {
        Some(given) => Ok(Some(resolve::project_named(purse.app, purse.client, given).await?)),
        None => Ok(None),
    }
}

macro_rules! narrowed {
    ($request:expr, $of:expr) => {{
        let mut request = $request;
        filter!(
            request,
            from = $of.since,
            to = $of.until,
            sku = $of.sku.clone(),
            person_id = $of.person.clone(),
            allocation_id = $of.allocation.clone(),
        );
        request
    }};
}

pub async fn usage(purse: &Purse<'_>, usage: Usage) -> Result {
    let (client, org) = (purse.client, purse.org.as_str());
    let group = usage.by.iter().map(|by| by.name()).collect::<Vec<_>>().join(",");
    let group = (!group.is_empty()).then_some(group);
    let every = usage.per.map(Per::name);
    let of = &usage.of;
    let found: Vec<types::UsageRow> = match project(purse).await? {
        Some(project) => pages!(usage.limit.get(), {
            let mut request = narrowed!(client.project_usage_report().project_id(project.as_str()), of);
            filter!(request, group = group.clone(), every = every);
            request
        })?,
        None => pages!(usage.limit.get(), {
            let mut request = narrowed!(client.usage_report().org_id(org), of);
            filter!(request, group = group.clone(), every = every);
            request
        })?,
    };
    purse.app.out.priced(&found, USAGE)
}

pub async fn records(purse: &Purse<'_>, records: Records) -> Result {
    let (client, org, of) = (purse.client, purse.org.as_str(), &records.of);
    let found: Vec<types::UsageRecord> = match project(purse).await? {
        Some(project) => pages!(
            records.limit.get(),
            narrowed!(client.project_usage_record_list().project_id(project.as_str()), of)
        )?,
        None => pages!(records.limit.get(), narrowed!(client.usage_record_list().org_id(org), of))?,
    };
    purse.app.out.priced(&found, RECORDS)
}

pub async fn export(purse: &Purse<'_>, export: Export) -> Result {
    let (client, org, out) = (purse.client, purse.org.as_str(), export.out.as_deref());
    if export.format == Shape::Focus {
        let Some(month) = export.month else {
            return Err(Failure::client("--month is needed, such as 2026-11"));
        };
        return save(send!(client.focus_export().org_id(org).month(month)), out).await;
    }
    let of = &export.of;
    let mut request = narrowed!(client.usage_export().org_id(org), of);
    filter!(request, project_id = project(purse).await?);
    save(send!(request), out).await
}

pub async fn statements(purse: &Purse<'_>, command: StatementsCommand) -> Result {
    let (app, client, org) = (purse.app, purse.client, purse.org.as_str());
    match command {
        StatementsCommand::List { limit } => {
            let found: Vec<types::StatementSummary> =
                pages!(limit.get(), client.statement_list().org_id(org))?;
            app.out.priced(&found, STATEMENTS)
        }
        StatementsCommand::Show { month, format: None, .. } => {
            app.out.priced_item(&send!(client.statement_get().org_id(org).month(month)), STATEMENTS)
        }
        StatementsCommand::Show { month, format: Some(Page::Html), out } => {
            save(send!(client.statement_html().org_id(org).month(month)), out.as_deref()).await
        }
        StatementsCommand::Show { month, format: Some(Page::Pdf), out } => {
            save(send!(client.statement_pdf().org_id(org).month(month)), out.as_deref()).await
        }
    }
}
