//! A database per test.

use std::fmt::Debug;

use kernel::{Ambient, CorrelationId, policy};
use lifecycle::Lifecycle;
use pg::{Connect, Db, Origin, Permit, Roles};
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::{eventually::note_seen, postgres::socket_dir};

const ADMIN: &str = "gpuaas_super";
const TEMPLATE_LOCK: i64 = 0x7465_6d70;

fn connect_to(database: &str) -> Connect {
    Connect::builtin(socket_dir().as_ref(), 5432, ADMIN, database)
}

/// A URL to a database of the test server, as its administrator.
pub fn admin_url(database: &str) -> String {
    format!("postgres:///{database}?host={}&user={ADMIN}", socket_dir())
}

/// A migrated database of its own, dropped with this value.
pub struct TestDb {
    pub name: String,
    pub connect: Connect,
    pub db: Db,
}

impl TestDb {
    pub async fn create() -> Self {
        Self::clone_template(Ambient::system()).await
    }

    /// With the test's own clock, which the ledger of this database believes. [`Self::create`] has the real clocks of the
    /// process and of the database.
    pub async fn create_with(ambient: Ambient) -> Self {
        let test = Self::clone_template(ambient).await;
        test.ledger_clock("p_claimed").await;
        test
    }

    /// What the ledger of this database takes for the time: an SQL expression, in which `p_claimed` is the time that the
    /// calling process has.
    pub async fn ledger_clock(&self, expression: &str) {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION ledger_clock(p_claimed timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
                 AS $$ SELECT {expression} $$"
        );
        self.sql(&sql).await;
    }

    async fn clone_template(ambient: Ambient) -> Self {
        let template = template().await;
        let name = format!("t_{}", uuid::Uuid::from_bytes(ambient.bytes()).simple());
        let mut admin = admin("postgres").await;
        run(&mut admin, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        let connect = connect_to(&name);
        let db = Db::new(connect.clone(), 16, 8, ambient);
        Self { name, connect, db }
    }

    /// An empty, unmigrated database.
    pub async fn empty() -> Self {
        let ambient = Ambient::system();
        let name = format!("t_{}", uuid::Uuid::from_bytes(ambient.bytes()).simple());
        run(&mut admin("postgres").await, &format!("CREATE DATABASE {name}")).await;
        let connect = connect_to(&name);
        let db = Db::new(connect.clone(), 4, 4, ambient);
        Self { name, connect, db }
    }

    /// Migrated up to this version, for rows as an earlier release left them; [`Self::migrate_until`] goes on.
    pub async fn migrated_until(version: i64) -> Self {
        let test = Self::empty().await;
        pg::bootstrap(&test.connect).await.expect("make the roles");
        test.migrate_until(version).await;
        test
    }

    pub async fn migrate_until(&self, version: i64) {
        let chosen = pg::MIGRATOR.iter().filter(|migration| migration.version <= version).cloned().collect();
        let migrator = sqlx::migrate::Migrator::with_migrations(chosen);
        migrator.run(&mut self.conn(Roles::Owner).await).await.expect("migrate");
    }

    /// A connection as one of the database's own roles, or as the superuser (`Roles::Admin`).
    pub async fn conn(&self, role: Roles) -> PgConnection {
        PgConnection::connect_with(&self.connect.options(role)).await.expect("connect to the test database")
    }

    /// Runs statements as the superuser, behind everybody's back.
    pub async fn sql(&self, statements: &str) {
        run(&mut self.conn(Roles::Admin).await, statements).await;
    }

    /// Runs statements as the superuser, past every trigger and foreign key.
    pub async fn tamper(&self, statements: &str) {
        self.sql(&format!("SET session_replication_role = replica; {statements}")).await;
    }

    /// The one value that a query gives, as the superuser sees it.
    pub async fn one<T: Scalar>(&self, sql: &str) -> T {
        let mut conn = self.conn(Roles::Admin).await;
        let found = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut conn).await;
        let found = found.unwrap_or_else(|error| panic!("{sql}: {error}"));
        note_seen(|| format!("{sql}: {found:?}"));
        found
    }

    /// The table of a lifecycle in the code is the one that the database enforces.
    pub async fn assert_lifecycle<L: Lifecycle>(&self) {
        let sql = "SELECT from_state, to_state FROM lifecycle_transitions WHERE lifecycle = $1 ORDER BY 1, 2";
        let mut conn = self.conn(Roles::Admin).await;
        let rows: Vec<(String, String)> =
            sqlx::query_as(sql).bind(L::NAME).fetch_all(&mut conn).await.expect("the table");
        let rows: Vec<(&str, &str)> = rows.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        assert_eq!(rows, L::rows(), "{}", L::NAME);
    }

