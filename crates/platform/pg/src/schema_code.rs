//! Functions, triggers and views of the database: one file each below `migrations/functions`, reapplied when they changed.
//!
//! They come after the numbered migrations, which hold tables and data only. All files that differ from what is recorded
//! are applied in one transaction; each is written so that it can be applied again (`CREATE OR REPLACE`). The order of
//! the files does not matter: bodies are not checked while they are applied, and views and triggers come last.
//!
//! During a rolling upgrade a replica of the earlier release may restart. It must not put its older functions back: a
//! set that was applied before, and another one since, is not applied again.

use kernel::digest::sha256;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

/// Path below `migrations/functions`, and content.
pub type CodeFile<'a> = (&'a str, &'a str);

/// The files of this program.
pub static SCHEMA_CODE: &[CodeFile<'static>] = include!(concat!(env!("OUT_DIR"), "/schema_code.rs"));

#[derive(Debug, thiserror::Error)]
pub enum SchemaCodeError {
    #[error("migrations/functions/{path} cannot be applied")]
    File {
        path: String,
        #[source]
        error: sqlx::Error,
    },
    #[error("what is applied of migrations/functions cannot be read or recorded")]
    Record(#[from] sqlx::Error),
}

/// The digest of a set of files: names and contents.
pub fn schema_code_digest(files: &[CodeFile<'_>]) -> [u8; 32] {
    let mut all = Vec::new();
    for (path, sql) in files {
        all.extend_from_slice(&sha256(path));
        all.extend_from_slice(&sha256(sql));
    }
    sha256(all)
}

/// Views may call functions, and nothing may call them.
fn comes_late(sql: &str) -> bool {
    sql.contains("CREATE OR REPLACE VIEW")
}

/// Applies what changed, as the owner, under the lock of the migrations. Answers how many files.
pub async fn schema_code_apply(
    conn: &mut PgConnection,
    files: &[CodeFile<'_>],
) -> Result<usize, SchemaCodeError> {
    let digest = schema_code_digest(files);
    let place: Option<(bool,)> = sqlx::query_as(
        "SELECT seq = (SELECT max(seq) FROM schema_code_sets) FROM schema_code_sets WHERE sha256 = $1",
    )
    .bind(&digest[..])
    .fetch_optional(&mut *conn)
    .await?;
    match place {
        Some((true,)) => return Ok(0),
        Some((false,)) => {
            tracing::warn!("a newer program has applied its functions to the database; they stay");
            return Ok(0);
        }
        None => {}
    }
    let known: Vec<(String, Vec<u8>)> =
        sqlx::query_as("SELECT path, sha256 FROM schema_code").fetch_all(&mut *conn).await?;
    let is_applied =
        |path: &str, sql: &str| known.iter().any(|(p, digest)| p == path && digest[..] == sha256(sql));
    let mut changed: Vec<_> = files.iter().filter(|(path, sql)| !is_applied(path, sql)).collect();
    changed.sort_by_key(|(_, sql)| comes_late(sql));
    let mut tx = conn.begin().await?;
    tx.execute("SET LOCAL check_function_bodies = off").await?;
    for (path, sql) in &changed {
        tx.execute(AssertSqlSafe((*sql).to_owned()))
            .await
            .map_err(|error| SchemaCodeError::File { path: (*path).to_owned(), error })?;
        sqlx::query(
            "INSERT INTO schema_code (path, sha256) VALUES ($1, $2)
             ON CONFLICT (path) DO UPDATE SET sha256 = excluded.sha256",
        )
        .bind(path)
        .bind(&sha256(sql)[..])
        .execute(&mut *tx)
        .await?;
    }
    let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    sqlx::query("DELETE FROM schema_code WHERE path <> ALL ($1)").bind(paths).execute(&mut *tx).await?;
    sqlx::query("INSERT INTO schema_code_sets (sha256) VALUES ($1)")
        .bind(&digest[..])
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(changed.len())
}
