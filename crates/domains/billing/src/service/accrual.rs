//! Turns what meters ran into usage and postings.
//!
//! **How it works.** A tick accrues every meter up to the last whole window. It asks which organizations have something
//! due, packs them into batches, and each batch is one transaction: one statement accrues it (`meters_accrue`), the
//! states and budgets of its organizations are decided from the outcome, and all of it is committed or nothing. A meter
//! moves by at most an hour at a time, so the tick goes round until nothing is due: that is how an outage is caught up.
//!
//! **What it promises.** Where a meter stands is in its row and moves with the posting, so a tick that is cut off
//! anywhere is simply done again, and organizations that another worker is at are left to it. A batch that cannot be
//! done is cut in two until the organization that it is about stands alone; the others go on.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard},
};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use futures_util::future::join_all;
use identity::api::Where;
use kernel::{CorrelationId, Failure, policy::keys};
use pg::{Origin, Permit, WriteTx};
use uuid::Uuid;

use crate::{
    Billing,
    model::budget::month_of,
    service::{
        balance::{Because, Rules, evaluate_all},
        budget_watch,
        clock::clock_agrees,
    },
    store::{
        accounts, budgets,
        meters::{self, Accrued, Beyond, Due},
    },
};

/// Meters of a batch: as many as are accrued in about a second, for which the chains are held.
const METERS_PER_BATCH: i64 = 20_000;
const ORGS_PER_BATCH: usize = 500;
/// Batches that are under way at once. They are of different organizations, so none waits for another.
const AT_ONCE: usize = 2;
/// Rounds of a tick; each moves every meter by up to an hour. What is left then is for the next tick.
const ROUNDS: usize = 400;
/// Meters that are taken back, and organizations that are looked at for another reason than use, in one tick.
const REWINDS: i64 = 1_000;
const OTHERS: i64 = 1_000;

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    pub windows: u64,
    pub posted_minor: i64,
    /// Meters of which something was taken back.
    pub rewound: u64,
    /// How far the oldest meter was behind when the tick began.
    pub lag_seconds: i64,
    /// Something is left: another worker was at it, or there was too much for one tick.
    pub more: bool,
    /// Nothing was done: the clock of this process is not that of the database.
    pub clock_skewed: bool,
}

/// Accrues everything up to the last whole window, and what ended before its balance did up to now.
pub async fn tick(billing: &Billing) -> Result<Ticked, Failure> {
    if !clock_agrees(billing).await? {
        return Ok(Ticked { clock_skewed: true, ..Ticked::default() });
    }
    let now = billing.db.ambient().now();
    let window = window_seconds(billing).await?;
    let mut ticked = Ticked { rewound: rewind(billing).await?, ..Ticked::default() };
    accrue(billing, window_floor(now, window), None, &mut ticked).await?;
    budgets_changed(billing, now, window).await?;
    ticked.more |= end(billing, &mut ticked).await?;
    Ok(ticked)
}

/// The length of a window, as the policy has it now.
pub async fn window_seconds(billing: &Billing) -> Result<i64, Failure> {
    let key = keys::BILLING_WINDOW_SECONDS;
    Ok(billing.policies.setting_at(key, Where::default()).await?.get().max(1))
}

/// The end of the last whole window. Windows are counted from the epoch, so that all workers cut time alike.
pub fn window_floor(now: DateTime<Utc>, window_seconds: i64) -> DateTime<Utc> {
    let now = now.trunc_subsecs(0);
    now - TimeDelta::seconds(now.timestamp().rem_euclid(window_seconds.max(1)))
}

async fn write(billing: &Billing, action: &'static str) -> Result<WriteTx, Failure> {
    let origin = Origin::internal(CorrelationId(billing.db.ambient().uuid()));
    Ok(billing.db.write(Permit::system("meters are accrued", origin), action).await?)
}

async fn read(billing: &Billing) -> Result<pg::ReadTx, Failure> {
    let origin = Origin::internal(CorrelationId(billing.db.ambient().uuid()));
    Ok(billing.db.read(&Permit::system("find meters that are due", origin)).await?)
}

