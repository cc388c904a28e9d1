//! Balances and their states.

use kernel::{Failure, ids::OrgId};
use pg::{Connection, WriteTx};

use crate::{Billing, model::account::Balances, store::ledger};

/// What an organization has, and in which currency.
pub async fn balances_of(
    billing: &Billing,
    conn: &mut Connection,
    org: OrgId,
) -> Result<(Balances, String), Failure> {
    let found = ledger::balances(conn, org).await?;
    Ok(found.unwrap_or_else(|| (Balances::default(), billing.currency().to_owned())))
}

/// What follows from `balances` for the state of the organization: the new state, and an event when it changed. The
/// chain is locked by the posting before, so changes of one organization are serial.
pub async fn evaluate(
    _billing: &Billing,
    _tx: &mut WriteTx,
    _org: OrgId,
    _balances: Balances,
    _currency: &str,
) -> Result<(), Failure> {
    Ok(())
}
