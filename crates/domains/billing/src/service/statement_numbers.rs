//! Gives statements their numbers.
//!
//! **How it works.** When a month has ended (by the clock of the database), the billing worker gives a number to the
//! statement of each organization that has a ledger, in one series for the seller, with seller, buyer and tax as they are
//! then. What a statement says of money is always read from the ledger, in which nothing is posted into the past.
//!
//! **What it promises.** A number is given once and never changed: the database refuses it. There is no gap, because each
//! number but the first refers to the one before by a foreign key. Workers take turns, and doing it again gives nothing twice.

use kernel::{CorrelationId, Failure, ids::OrgId};
use pg::{Origin, Permit};

use crate::{
    Billing,
    model::{
        budget::month_of,
        particulars::{Buyer, Particulars},
    },
    service::balance::agreed_time,
    store::statement_numbers::{self as store, Unnumbered},
};

/// Statements of one transaction.
const BATCH: i64 = 1_000;
/// Of one turn; what is left waits for the next.
const BATCHES: usize = 100;

/// Numbers everything whose month has ended. Answers how many.
///
/// None without a seller: a number is for ever, and so are the seller and tax that it was given with.
pub async fn statements_issue(billing: &Billing) -> Result<usize, Failure> {
    if billing.seller.0.is_none() {
        return Ok(0);
    }
    let mut issued = 0;
    for _ in 0..BATCHES {
        let batch = batch_issue(billing).await?;
        issued += batch;
        if batch == 0 {
            break;
        }
    }
    Ok(issued)
}

async fn batch_issue(billing: &Billing) -> Result<usize, Failure> {
    let origin = || Origin::internal(CorrelationId(billing.db.ambient().uuid()));
    let permit = Permit::system("find statements without a number", origin());
    let mut read = billing.db.read(&permit).await?;
    let now = agreed_time(read.conn(), billing.db.ambient().now()).await?;
    let unnumbered = store::unnumbered(read.conn(), month_of(now).0, BATCH).await?;
    if unnumbered.is_empty() {
        return Ok(0);
    }
    let orgs: Vec<OrgId> = unnumbered.iter().map(|one| one.org).collect();
    let names = identity::api::org_names(read.conn(), &orgs).await?;
    drop(read);
    let statements: Vec<(Unnumbered, Particulars)> = unnumbered
        .into_iter()
        .map(|one| {
            let name = names.get(&one.org).cloned().unwrap_or_else(|| one.org.to_string());
            let particulars = particulars(billing, name);
            (one, particulars)
        })
        .collect();
    let permit = Permit::system("number the statements of ended months", origin());
    let mut tx = billing.db.write(permit, "billing.statements_issue").await?;
    let issued = store::issue(&mut tx, &statements, now).await?;
    tx.commit(None).await?;
    Ok(usize::try_from(issued)?)
}

/// As they are now.
pub fn particulars(billing: &Billing, buyer_name: String) -> Particulars {
    let (seller, tax) = billing.seller.as_ref();
    Particulars { buyer: Buyer { name: buyer_name }, seller: seller.clone(), tax: tax.clone() }
}