    /// A copy of it as it is now, by its name. Nobody may be connected.
    pub async fn back_up(&self) -> String {
        let copy = format!("{}_backup", self.name);
        run(&mut admin("postgres").await, &format!("CREATE DATABASE {copy} TEMPLATE {}", self.name)).await;
        copy
    }

    /// Puts a copy in its place.
    pub async fn restore(&self, copy: String) {
        let mut admin = admin("postgres").await;
        run(&mut admin, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
        run(&mut admin, &format!("ALTER DATABASE {copy} RENAME TO {}", self.name)).await;
    }

    pub fn url(&self) -> String {
        admin_url(&self.name)
    }

    /// Takes the rate limits out of the way, as a platform administrator would by policy.
    pub async fn lift_rate_limits(&self) {
        self.set_global_policy("rate_limit.api_requests_per_minute", "10000000").await;
        self.set_global_policy("rate_limit.admin_overview_requests_per_minute", "10000000").await;
        self.set_global_policy("rate_limit.financial_requests_per_minute", "10000000").await;
        self.set_global_policy("rate_limit.terminal_token_requests_per_minute", "10000000").await;
        self.set_global_policy("rate_limit.ssh_token_requests_per_minute", "10000000").await;
        self.set_global_policy("rate_limit.websocket_attempts_per_minute", "10000000").await;
    }

    /// A value that the catalog allows: any other would be stored, and the default would hold.
    pub async fn set_global_policy(&self, key: &str, value: &str) {
        let definition = policy::find(key).unwrap_or_else(|| panic!("there is no policy {key}"));
        let parsed = serde_json::from_str(value).unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
        definition.check(&parsed).unwrap_or_else(|reason| panic!("{key} = {value}: {reason}"));
        let sql = format!(
            "INSERT INTO policy_values (id, scope, key, value, updated_by, created_at, updated_at)
             VALUES (gen_random_uuid(), 'global', '{key}', '{value}', '00000000-0000-0000-0000-000000000000', now(), now())
             ON CONFLICT (org_id, project_id, user_id, key) DO UPDATE SET value = excluded.value"
        );
        run(&mut self.conn(Roles::Admin).await, &sql).await;
    }

    /// The same while something runs that keeps policies in memory.
    pub async fn change_global_policy(&self, key: &str, value: i64) {
        self.set_global_policy(key, &value.to_string()).await;
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        let permit = Permit::system("a test changes a policy", origin);
        let mut tx = self.db.write(permit, "policy.set").await.expect("begin");
        tx.invalidate("policy".to_owned());
        tx.commit(None).await.expect("commit");
    }
}

/// What a column can be read as.
pub trait Scalar:
    for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Debug + Send + Unpin
{
}

impl<T> Scalar for T where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Debug + Send + Unpin
{
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        self.db.close();
        // A thread of its own: the test's runtime may be on its way out.
        let dropper = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            runtime.block_on(async {
                let mut admin = admin("postgres").await;
                let _ = admin
                    .execute(sqlx::AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")))
                    .await;
            });
        });
        let _ = dropper.join();
    }
}

async fn admin(database: &str) -> PgConnection {
    PgConnection::connect_with(&connect_to(database).options(Roles::Admin))
        .await
        .expect("connect to the test Postgres")
}

async fn run(conn: &mut PgConnection, sql: &str) {
    conn.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The template for the current migrations; whoever comes first makes it.
async fn template() -> String {
    let mut hash = Sha256::new();
    for migration in pg::MIGRATOR.iter() {
        hash.update(&migration.checksum);
    }
    hash.update(pg::SCHEMA_CODE.digest());
    let digest = hash.finalize();
    let name =
        format!("gpuaas_template_{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
    let mut conn = admin("postgres").await;
    if exists(&mut conn, &name).await {
        return name;
    }
    run(&mut conn, &format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
    if !exists(&mut conn, &name).await {
        run(&mut conn, &format!("DROP DATABASE IF EXISTS {name}_building")).await;
        run(&mut conn, &format!("CREATE DATABASE {name}_building")).await;
        let connect = connect_to(&format!("{name}_building"));
        pg::bootstrap(&connect).await.expect("bootstrap the template");
        pg::migrate(&connect).await.expect("migrate the template");
        run(&mut conn, &format!("ALTER DATABASE {name}_building RENAME TO {name}")).await;
        run(&mut conn, &format!("ALTER DATABASE {name} IS_TEMPLATE true")).await;
    }
    run(&mut conn, &format!("SELECT pg_advisory_unlock({TEMPLATE_LOCK})")).await;
    name
}

async fn exists(conn: &mut PgConnection, template: &str) -> bool {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)")
        .bind(template)
        .fetch_one(conn)
        .await
        .expect("ask for the template")
}
