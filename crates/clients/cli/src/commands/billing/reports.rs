//! Usage, statements and exports.

use chrono::{DateTime, Utc};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use sdk::types;

use super::{Purse, save};
use crate::{
    args::Limit,
    commands::optional,
    failure::{Failure, Result},
    output::Columns,
    resolve,
    resources::{
        kinds,
        names::{self, Scope},
    },
};

#[derive(ClapArgs)]
pub struct Usage {
    /// Dimension to group by; may be given several times.
    #[arg(long, value_enum)]
    by: Vec<By>,
    /// Interval of the rows; one total for the whole period by default.
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

/// Filters of usage.
#[derive(ClapArgs)]
pub struct Of {
    /// Only usage at or after this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    since: Option<DateTime<Utc>>,
    /// Only usage before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<DateTime<Utc>>,
    /// Only usage of this product.
    #[arg(long)]
    sku: Option<String>,
    /// Only usage of allocations that this member launched, by e-mail address or id.
    #[arg(long, value_name = "USER")]
    person: Option<String>,
    /// Only usage of this allocation, by id, or by its name in the project.
    #[arg(long, value_name = "ALLOCATION")]
    allocation: Option<String>,
}

/// The values of [`Of`] as parameters of the client.
struct Narrowed<'a> {
    allocation: Option<String>,
    from: Option<&'a DateTime<Utc>>,
    person: Option<String>,
    sku: Option<&'a str>,
    to: Option<&'a DateTime<Utc>>,
}

