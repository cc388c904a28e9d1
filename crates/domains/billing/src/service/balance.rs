//! Balances and their states.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use identity::api::Where;
use kernel::{CorrelationId, Failure, ids::OrgId, policy::keys};
use pg::{Connection, Origin, Permit, WriteTx};
use uuid::Uuid;

use crate::{
    Billing,
    model::{
        account::Balances,
        balance::{BalanceState, BalanceStatus, Facts, Notice, decide},
        events,
        rating::PARTS,
    },
    store::{
        accounts::{self, Account},
        ledger,
    },
};

/// What an organization has, and in which currency.
pub async fn balances_of(
    billing: &Billing,
    conn: &mut Connection,
    org: OrgId,
) -> Result<(Balances, String), Failure> {
    let found = ledger::balances(conn, org).await?;
    Ok(found.unwrap_or_else(|| (Balances::default(), billing.currency().to_owned())))
}

/// When the next balance ends, as far as it can be foreseen.
pub async fn next_end(billing: &Billing) -> Result<Option<DateTime<Utc>>, Failure> {
    let origin = Origin::internal(CorrelationId(billing.db.ambient().uuid()));
    let permit = Permit::system("find the next depletion time", origin);
    Ok(accounts::next_end(billing.db.read(&permit).await?.conn()).await?)
}

/// What follows from a posting for the state of the organization: the new state, and an event when it changed. The
/// chain is locked by the posting, so changes of one organization are serial.
pub async fn evaluate(billing: &Billing, tx: &mut WriteTx, org: OrgId) -> Result<(), Failure> {
    // The chain is held: nobody waits here for a second connection, which those may have who wait for the chain.
    billing.policies.warm(tx.conn(), &[None, Some(org)]).await?;
    let rules = Rules::load(billing, &[org.uuid()]).await?;
    if evaluate_all(tx, &rules, &[org.uuid()], Because::Postings).await?.ending {
        accounts::wake_worker(tx).await?;
    }
    Ok(())
}

/// What states are decided by. Read before a transaction begins, so that nobody waits for it with a chain in hand.
pub struct Rules {
    pub window_seconds: i64,
    orgs: HashMap<Uuid, OrgRules>,
}

#[derive(Clone, Copy, Default)]
struct OrgRules {
    threshold_minor: i64,
    low_runway_seconds: i64,
}

impl Rules {
    pub async fn load(billing: &Billing, orgs: &[Uuid]) -> Result<Self, Failure> {
        let setting = |key, org| billing.policies.setting_at(key, Where { org, ..Where::default() });
        let window = setting(keys::BILLING_WINDOW_SECONDS, None).await?.get();
        let mut known = HashMap::with_capacity(orgs.len());
        for org in orgs {
            let place = Some(OrgId::from(*org));
            let threshold = setting(keys::BILLING_LOW_BALANCE_THRESHOLD_MINOR, place).await?.get();
            let runway = setting(keys::BILLING_LAUNCH_HOLD_SECONDS, place).await?.get();
            known.insert(*org, OrgRules { threshold_minor: threshold, low_runway_seconds: runway });
        }
        Ok(Self { window_seconds: window, orgs: known })
    }

    fn facts(&self, account: &Account, now: DateTime<Utc>) -> Facts {
        let OrgRules { threshold_minor, low_runway_seconds } =
            self.orgs.get(&account.org.uuid()).copied().unwrap_or_default();
        Facts {
            total_minor: account.balances.total(),
            burn_per_hour: account.burn_per_hour,
            unposted_parts: account.unposted_parts,
            threshold_minor,
            window_seconds: self.window_seconds,
            low_runway_seconds,
            now,
        }
    }
}

/// A clock that is ahead must not make a balance look used up.
pub async fn agreed_time(
    conn: &mut Connection,
    claimed: DateTime<Utc>,
) -> Result<DateTime<Utc>, sqlx::Error> {
    Ok(claimed.min(accounts::database_clock(conn, claimed).await?))
}

