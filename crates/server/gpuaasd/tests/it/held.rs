//! A row locked behind the server's back, so that requests are surely under way and not yet done.

use sqlx::{Connection as _, Executor as _, PgConnection};
use testkit::{ServerOptions, TestDb, eventually};

/// A server whose only writers are requests.
pub fn requests_only() -> ServerOptions {
    ServerOptions { roles: "api".to_owned(), ..ServerOptions::default() }
}

pub struct Held {
    lock: PgConnection,
    watch: PgConnection,
}

impl Held {
    /// Locks the rows that `select` names.
    pub async fn rows(db: &TestDb, select: &str) -> Self {
        let mut lock = db.conn(pg::Roles::Admin).await;
        let sql = format!("BEGIN; {select} FOR UPDATE");
        let locked = lock.execute(sqlx::AssertSqlSafe(sql)).await.unwrap().rows_affected();
        assert_eq!(locked, 1, "{select}");
        Self { lock, watch: db.conn(pg::Roles::Admin).await }
    }

    /// Until so many statements of this database wait for a lock. Consumers of events write too, so the
    /// server must run without them (`requests_only`).
    pub async fn until_waiting(&mut self, expected: i64) {
        let watch = tokio::sync::Mutex::new(&mut self.watch);
        eventually("the requests wait for the lock", || async {
            let sql = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let waiting: i64 = sqlx::query_scalar(sql).fetch_one(&mut **watch.lock().await).await.unwrap();
            (waiting == expected).then_some(())
        })
        .await;
    }

    pub async fn release(mut self) {
        self.lock.execute("ROLLBACK").await.unwrap();
        self.lock.close().await.unwrap();
    }
}
