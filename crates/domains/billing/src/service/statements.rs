//! Statements: read from the ledger, up to one posting, so that what is shown belongs together while the ledger grows.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use kernel::{Failure, Page, PageQuery, Problem, ids::OrgId};
use pg::ReadTx;
use uuid::Uuid;

use crate::{
    Billing,
    model::{
        report::Month,
        statement::{
            MOST_MOVEMENTS, Statement, StatementMovement, StatementSummary, StatementUsage, number_text,
            whole,
        },
    },
    service::{resource_names::Named, statement_numbers::particulars},
    store::{statement_numbers, statements as store},
};

pub async fn statement_get(
    billing: &Billing,
    tx: &mut ReadTx,
    org: OrgId,
    month: Month,
) -> Result<Statement, Failure> {
    let span = month.span();
    let closing = store::position_before(tx.conn(), org, span.to).await?;
    let Some(closing) = closing else {
        return Err(Problem::not_found("statement")
            .suggest("Nothing was posted in or before that month.")
            .into());
    };
    if month > Month::containing(billing.db.ambient().now()) && closing.posted_at < span.from {
        return Err(Problem::not_found("statement").suggest("That month has not started.").into());
    }
    let opening = store::position_before(tx.conn(), org, span.from).await?;
    let opening = opening.map(|at| at.balances).unwrap_or_default();
    let changes = store::changes(tx.conn(), org, span, closing.seq).await?;
    let mut usage = store::usage(tx.conn(), org, span, closing.seq).await?;
    let (mut movements, all) = store::movements(tx.conn(), org, span, closing.seq, MOST_MOVEMENTS).await?;
    name_all(billing, tx, &mut usage, &mut movements).await?;
    let issued = statement_numbers::issued(tx.conn(), org, span.from.date_naive()).await?;
    let (number, particulars) = match issued {
        Some(issued) => (Some((issued.number, issued.issued_at)), issued.particulars),
        None => {
            let name = identity::api::org_names(tx.conn(), &[org]).await?.remove(&org);
            (None, particulars(billing, name.unwrap_or_else(|| org.to_string())))
        }
    };
    let charged: i64 = usage.iter().map(|used| used.amount_minor).sum();
    Ok(Statement {
        number: number.map(|(number, _)| number_text(number)),
        issued_at: number.map(|(_, at)| at),
        org_id: org,
        buyer: particulars.buyer,
        seller: particulars.seller,
        tax: particulars.tax.map(|rule| rule.tax(charged)),
        month,
        currency: closing.currency,
        provisional: span.to > billing.db.ambient().now(),
        through_seq: closing.seq,
        opening,
        opening_minor: whole(opening),
        changes,
        closing: closing.balances,
        closing_minor: whole(closing.balances),
        movements_left_out: all - i64::try_from(movements.len())?,
        usage,
        movements,
    })
}

/// Projects, products and allocations by name, as far as they are known.
async fn name_all(
    billing: &Billing,
    tx: &mut ReadTx,
    usage: &mut [StatementUsage],
    movements: &mut [StatementMovement],
) -> Result<(), Failure> {
    let named = Named {
        allocations: movements.iter().filter_map(|moved| moved.allocation_id).collect(),
        projects: usage.iter().map(|used| used.project_id).collect(),
        skus: usage.iter().map(|used| used.sku.clone()).collect(),
    };
    let names = named.load(billing, tx.conn()).await?;
    for used in usage {
        used.project_name = names.projects.get(&used.project_id).cloned();
        used.product_name = names.products.get(&used.sku).cloned();
    }
    for moved in movements {
        moved.allocation_name = moved.allocation_id.and_then(|id| names.allocations.get(&id)).cloned();
    }
    Ok(())
}

/// Every month from the first posting on, newest first.
pub async fn statement_list(
    billing: &Billing,
    tx: &mut ReadTx,
    org: OrgId,
    page: &PageQuery,
) -> Result<Page<StatementSummary>, Failure> {
    let Some(first) = store::first_posted(tx.conn(), org).await? else {
        return Ok(Page { items: Vec::new(), next_cursor: None });
    };
    let now = billing.db.ambient().now();
    let last = store::last_posted(tx.conn(), org).await?.map_or(now, |last| last.max(now));
    let months = months(first, last, page);
    let bounds: Vec<_> = months.iter().map(|month| month.span()).collect();
    let balances = store::span_balances(tx.conn(), org, &bounds).await?;
    let first_days: Vec<_> = bounds.iter().map(|span| span.from.date_naive()).collect();
    let numbers: HashMap<_, _> =
        statement_numbers::numbers(tx.conn(), org, &first_days).await?.into_iter().collect();
    let items: Vec<StatementSummary> = months
        .iter()
        .zip(balances)
        .map(|(month, (opening, closing, currency))| StatementSummary {
            number: numbers.get(&month.span().from.date_naive()).map(|number| number_text(*number)),
            month: *month,
            currency,
            provisional: month.span().to > now,
            opening_minor: opening,
            closing_minor: closing,
        })
        .collect();
    Ok(page.page(items, |item| key(item.month)))
}

fn key(month: Month) -> Uuid {
    Uuid::from_u128(u128::from(month.number()))
}

/// The months of a page, newest first, and one more when there is.
fn months(first: DateTime<Utc>, last: DateTime<Utc>, page: &PageQuery) -> Vec<Month> {
    let (mut month, end) = (Month::containing(first), Month::containing(last));
    let mut months = Vec::new();
    while month <= end && month < month.next() {
        if key(month) < page.before() {
            months.push(month);
        }
        month = month.next();
    }
    months.reverse();
    months.truncate(usize::try_from(page.limit()).unwrap_or(usize::MAX));
    months
}