/// How an organization stands at this moment, as if what it used was posted. None before its first posting.
pub async fn status_now(
    billing: &Billing,
    conn: &mut Connection,
    org: OrgId,
) -> Result<Option<(Account, BalanceStatus)>, Failure> {
    let rules = Rules::load(billing, &[org.uuid()]).await?;
    let now = agreed_time(conn, billing.db.ambient().now()).await?;
    let account = accounts::accounts(conn, &[org.uuid()], now).await?.into_iter().next();
    Ok(account.map(|account| {
        let (status, _) = decide(account.state, &rules.facts(&account, now).all_posted());
        (account, status)
    }))
}

/// Why balances are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Something was posted.
    Postings,
    /// A meter started or stopped.
    Meters,
}

/// What came of deciding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evaluated {
    pub changed: bool,
    /// A balance will end soon and was not known to.
    pub ending: bool,
}

/// Decides the states of organizations whose chains this transaction holds, writes those that changed and tells of
/// them.
pub async fn evaluate_all(
    tx: &mut WriteTx,
    rules: &Rules,
    orgs: &[Uuid],
    because: Because,
) -> Result<Evaluated, Failure> {
    let claimed = tx.db().ambient().now();
    let now = agreed_time(tx.conn(), claimed).await?;
    let known = accounts::accounts(tx.conn(), orgs, now).await?;
    let (mut changes, mut news, mut ending) = (Vec::new(), Vec::new(), false);
    for account in known {
        let facts = rules.facts(&account, now);
        let threshold_minor = facts.threshold_minor;
        let (status, notice) = decide(account.state, &facts);
        // A low balance that lasts again because something costly stopped was not restored.
        let was_low = account.state == Some(BalanceState::LowBalance);
        let stopped = because == Because::Meters && was_low;
        let notice = notice.filter(|notice| !(stopped && *notice == Notice::Restored));
        let same = account.state == Some(status.state);
        if same && !moved(status, account.depletes_at) {
            continue;
        }
        ending |= status.state == BalanceState::AutoReleasePending && !same;
        changes.push(accounts::Change {
            org: account.org,
            state: status.state,
            depletes_at: status.depletes_at,
            version: account.version,
        });
        news.extend(notice.map(|notice| (notice, threshold_minor, account)));
    }
    if !changes.is_empty() && !accounts::change(tx, &changes, now).await? {
        return Err(Failure::bug("the balance state of an organization changed while its chain was locked"));
    }
    for (notice, threshold_minor, account) in news {
        notice_emit(tx, notice, threshold_minor, account)?;
    }
    Ok(Evaluated { changed: !changes.is_empty(), ending })
}

/// The end is written again when it is another one: to the second when it is near, else when it moved by more than
/// rounding does.
fn moved(status: BalanceStatus, known: Option<DateTime<Utc>>) -> bool {
    match (status.depletes_at, known) {
        (Some(at), Some(known)) if status.state != BalanceState::AutoReleasePending => {
            (at - known).num_seconds().abs() > 2
        }
        (at, known) => at != known,
    }
}

fn notice_emit(
    tx: &mut WriteTx,
    notice: Notice,
    threshold_minor: i64,
    account: Account,
) -> Result<(), Failure> {
    let Account { org: org_id, currency, balances, unposted_parts, .. } = account;
    let balance_minor = balances.total();
    // What decided: with what was used and not posted.
    let live_minor = balance_minor.saturating_sub(unposted_parts / PARTS);
    match notice {
        Notice::LowBalance { depletes_at } => {
            let balance_minor = live_minor;
            let event =
                events::LowBalanceWarning { org_id, balance_minor, threshold_minor, currency, depletes_at };
            tx.emit_for(org_id, None, &event)?;
        }
        Notice::AutoReleasePending { depletes_at } => {
            let event = events::AutoReleasePending { org_id, balance_minor, currency, depletes_at };
            tx.emit_for(org_id, None, &event)?;
        }
        Notice::Depleted => {
            tx.emit_for(org_id, None, &events::BalanceDepleted { org_id, balance_minor, currency })?;
        }
        Notice::Restored => {
            tx.emit_for(org_id, None, &events::BalanceRestored { org_id, balance_minor, currency })?;
        }
    }
    Ok(())
}