/// Round after round until nothing is due, of all organizations or of some.
async fn accrue(
    billing: &Billing,
    target: DateTime<Utc>,
    only: Option<&HashSet<Uuid>>,
    ticked: &mut Ticked,
) -> Result<(), Failure> {
    let mut refused = HashSet::new();
    for round in 0..ROUNDS {
        let mut due = meters::due(read(billing).await?.conn(), target).await?;
        due.retain(|due| only.is_none_or(|only| only.contains(&due.org)));
        if round == 0 && only.is_none() {
            let oldest = due.iter().map(|due| due.oldest).min().unwrap_or(target);
            ticked.lag_seconds = (target - oldest).num_seconds().max(0);
        }
        due.retain(|due| !refused.contains(&due.org));
        if due.is_empty() {
            return Ok(());
        }
        let round = Round { queue: Mutex::new(pack(due)), outcome: Mutex::default() };
        join_all((0..AT_ONCE).map(|_| round.work(billing, target))).await;
        let outcome = round.outcome.into_inner().unwrap_or_else(|e| e.into_inner());
        ticked.windows += outcome.windows;
        ticked.posted_minor += outcome.posted_minor;
        refused.extend(outcome.refused);
        if let Some(failure) = outcome.failure {
            return Err(failure);
        }
        if outcome.windows == 0 {
            break;
        }
    }
    ticked.more = true;
    Ok(())
}

/// The batches of a round, and what became of them.
struct Round {
    queue: Mutex<VecDeque<Vec<Uuid>>>,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    windows: u64,
    posted_minor: i64,
    refused: Vec<Uuid>,
    failure: Option<Failure>,
}

impl Round {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Vec<Uuid>>> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn next(&self) -> Option<Vec<Uuid>> {
        self.queue().pop_front()
    }

    /// Takes one batch after the other. A lost connection ends the round for everybody.
    async fn work(&self, billing: &Billing, target: DateTime<Utc>) {
        while let Some(mut batch) = self.next() {
            match accrue_batch(billing, &batch, target).await {
                Ok(accrued) => {
                    let mut outcome = self.outcome();
                    outcome.windows +=
                        accrued.iter().map(|accrued| accrued.meters.unsigned_abs()).sum::<u64>();
                    outcome.posted_minor += accrued.iter().map(|accrued| accrued.posted_minor).sum::<i64>();
                }
                Err(failure) if is_transient(&failure) => {
                    self.queue().clear();
                    self.outcome().failure = Some(failure);
                }
                Err(failure) if batch.len() == 1 => {
                    tracing::error!(org_id = %batch[0], error = ?failure, "accrual of an organization failed");
                    metrics::counter!("billing_accrual_refused_total").increment(1);
                    self.outcome().refused.extend(batch);
                }
                Err(_) => {
                    let rest = batch.split_off(batch.len() / 2);
                    self.queue().extend([batch, rest]);
                }
            }
        }
    }
}

fn is_transient(failure: &Failure) -> bool {
    let Failure::Internal(error) = failure else { return false };
    error.downcast_ref::<pg::Error>().is_some_and(pg::Error::is_transient)
        || error.downcast_ref::<sqlx::Error>().is_some_and(pg::is_transient)
}

/// Batches that are bounded in organizations and in meters. An organization with more meters than a batch may have is
/// one by itself, and comes again in the next round.
fn pack(due: Vec<Due>) -> VecDeque<Vec<Uuid>> {
    let mut batches = VecDeque::new();
    let (mut batch, mut meters) = (Vec::new(), 0);
    for next in due {
        if !batch.is_empty() && (meters + next.meters > METERS_PER_BATCH || batch.len() == ORGS_PER_BATCH) {
            batches.push_back(std::mem::take(&mut batch));
            meters = 0;
        }
        meters += next.meters;
        batch.push(next.org);
    }
    if !batch.is_empty() {
        batches.push_back(batch);
    }
    batches
}

/// One transaction; answers what moved.
async fn accrue_batch(
    billing: &Billing,
    orgs: &[Uuid],
    target: DateTime<Utc>,
) -> Result<Vec<Accrued>, Failure> {
    let rules = Rules::load(billing, orgs).await?;
    let mut tx = write(billing, "billing.accrue").await?;
    match accrue_in(&mut tx, &rules, orgs, target).await {
        Ok(accrued) if !accrued.is_empty() => {
            tx.commit(None).await?;
            let windows = accrued.iter().map(|accrued| accrued.meters.unsigned_abs()).sum();
            metrics::counter!("billing_windows_total").increment(windows);
            Ok(accrued)
        }
        // Waited for, so that the chains are free for the halves that come next.
        other => {
            tx.roll_back().await;
            other
        }
    }
}

async fn accrue_in(
    tx: &mut WriteTx,
    rules: &Rules,
    orgs: &[Uuid],
    target: DateTime<Utc>,
) -> Result<Vec<Accrued>, Failure> {
    let limit = i32::try_from(METERS_PER_BATCH).unwrap_or(i32::MAX);
    let accrued = meters::accrue(tx, orgs, target, limit).await?;
    let touched: Vec<Uuid> = accrued.iter().map(|accrued| accrued.org).collect();
    if !touched.is_empty() {
        evaluate_all(tx, rules, &touched, Because::Postings).await?;
        budget_watch::advance(tx, &touched).await?;
    }
    Ok(accrued)
}

