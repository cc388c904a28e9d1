//! Reading the ledger.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, Page, PageQuery, Problem,
    ids::OrgId,
    ledger::{Line, Posting},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::{
    balance::{balances_of, status_now},
    ledger_items::ledger_items,
};
pub use crate::store::ledger::Filter;
use crate::{
    Billing,
    model::{
        account::Balances,
        balance::{BalanceState, BalanceStatus},
        ledger_item::LedgerItem,
        rating::PARTS,
    },
    store,
};

/// Lines that are shown with a posting; an export has them all.
const LINES_SHOWN: i64 = 1000;

/// What an organization has, and how long it lasts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Balance {
    pub currency: String,
    /// Money that can be spent.
    pub prepaid_minor: i64,
    /// Set aside for what was launched.
    pub held_minor: i64,
    /// Credit that was given and not paid for.
    pub promo_minor: i64,
    /// Frozen while a payment is disputed.
    pub disputed_minor: i64,
    /// What new launches can be paid from.
    pub available_minor: i64,
    /// All that is left to be used.
    pub total_minor: i64,
    /// Used and not posted yet; it goes off the total with the next posting.
    pub unposted_minor: i64,
    /// As it is at this moment, with what is used and not posted.
    pub state: BalanceState,
    /// Absent while the worker has not recorded a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_changed_at: Option<DateTime<Utc>>,
    /// What everything that runs costs in an hour.
    pub burn_per_hour_minor: i64,
    /// When the balance ends if everything goes on as it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected_depletion_at: Option<DateTime<Utc>>,
}

pub async fn balance_get(billing: &Billing, tx: &mut ReadTx, org: OrgId) -> Result<Balance, Failure> {
    let Some((account, status)) = status_now(billing, tx.conn(), org).await? else {
        let (balances, currency) = balances_of(billing, tx.conn(), org).await?;
        return Ok(Balance::new(
            balances,
            currency,
            BalanceStatus { state: BalanceState::Healthy, depletes_at: None },
        ));
    };
    // Decided when it is asked for; recorded when the worker comes to it.
    let recorded = account.state == Some(status.state);
    Ok(Balance {
        unposted_minor: account.unposted_parts / PARTS,
        state_changed_at: account.state_changed_at.filter(|_| recorded),
        burn_per_hour_minor: account.burn_per_hour,
        ..Balance::new(account.balances, account.currency, status)
    })
}

impl Balance {
    fn new(balances: Balances, currency: String, status: BalanceStatus) -> Self {
        Self {
            currency,
            prepaid_minor: balances.prepaid_minor,
            held_minor: balances.held_minor,
            promo_minor: balances.promo_minor,
            disputed_minor: balances.disputed_minor,
            available_minor: balances.available(),
            total_minor: balances.total(),
            unposted_minor: 0,
            state: status.state,
            state_changed_at: None,
            burn_per_hour_minor: 0,
            projected_depletion_at: status.depletes_at,
        }
    }
}

/// Newest first; the cursor is the place in the chain.
pub async fn ledger_list(
    billing: &Billing,
    tx: &mut ReadTx,
    org: OrgId,
    filter: &Filter,
    page: &PageQuery,
) -> Result<Page<LedgerItem>, Failure> {
    let before = i64::try_from(page.before().as_u128()).unwrap_or(i64::MAX);
    let rows = store::ledger::list(tx.conn(), org, filter, before, page.limit()).await?;
    let Page { items, next_cursor } =
        page.page(rows, |row| Uuid::from_u128(u128::from(row.seq.unsigned_abs())));
    Ok(Page { items: ledger_items(billing, tx.conn(), org, items).await?, next_cursor })
}

/// A posting with its lines.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LedgerEntry {
    pub posting: Posting,
    /// The first thousand; an export has them all.
    pub lines: Vec<Line>,
}

pub async fn ledger_get(tx: &mut ReadTx, org: OrgId, seq: i64) -> Result<LedgerEntry, Failure> {
    let Some(after) = seq.checked_sub(1) else { return Err(Problem::not_found("posting").into()) };
    let posting = store::ledger::get(tx.conn(), org, seq).await?;
    let Some(posting) = posting else { return Err(Problem::not_found("posting").into()) };
    let after = (after, i32::MAX, DateTime::UNIX_EPOCH);
    let lines = store::chains::lines(tx.conn(), org, after, seq, LINES_SHOWN).await?;
    Ok(LedgerEntry { posting, lines })
}

/// What an account has gained in all ledgers of a currency.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AccountTotal {
    pub currency: String,
    pub account: String,
    pub amount_minor: i64,
}

/// All ledgers together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LedgerTotals {
    /// Whether the accounts of each currency sum to zero.
    pub ok: bool,
    pub accounts: Vec<AccountTotal>,
}

pub async fn ledger_totals(tx: &mut ReadTx) -> Result<LedgerTotals, Failure> {
    let totals = store::chains::totals(tx.conn()).await?;
    let mut sums = std::collections::BTreeMap::<&str, i128>::new();
    for total in &totals {
        *sums.entry(&total.currency).or_default() += i128::from(total.amount_minor);
    }
    let ok = sums.values().all(|sum| *sum == 0);
    let accounts = totals.into_iter().map(|total| AccountTotal {
        currency: total.currency,
        account: total.account,
        amount_minor: total.amount_minor,
    });
    Ok(LedgerTotals { ok, accounts: accounts.collect() })
}