impl Of {
    async fn narrowed(&self, purse: &Purse<'_>) -> Result<Narrowed<'_>> {
        let Purse { app, client, org } = purse;
        let allocation = match &self.allocation {
            Some(text) if kinds::ALLOCATION.is_id(text) => Some(text.clone()),
            Some(text) => {
                Some(resolve::allocation(client, &resolve::project(app, client).await?, text).await?)
            }
            None => None,
        };
        let person =
            resolve::optional(client, &kinds::MEMBER, &[("org", org)], self.person.as_deref()).await?;
        let (from, to) = (self.since.as_ref(), self.until.as_ref());
        Ok(Narrowed { allocation, from, person, sku: self.sku.as_deref(), to })
    }
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
    /// Usage records, one row per window.
    Csv,
    /// One month in FOCUS 1.0 columns.
    Focus,
}

#[derive(ClapArgs)]
pub struct Export {
    /// Form of the export.
    #[arg(long, value_enum, default_value = "csv")]
    format: Shape,
    /// Posting month, such as 2026-11; required for FOCUS.
    #[arg(long, value_name = "YYYY-MM", required_if_eq("format", "focus"))]
    month: Option<String>,
    #[command(flatten)]
    of: Of,
    /// Output file; standard output by default.
    #[arg(short = 'f', long = "file", alias = "out", value_name = "FILE")]
    out: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Page {
    Html,
    Pdf,
}

#[derive(Subcommand)]
pub enum StatementsCommand {
    /// List the months that have a statement.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show the statement of a month.
    #[command(alias = "get")]
    Show {
        /// Month, such as 2026-11.
        month: String,
        /// Write it as a document of this format instead.
        #[arg(long, value_enum)]
        format: Option<Page>,
        /// Output file of the document; standard output by default.
        #[arg(short = 'f', long = "file", alias = "out", value_name = "FILE", requires = "format")]
        out: Option<String>,
    },
}

const USAGE: Columns = &[
    ("PERIOD", "period_start"),
    ("PROJECT", "project_id"),
    ("SKU", "sku"),
    ("COST", "cost"),
    ("HOURS", "unit_hours"),
    ("UNIT", "unit"),
    ("PERSON", "person_id"),
    ("ALLOCATION", "allocation_id"),
];
const RECORDS: Columns = &[
    ("ALLOCATION", "allocation_id"),
    ("SKU", "sku"),
    ("FROM", "window_start"),
    ("TO", "window_end"),
    ("UNITS", "units"),
    ("AMOUNT", "amount"),
    ("PRICE", "unit_price"),
    ("KIND", "kind"),
    ("SEQ", "seq"),
];
const STATEMENTS: Columns = &[
    ("MONTH", "month"),
    ("NUMBER", "number"),
    ("OPENING", "opening"),
    ("CLOSING", "closing"),
    ("PROVISIONAL", "provisional"),
];

/// Only an explicit `-p` filters by project: otherwise a report covers the whole organization.
async fn project(purse: &Purse<'_>) -> Result<Option<String>> {
    match &purse.app.given.project {
        Some(given) => Ok(Some(resolve::project_named(purse.app, purse.client, given).await?)),
        None => Ok(None),
    }
}

/// Names of the projects, people and allocations in a report.
async fn learn<T: serde::Serialize>(purse: &Purse<'_>, rows: &[T]) {
    names::learn(purse.app, purse.client, &Scope::Org(&purse.org), rows).await;
}

pub async fn usage(purse: &Purse<'_>, usage: Usage) -> Result {
    let (client, org) = (purse.client, purse.org.as_str());
    let group = usage.by.iter().map(|by| by.name()).collect::<Vec<_>>().join(",");
    let group = (!group.is_empty()).then_some(group.as_str());
    let every = usage.per.map(Per::name);
    let Narrowed { allocation, from, person, sku, to } = usage.of.narrowed(purse).await?;
    let (allocation, person) = (allocation.as_deref(), person.as_deref());
    let found: Vec<types::UsageRow> = match project(purse).await? {
        Some(project) => {
            let every = optional("--per", every)?;
            pages!(usage.limit.get(), |page| client.project_usage_report(
                &project,
                allocation,
                page.cursor(),
                every,
                from,
                group,
                page.size(),
                person,
                sku,
                to
            ))?
        }
        None => {
            let (every, project) = (optional("--per", every)?, None);
            pages!(usage.limit.get(), |page| client.usage_report(
                org,
                allocation,
                page.cursor(),
                every,
                from,
                group,
                page.size(),
                person,
                project,
                sku,
                to
            ))?
        }
    };
    learn(purse, &found).await;
    purse.app.out.priced(&found, USAGE)
}

pub async fn records(purse: &Purse<'_>, records: Records) -> Result {
    let (client, org) = (purse.client, purse.org.as_str());
    let Narrowed { allocation, from, person, sku, to } = records.of.narrowed(purse).await?;
    let (allocation, person) = (allocation.as_deref(), person.as_deref());
    let found: Vec<types::UsageRecord> = match project(purse).await? {
        Some(project) => pages!(records.limit.get(), |page| client.project_usage_record_list(
            &project,
            allocation,
            page.cursor(),
            from,
            page.size(),
            person,
            sku,
            to
        ))?,
        None => {
            let (posted_from, posted_to, project) = (None, None, None);
            pages!(records.limit.get(), |page| client.usage_record_list(
                org,
                allocation,
                page.cursor(),
                from,
                page.size(),
                person,
                posted_from,
                posted_to,
                project,
                sku,
                to
            ))?
        }
    };
    learn(purse, &found).await;
    purse.app.out.priced(&found, RECORDS)
}

pub async fn export(purse: &Purse<'_>, export: Export) -> Result {
    let (client, org, out) = (purse.client, purse.org.as_str(), export.out.as_deref());
    if export.format == Shape::Focus {
        let Some(month) = export.month else {
            return Err(Failure::client("--month is required, such as 2026-11"));
        };
        return save(send!(client.focus_export(org, &month)), out).await;
    }
    let Narrowed { allocation, from, person, sku, to } = export.of.narrowed(purse).await?;
    let (allocation, person) = (allocation.as_deref(), person.as_deref());
    let (posted_from, posted_to, project) = (None, None, project(purse).await?);
    let exported = client.usage_export(
        org,
        allocation,
        from,
        person,
        posted_from,
        posted_to,
        project.as_deref(),
        sku,
        to,
    );
    save(send!(exported), out).await
}

pub async fn statements(purse: &Purse<'_>, command: StatementsCommand) -> Result {
    let (app, client, org) = (purse.app, purse.client, purse.org.as_str());
    match command {
        StatementsCommand::List { limit } => {
            let found: Vec<types::StatementSummary> =
                pages!(limit.get(), |page| client.statement_list(org, page.cursor(), page.size()))?;
            app.out.priced(&found, STATEMENTS)
        }
        StatementsCommand::Show { month, format: None, .. } => {
            app.out.priced_item(&send!(client.statement_get(org, &month)), STATEMENTS)
        }
        StatementsCommand::Show { month, format: Some(Page::Html), out } => {
            save(send!(client.statement_html(org, &month)), out.as_deref()).await
        }
        StatementsCommand::Show { month, format: Some(Page::Pdf), out } => {
            save(send!(client.statement_pdf(org, &month)), out.as_deref()).await
        }
    }
}
