//! Evaluates balances and budgets when something starts or stops, and not a window later.
//!
//! **How it works.** Whatever opens, closes, pauses or resumes a meter appends a row to `balance_evaluations` in its own
//! transaction and notifies the worker. The worker reads the oldest rows, locks the chains of their organizations, decides
//! states and budgets as the accrual does, and deletes the rows that it read, all in one transaction.
//!
//! **What it promises.** A row is read after its change has committed, so the evaluation sees the change; a row that is
//! written meanwhile has another id and stays. Chains that somebody else has locked are left for the next turn, and so is
//! everything when the worker dies: evaluating again changes nothing. One turn reads a bounded number of rows.

use std::collections::{BTreeMap, HashSet};

use kernel::{CorrelationId, Failure};
use pg::{Origin, Permit, WriteTx};
use uuid::Uuid;

use crate::{
    Billing,
    service::{
        balance::{Because, Rules, evaluate_all},
        budget_watch,
        clock::clock_agrees,
    },
    store::{accounts, evaluations},
};

/// Rows of a turn. Many rows of one organization are one evaluation.
const ROWS: i64 = 5_000;
const ORGS_PER_BATCH: usize = 200;

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueTurn {
    /// Organizations that were evaluated.
    pub evaluated: usize,
    /// Rows are left: somebody else has a chain locked, an organization could not be evaluated, or there were too many.
    pub more: bool,
}

/// One turn over the queue.
pub async fn queue_evaluate(billing: &Billing) -> Result<QueueTurn, Failure> {
    let origin = Origin::internal(CorrelationId(billing.db.ambient().uuid()));
    let permit = Permit::system("find balances to evaluate", origin);
    let queued = evaluations::queued(billing.db.read(&permit).await?.conn(), ROWS).await?;
    if queued.is_empty() {
        return Ok(QueueTurn::default());
    }
    // The month of a budget is that of this clock.
    if !clock_agrees(billing).await? {
        return Ok(QueueTurn { evaluated: 0, more: true });
    }
    let mut turn = QueueTurn { evaluated: 0, more: i64::try_from(queued.len())? == ROWS };
    let mut ids = BTreeMap::<Uuid, Vec<i64>>::new();
    for row in queued {
        ids.entry(row.org).or_default().push(row.id);
    }
    let orgs: Vec<Uuid> = ids.keys().copied().collect();
    for batch in orgs.chunks(ORGS_PER_BATCH) {
        match batch_evaluate(billing, batch, &ids).await {
            Ok(done) => {
                turn.evaluated += done;
                turn.more |= done < batch.len();
            }
            // One of them cannot be evaluated: the others are, each by itself.
            Err(_) => {
                for org in batch {
                    match batch_evaluate(billing, std::slice::from_ref(org), &ids).await {
                        Ok(done) => {
                            turn.evaluated += done;
                            turn.more |= done == 0;
                        }
                        Err(failure) => {
                            tracing::error!(org_id = %org, error = ?failure, "a balance cannot be evaluated");
                            // The next accrual evaluates it anyway; here it would stand in the way of others for ever.
                            let read = ids.get(org).map_or(&[][..], Vec::as_slice);
                            let mut upkeep = billing.db.upkeep("a balance cannot be evaluated").await?;
                            evaluations::remove(upkeep.conn(), read).await?;
                        }
                    }
                }
            }
        }
    }
    Ok(turn)
}

/// Answers how many of these were evaluated or have nothing to evaluate.
async fn batch_evaluate(
    billing: &Billing,
    orgs: &[Uuid],
    ids: &BTreeMap<Uuid, Vec<i64>>,
) -> Result<usize, Failure> {
    let rules = Rules::load(billing, orgs).await?;
    let origin = Origin::internal(CorrelationId(billing.db.ambient().uuid()));
    let permit = Permit::system("meters have started or stopped", origin);
    let mut tx = billing.db.write(permit, "billing.evaluate").await?;
    let (done, changed) = match orgs_evaluate(&mut tx, &rules, orgs).await {
        Ok(outcome) => outcome,
        Err(failure) => {
            // Waited for, so that the chains are free for whoever comes next.
            tx.roll_back().await;
            return Err(failure);
        }
    };
    let read: Vec<i64> = done.iter().filter_map(|org| ids.get(org)).flatten().copied().collect();
    if changed {
        evaluations::remove(tx.conn(), &read).await?;
        tx.commit(None).await?;
    } else {
        // Nothing happened that an audit could show.
        tx.roll_back().await;
        evaluations::remove(billing.db.upkeep("balances were evaluated").await?.conn(), &read).await?;
    }
    Ok(done.len())
}

/// Which were evaluated or have nothing to evaluate, and whether anything changed.
async fn orgs_evaluate(
    tx: &mut WriteTx,
    rules: &Rules,
    orgs: &[Uuid],
) -> Result<(HashSet<Uuid>, bool), Failure> {
    let locked = evaluations::chains_lock(tx, orgs).await?;
    let mut changed = false;
    if !locked.is_empty() {
        let evaluated = evaluate_all(tx, rules, &locked, Because::Meters).await?;
        changed |= evaluated.changed;
        if evaluated.ending {
            accounts::wake_worker(tx).await?;
        }
        changed |= budget_watch::advance(tx, &locked).await?;
    }
    let mut done: HashSet<Uuid> = locked.into_iter().collect();
    if done.len() < orgs.len() {
        done.extend(evaluations::without_chain(tx.conn(), orgs).await?);
    }
    Ok((done, changed))
}
