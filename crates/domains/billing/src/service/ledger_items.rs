//! Postings of a list with amount, direction and what they were for.

use std::collections::HashMap;

use kernel::{Failure, ids::OrgId, ledger::Posting};
use pg::Connection;

use crate::{
    Billing,
    model::{
        account::PostingKind,
        ledger_item::{LedgerAllocation, LedgerItem},
    },
    service::resource_names::{Named, Names},
    store::ledger_items::{self as store, AllocationLine},
};

/// Allocations that one posting of a list names.
const MOST_ALLOCATIONS: usize = 8;
/// Lines that are read for them: an allocation may have two.
const LINES_READ: usize = 2 * MOST_ALLOCATIONS + 1;

pub async fn ledger_items(
    billing: &Billing,
    conn: &mut Connection,
    org: OrgId,
    postings: Vec<Posting>,
) -> Result<Vec<LedgerItem>, Failure> {
    if postings.is_empty() {
        return Ok(Vec::new());
    }
    let seqs: Vec<i64> = postings.iter().map(|posting| posting.seq).collect();
    let before: Vec<i64> = seqs.iter().map(|seq| seq - 1).collect();
    let posted_at: Vec<_> = postings.iter().map(|posting| posting.posted_at).collect();
    let totals = store::totals(conn, org, &before).await?;
    let limit = i64::try_from(LINES_READ)?;
    let lines = store::allocation_lines(conn, org, (&seqs, &posted_at), limit).await?;
    let named = Named {
        allocations: lines.iter().map(|line| line.allocation).collect(),
        projects: lines.iter().filter_map(|line| line.project).collect(),
        skus: lines.iter().filter_map(|line| line.sku.clone()).collect(),
    };
    let names = named.load(billing, conn).await?;
    let mut of_posting: HashMap<i64, Vec<AllocationLine>> = HashMap::new();
    for line in lines {
        of_posting.entry(line.seq).or_default().push(line);
    }
    postings
        .into_iter()
        .map(|posting| {
            let kind: PostingKind = lifecycle::name_parse(&posting.kind)
                .map_err(|_| Failure::bug(format!("a posting of the kind {}", posting.kind)))?;
            let lines = of_posting.remove(&posting.seq).unwrap_or_default();
            let (allocations, more) = distinct(lines, &names);
            let before = totals.get(&(posting.seq - 1)).copied().unwrap_or_default();
            Ok(LedgerItem::new(posting, kind, before, allocations, more))
        })
        .collect()
}

/// Each allocation once, and whether there are more.
fn distinct(lines: Vec<AllocationLine>, names: &Names) -> (Vec<LedgerAllocation>, bool) {
    let cut = lines.len() == LINES_READ;
    let mut found: Vec<LedgerAllocation> = Vec::new();
    for line in lines {
        if found.iter().any(|known| known.allocation_id == line.allocation) {
            continue;
        }
        found.push(LedgerAllocation {
            allocation_id: line.allocation,
            allocation_name: names.allocations.get(&line.allocation).cloned(),
            project_id: line.project,
            project_name: line.project.and_then(|id| names.projects.get(&id)).cloned(),
            product_name: line.sku.as_ref().and_then(|sku| names.products.get(sku)).cloned(),
            sku: line.sku,
            units: line.units,
        });
    }
    let more = cut || found.len() > MOST_ALLOCATIONS;
    found.truncate(MOST_ALLOCATIONS);
    (found, more)
}
