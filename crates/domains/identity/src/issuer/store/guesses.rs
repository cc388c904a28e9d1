//! How many passwords were guessed, and from where.

use chrono::{DateTime, TimeDelta, Utc};
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

/// A budget of guesses: `burst` at once, and one more for each `step` that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub step: TimeDelta,
    pub burst: i32,
}

/// Takes one from the budget of `source`, in all or at one account. False when nothing is left. Concurrent guesses
/// take turns at the row, so that none outruns the count.
pub(crate) async fn spend(
    conn: &mut Connection,
    source: &str,
    account: Option<Uuid>,
    allowance: Allowance,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let full = now + allowance.step * allowance.burst;
    let spent = sqlx::query!(
        "INSERT INTO issuer_guesses AS g (source, account_id, spent_until) VALUES ($1, $2, $3::timestamptz)
         ON CONFLICT (source, account_id) DO UPDATE
            SET spent_until = greatest(g.spent_until, $4) + (excluded.spent_until - $4)
            WHERE greatest(g.spent_until, $4) + (excluded.spent_until - $4) <= $5",
        source,
        account,
        now + allowance.step,
        now,
        full,
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
        step.as_seconds_f64(),
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

pub(crate) async fn remove_expired(conn: &mut Connection, now: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_guesses WHERE spent_until <= $1", now).execute(conn).await?;
    Ok(())
}
