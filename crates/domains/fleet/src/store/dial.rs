//! Asking for a node: a notification, and no row.

use pg::Connection;

/// The channel of [`notify`].
pub const CHANNEL: &str = "gpuaas_dial";

pub async fn notify(conn: &mut Connection, notice: &str) -> Result<(), sqlx::Error> {
    sqlx::query!("SELECT pg_notify($1, $2)", CHANNEL, notice).execute(conn).await.map(|_| ())
}