/// What was accrued beyond the end of a meter goes back: the clock was ahead, or it ended in that very moment.
async fn rewind(billing: &Billing) -> Result<u64, Failure> {
    let beyond = meters::beyond_end(read(billing).await?.conn(), REWINDS).await?;
    let mut rewound = 0;
    for of_org in beyond.chunk_by(|a, b| a.org == b.org) {
        let Some(org) = of_org.first().map(|beyond| beyond.org) else { continue };
        match rewind_org(billing, org, of_org).await {
            Ok(count) => rewound += count,
            Err(failure) if is_transient(&failure) => return Err(failure),
            // Whatever is wrong with one organization, the others are accrued.
            Err(failure) => {
                tracing::error!(org_id = %org, error = ?failure, "excess accrual cannot be rewound");
                metrics::counter!("billing_accrual_refused_total").increment(1);
            }
        }
    }
    Ok(rewound)
}

async fn rewind_org(billing: &Billing, org: Uuid, beyond: &[Beyond]) -> Result<u64, Failure> {
    let rules = Rules::load(billing, &[org]).await?;
    let mut tx = write(billing, "billing.rewind").await?;
    for beyond in beyond {
        meters::rewind(&mut tx, beyond.meter, beyond.closed_at).await?;
    }
    evaluate_all(&mut tx, &rules, &[org], Because::Postings).await?;
    budget_watch::advance(&mut tx, &[org]).await?;
    tx.commit(None).await?;
    Ok(u64::try_from(beyond.len())?)
}

/// Organizations whose balance should have ended by now are accrued up to this second rather than to the end of the
/// window, so that the end is found at once. True when there are more.
async fn end(billing: &Billing, ticked: &mut Ticked) -> Result<bool, Failure> {
    let now = billing.db.ambient().now();
    let orgs = accounts::ending(read(billing).await?.conn(), now, OTHERS).await?;
    if orgs.is_empty() {
        return Ok(false);
    }
    let only: HashSet<Uuid> = orgs.iter().copied().collect();
    accrue(billing, now.trunc_subsecs(0), Some(&only), ticked).await?;
    // Those where nothing was due stand differently for another reason: a meter that stopped.
    let still = accounts::ending(read(billing).await?.conn(), now, OTHERS).await?;
    for org in still {
        org_evaluate(billing, org).await?;
    }
    Ok(i64::try_from(orgs.len()).is_ok_and(|count| count == OTHERS))
}

/// New and changed budgets are added up even when nothing runs.
async fn budgets_changed(billing: &Billing, now: DateTime<Utc>, window_seconds: i64) -> Result<(), Failure> {
    let since = now - TimeDelta::seconds(window_seconds.saturating_mul(2));
    let orgs = budgets::fresh(read(billing).await?.conn(), month_of(now).0, since, OTHERS).await?;
    for org in orgs {
        org_evaluate(billing, org).await?;
    }
    Ok(())
}

/// Evaluates the balance state and the budgets of an organization.
async fn org_evaluate(billing: &Billing, org: Uuid) -> Result<(), Failure> {
    let rules = Rules::load(billing, &[org]).await?;
    let mut tx = write(billing, "billing.evaluate").await?;
    let mut changed = false;
    if meters::chain_lock(&mut tx, org).await? {
        changed |= evaluate_all(&mut tx, &rules, &[org], Because::Postings).await?.changed;
        changed |= budget_watch::advance(&mut tx, &[org]).await?;
    }
    if changed {
        tx.commit(None).await?;
    } else {
        tx.roll_back().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(meters: i64) -> Due {
        Due { org: Uuid::nil(), meters, oldest: DateTime::UNIX_EPOCH }
    }

    #[test]
    fn batches_are_bounded_in_meters_and_in_organizations() {
        let many = pack((0..1_200).map(|_| due(1)).collect());
        assert_eq!(many.iter().map(Vec::len).collect::<Vec<_>>(), [500, 500, 200]);
        let large = pack(vec![due(19_999), due(2), due(1_000_000), due(5)]);
        assert_eq!(large.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 1]);
        assert!(pack(Vec::new()).is_empty());
    }

    #[test]
    fn windows_are_counted_from_the_epoch() {
        let at = |seconds: i64| DateTime::UNIX_EPOCH + TimeDelta::milliseconds(seconds * 1000 + 7);
        let floor = |seconds, window| window_floor(at(seconds), window).timestamp();
        assert_eq!((floor(119, 60), floor(120, 60), floor(3599, 3600), floor(-1, 60)), (60, 120, 0, -60));
    }
}
