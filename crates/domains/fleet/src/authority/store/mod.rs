//! SQL of authorities, signers and their lists.

pub mod authorities;
pub mod nodes;
pub mod signers;

use pg::Connection;

/// One change of trust at a time, over all replicas, until the transaction ends.
pub async fn lock(conn: &mut Connection) -> Result<(), sqlx::Error> {
    sqlx::query!(r#"SELECT pg_advisory_xact_lock(hashtext('fleet_trust')) AS "locked: ()""#)
        .execute(conn)
        .await?;
    Ok(())
}
