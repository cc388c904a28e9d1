//! Blocks of unix ids.

use pg::Connection;

pub async fn next_block(conn: &mut Connection) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT nextval('allocation_uids')::int AS "first!""#).fetch_one(conn).await
}
