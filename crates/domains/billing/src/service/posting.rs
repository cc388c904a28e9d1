//! Posting to the ledger.

use kernel::{Code, Failure, Problem};
use pg::WriteTx;

use crate::{
    Billing,
    model::account::{Posted, Posting},
    service::balance,
    store::ledger,
};

/// Makes a posting, and whatever follows from it for the state of the organization, in this transaction (of the
/// system or of a platform administrator). Nothing when its reference was posted before: it is not posted again.
pub async fn post(billing: &Billing, tx: &mut WriteTx, posting: Posting) -> Result<Option<Posted>, Failure> {
    if posting.lines.iter().map(|line| i128::from(line.amount_minor)).sum::<i128>() != 0 {
        return Err(Failure::bug("the lines of a posting do not sum to zero"));
    }
    let currency = match ledger::balances(tx.conn(), posting.org).await? {
        Some((_, currency)) => currency,
        None => billing.currency().to_owned(),
    };
    let posted = match ledger::append(tx, &currency, &posting).await {
        Ok(Some(posted)) => posted,
        Ok(None) => return Ok(None),
        Err(error) if pg::constraint_violated(&error) == Some("ledger_currency") => {
            let text = format!("This organization's ledger is kept in {currency}.");
            return Err(Problem::new(Code::Unprocessable, text).into());
        }
        Err(error) => return Err(error.into()),
    };
    balance::evaluate(billing, tx, posting.org).await?;
    Ok(Some(posted))
}
