//! How many passwords were guessed, and from where.
//!
//! All windows are of the database's clock: replicas share the rows, and one whose own clock is wrong must neither open
//! nor close a budget for the others.

use chrono::TimeDelta;
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

/// A budget of guesses: `burst` at once, and one more for each `step` that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub step: TimeDelta,
    pub burst: i32,
}

/// Whole microseconds, as the database has them: so many steps are together exactly a full budget.
fn seconds(step: TimeDelta) -> f64 {
    step.num_microseconds().unwrap_or(i64::MAX) as f64 / 1e6
}

/// Takes one from the budget of `source`, in all or at one account. False when nothing is left. Concurrent guesses
/// take turns at the row, so that none outruns the count.
pub(crate) async fn spend(
    conn: &mut Connection,
    source: &str,
    account: Option<Uuid>,
    allowance: Allowance,
) -> Result<bool, Error> {
    let spent = sqlx::query!(
        "INSERT INTO issuer_guesses AS g (source, account_id, spent_until)
         VALUES ($1, $2, statement_timestamp() + make_interval(secs => $3))
         ON CONFLICT (source, account_id) DO UPDATE
            SET spent_until = greatest(g.spent_until, statement_timestamp()) + make_interval(secs => $3)
            WHERE greatest(g.spent_until, statement_timestamp()) + make_interval(secs => $3)
                <= statement_timestamp() + make_interval(secs => $4)",
        source,
        account,
        seconds(allowance.step),
        seconds(allowance.step) * f64::from(allowance.burst),
    )
    .execute(conn)
    .await?;
    Ok(spent.rows_affected() == 1)
}

/// The guess was right: the wrong ones at this account are forgotten, and it does not count for its source.
pub(crate) async fn forgive(
    conn: &mut Connection,
    source: &str,
    account: Uuid,
    step: TimeDelta,
) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_guesses WHERE source = $1 AND account_id = $2", source, account)
        .execute(&mut *conn)
        .await?;
    sqlx::query!(
        "UPDATE issuer_guesses SET spent_until = spent_until - make_interval(secs => $2)
         WHERE source = $1 AND account_id IS NULL",
        source,
        seconds(step),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets the guesses at an account, from wherever they came.
pub(crate) async fn remove_of_account(conn: &mut Connection, account: Uuid) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_guesses WHERE account_id = $1", account).execute(conn).await?;
    Ok(())
}

pub(crate) async fn remove_expired(conn: &mut Connection) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_guesses WHERE spent_until <= statement_timestamp()")
        .execute(conn)
        .await?;
    Ok(())
}
