//! Functions, triggers and views of the database: one file each below `migrations/functions`.
//!
//! They come after the numbered migrations, which hold tables and data only. All files are applied in one transaction
//! whenever a program with a higher migration or a higher revision of the files starts; each is written so that it can
//! be applied again (`CREATE OR REPLACE`). The order of the files does not matter: bodies are not checked while they
//! are applied, triggers stand behind their function in its file, and views come last.
//!
//! `migrations/functions/REVISION` holds a number and the digest of the files; `cargo xtask generate` raises the number when
//! the files changed, and a gate refuses a digest that is not theirs. During a rolling upgrade a replica of the earlier
//! release may restart: its revision is lower, so it leaves the newer functions alone.

use std::time::Duration;

use kernel::digest::sha256;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

/// Path below `migrations/functions`, and content.
pub type CodeFile<'a> = (&'a str, &'a str);

/// The files of a program.
#[derive(Clone, Copy, Debug)]
pub struct SchemaCode<'a> {
    pub revision: i64,
    pub files: &'a [CodeFile<'a>],
}

/// Those of this program.
pub static SCHEMA_CODE: SchemaCode<'static> = include!(concat!(env!("OUT_DIR"), "/schema_code.rs"));

/// A trigger is replaced under a lock of its table. Who holds the table for longer than this keeps all waiting, so it is
/// let go and tried again.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '2s'";
const ATTEMPTS: u32 = 30;
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum SchemaCodeError {
    #[error("migrations/functions/{path} cannot be applied")]
    File {
        path: String,
        #[source]
        error: sqlx::Error,
    },
    #[error(
        "the functions of revision {revision} differ from those that were applied as it: run `make generate`"
    )]
    SameRevision { revision: i64 },
    #[error("what is applied of migrations/functions cannot be read or recorded")]
    Record(#[from] sqlx::Error),
}

impl SchemaCodeError {
    /// Somebody else had a table, or was waiting for one of ours.
    fn is_lock(&self) -> bool {
        let (Self::File { error, .. } | Self::Record(error)) = self else { return false };
        let code = error.as_database_error().and_then(|error| error.code());
        matches!(code.as_deref(), Some("55P03" | "40P01"))
    }
}

impl SchemaCode<'_> {
    /// Names and contents.
    pub fn digest(&self) -> [u8; 32] {
        let mut all = Vec::new();
        for (path, sql) in self.files {
            all.extend_from_slice(&sha256(path));
            all.extend_from_slice(&sha256(sql));
        }
        sha256(all)
    }
}

/// Views may call functions, and nothing may call them.
fn is_applied_last(sql: &str) -> bool {
    sql.contains("CREATE OR REPLACE VIEW")
}

/// Brings the functions to those of a program whose highest migration is `migration`, as the owner, under the lock of the
/// migrations. Whether they were applied; newer ones stay.
pub async fn schema_code_apply(
    conn: &mut PgConnection,
    migration: i64,
    code: SchemaCode<'_>,
) -> Result<bool, SchemaCodeError> {
    let last: Option<(i64, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT migration, revision, sha256 FROM schema_code ORDER BY migration DESC, revision DESC LIMIT 1",
    )
    .fetch_optional(&mut *conn)
    .await?;
    if let Some((last_migration, last_revision, digest)) = last {
        let order = (migration, code.revision).cmp(&(last_migration, last_revision));
        if order.is_lt() {
            tracing::warn!("a newer program has applied its functions to the database; they stay");
            return Ok(false);
        }
        if order.is_eq() && digest[..] == code.digest() {
            return Ok(false);
        }
        if order.is_eq() {
            return Err(SchemaCodeError::SameRevision { revision: code.revision });
        }
    }
    for _ in 1..ATTEMPTS {
        match apply_all(conn, migration, code).await {
            Err(error) if error.is_lock() => {
                tracing::info!(error = %error, "a table is in use; its triggers are replaced later");
                tokio::time::sleep(PAUSE).await;
            }
            done => return done.map(|()| true),
        }
    }
    apply_all(conn, migration, code).await.map(|()| true)
}

async fn apply_all(
    conn: &mut PgConnection,
    migration: i64,
    code: SchemaCode<'_>,
) -> Result<(), SchemaCodeError> {
    let mut files = code.files.to_vec();
    files.sort_by_key(|(_, sql)| is_applied_last(sql));
    let mut tx = conn.begin().await?;
    tx.execute("SET LOCAL check_function_bodies = off").await?;
    tx.execute(LOCK_TIMEOUT).await?;
    for (path, sql) in files {
        tx.execute(AssertSqlSafe(sql.to_owned()))
            .await
            .map_err(|error| SchemaCodeError::File { path: path.to_owned(), error })?;
    }
    sqlx::query("INSERT INTO schema_code (migration, revision, sha256) VALUES ($1, $2, $3)")
        .bind(migration)
        .bind(code.revision)
        .bind(&code.digest()[..])
        .execute(&mut *tx)
        .await?;
    Ok(tx.commit().await?)
}
