//! Roles, migrations, and functions after these. All are safe to run by many replicas at once: one does the work under an
//! advisory lock, the others wait and find nothing to do.

use std::time::Duration;

use sqlx::{Connection as _, Executor as _, PgConnection, migrate::Migrator};

use crate::{Connect, Roles, SCHEMA_CODE, SchemaCodeError, schema_code_apply};

pub static MIGRATOR: Migrator = sqlx::migrate!("../../../migrations");

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(
        "the database cannot be prepared; the login in database.url must be able to create roles, or the roles \
             gpuaas_owner, gpuaas_app and gpuaas_system must exist and be granted to it"
    )]
    Bootstrap(#[source] sqlx::Error),
    #[error("the database cannot be migrated")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the functions of the database cannot be brought up to date")]
    SchemaCode(#[from] SchemaCodeError),
    #[error("the database holds migration {0}, which this program does not know: start a newer program")]
    FromTheFuture(i64),
    #[error("the database cannot be reached")]
    Unreachable(#[source] sqlx::Error),
    #[error(
        "another process has been migrating the database for {} minutes; look at its log, stop it if it hangs, and start again",
        LONGEST_WAIT.as_secs() / 60
    )]
    Busy,
}

const BOOTSTRAP_LOCK: i64 = 0x6770_7561_6173;
const MIGRATE_LOCK: i64 = 0x6770_7561_6174;
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Creates the three roles and gives the owner the database. Needs the administrator's login once; later
/// runs find everything there and change nothing.
pub async fn bootstrap(connect: &Connect) -> Result<(), MigrateError> {
    let mut conn = PgConnection::connect_with(&connect.options(Roles::Admin))
        .await
        .map_err(MigrateError::Unreachable)?;
    let login = if connect.roles_may_log_in() { "LOGIN" } else { "NOLOGIN" };
    let script = format!(
        "DO $$ DECLARE r text; BEGIN
            PERFORM pg_advisory_xact_lock({BOOTSTRAP_LOCK});
            FOREACH r IN ARRAY ARRAY['gpuaas_owner', 'gpuaas_app', 'gpuaas_system'] LOOP
                IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
                    EXECUTE format('CREATE ROLE %I {login}', r);
                    -- From version 16 on, whoever makes a role may administer it but not yet take it.
                    EXECUTE format('GRANT %I TO %I', r, current_user);
                ELSIF NOT pg_has_role(current_user, r, 'MEMBER') THEN
                    EXECUTE format('GRANT %I TO %I', r, current_user);
                END IF;
            END LOOP;
            IF NOT has_schema_privilege('gpuaas_owner', 'public', 'CREATE') THEN
                EXECUTE 'GRANT USAGE, CREATE ON SCHEMA public TO gpuaas_owner';
            END IF;
        END $$"
    );
    conn.execute(sqlx::AssertSqlSafe(script)).await.map_err(MigrateError::Bootstrap)?;
    let _ = conn.close().await;
    Ok(())
}

/// Makes the database of a private server when it is not there yet. `connect` leads to its maintenance database.
pub async fn create_database(connect: &Connect, name: &str) -> Result<(), MigrateError> {
    let mut conn = PgConnection::connect_with(&connect.options(Roles::Admin))
        .await
        .map_err(MigrateError::Unreachable)?;
    let statement: Option<String> = sqlx::query_scalar(
        "SELECT format('CREATE DATABASE %I', $1) WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = $1)",
    )
    .bind(name)
    .fetch_optional(&mut conn)
    .await
    .map_err(MigrateError::Bootstrap)?;
    if let Some(statement) = statement {
        conn.execute(sqlx::AssertSqlSafe(statement)).await.map_err(MigrateError::Bootstrap)?;
    }
    let _ = conn.close().await;
    Ok(())
}

/// Brings the schema to this program's version, as the owner.
pub async fn migrate(connect: &Connect) -> Result<(), MigrateError> {
    let mut conn = PgConnection::connect_with(&connect.options(Roles::Owner))
        .await
        .map_err(MigrateError::Unreachable)?;
    let result = migrate_alone(&mut conn).await;
    // Gives the lock back, too.
    let _ = conn.close().await;
    result
}

async fn migrate_alone(conn: &mut PgConnection) -> Result<(), MigrateError> {
    lock(conn).await?;
    conn.execute(DROP_INVALID_INDEXES).await.map_err(MigrateError::Bootstrap)?;
    MIGRATOR.run(&mut *conn).await.map_err(|error| match error {
        sqlx::migrate::MigrateError::VersionMissing(version) => MigrateError::FromTheFuture(version),
        error => MigrateError::Migrate(error),
    })?;
    let highest = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
    schema_code_apply(conn, highest, SCHEMA_CODE).await?;
    Ok(())
}

/// Asks again and again instead of waiting in the statement, as the migrator itself would: a statement that waits holds a
/// snapshot, and `CREATE INDEX CONCURRENTLY` of the process that migrates waits for all snapshots, so the two would
/// deadlock.
async fn lock(conn: &mut PgConnection) -> Result<(), MigrateError> {
    let locked = async {
        loop {
            let mine = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(MIGRATE_LOCK);
            if mine.fetch_one(&mut *conn).await.map_err(MigrateError::Unreachable)? {
                return Ok(());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    tokio::time::timeout(LONGEST_WAIT, locked).await.map_err(|_| MigrateError::Busy)?
}

/// What a `CREATE INDEX CONCURRENTLY` leaves behind when it is interrupted. It is built anew by its migration, which was
/// not recorded. Under the lock: nobody builds one now.
const DROP_INVALID_INDEXES: &str = "DO $$ DECLARE broken regclass; BEGIN
    FOR broken IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE NOT i.indisvalid AND c.relkind = 'i' AND c.relnamespace = 'public'::regnamespace
            AND c.relowner = (SELECT oid FROM pg_roles WHERE rolname = current_user)
    LOOP EXECUTE format('DROP INDEX %s', broken); END LOOP;
END $$";
