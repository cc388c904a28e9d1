//! A fleet of rows, changed at random and counted by hand.

use std::time::Duration;

use kernel::{
    CorrelationId,
    ids::{NodeId, SlotId},
};
use pg::{Origin, Permit, Roles, WriteTx};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use testkit::TestDb;
use uuid::Uuid;

/// Numbers that look random and are the same each time.
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let n = self.below(items.len() as u64);
        &items[usize::try_from(n).unwrap()]
    }
}

pub struct Kit {
    pub test: TestDb,
}

impl Kit {
    pub async fn new() -> Self {
        let test = TestDb::create().await;
        test.sql("INSERT INTO regions VALUES ('here', 'Here', 1, now(), now()), ('there', 'There', 1, now(), now())")
            .await;
        Self { test }
    }

    /// Nodes with so many slots each, four to a NUMA node, all free.
    pub async fn nodes(&self, nodes: u32, slots: u32) -> Vec<Uuid> {
        let mut admin = self.admin().await;
        let sql = "WITH made AS (
                INSERT INTO nodes (id, hostname, region, state, state_changed_at, created_at, updated_at)
                SELECT gen_random_uuid(), gen_random_uuid()::text, 'here', 'active', now(), now(), now()
                FROM generate_series(1, $1) RETURNING id, hostname)
            SELECT id FROM made ORDER BY id";
        let ids: Vec<Uuid> =
            sqlx::query_scalar(sql).bind(i32::try_from(nodes).unwrap()).fetch_all(&mut admin).await.unwrap();
        self.slots(&ids, 0, slots, "gpu", "H200").await;
        ids
    }

    pub async fn slots(&self, nodes: &[Uuid], from: u32, to: u32, kind: &str, model: &str) {
        let sql =
            "INSERT INTO node_resource_slots (id, node_id, slot_index, kind, pci_address, model, numa_node,
                fabric_mode, fabric_vf, state, health, created_at, updated_at)
            SELECT gen_random_uuid(), n, k, $4, CASE $4 WHEN 'gpu' THEN 'gpu' || k END, $5, k / 4,
                CASE $4 WHEN 'gpu' THEN 'vf' ELSE 'none' END, CASE $4 WHEN 'gpu' THEN 'vf' || k END,
                'available', 'healthy', now(), now()
            FROM unnest($1::uuid[]) AS n, generate_series($2, $3 - 1) AS k";
        sqlx::query(sql)
            .bind(nodes)
            .bind(i32::try_from(from).unwrap())
            .bind(i32::try_from(to).unwrap())
            .bind(kind)
            .bind(model)
            .execute(&mut self.admin().await)
            .await
            .unwrap();
    }

    pub async fn admin(&self) -> PgConnection {
        self.test.conn(Roles::Admin).await
    }

    /// Without the lifecycles, with the counting.
    pub async fn free_of_lifecycles(&self) {
        self.test
            .sql(
                "ALTER TABLE node_resource_slots DISABLE TRIGGER node_resource_slots_lifecycle;
                 ALTER TABLE nodes DISABLE TRIGGER nodes_lifecycle",
            )
            .await;
    }

    pub async fn slot_ids(&self, node: Uuid) -> Vec<SlotId> {
        let sql = "SELECT id FROM node_resource_slots WHERE node_id = $1 ORDER BY slot_index";
        let ids: Vec<Uuid> =
            sqlx::query_scalar(sql).bind(node).fetch_all(&mut self.admin().await).await.unwrap();
        ids.into_iter().map(SlotId::from).collect()
    }

    pub async fn text(&self, sql: String) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut self.admin().await).await.unwrap()
    }

    pub async fn write(&self) -> WriteTx {
        let origin = Origin::internal(CorrelationId(self.test.db.ambient().uuid()));
        self.test.db.write(Permit::system("test", origin), "test.write").await.unwrap()
    }

    /// What is kept and what a count by other means finds must be the same.
    pub async fn assert_counted(&self) {
        let sql = "WITH slots AS (
                SELECT s.*, c.clean AND n.serves = 'any' AND c.fabric AS free,
                    c.clean AND (n.serves = 'baremetal' OR c.fabric) AS ready
                FROM node_resource_slots s JOIN nodes n ON n.id = s.node_id, LATERAL (SELECT
                    s.state = 'available' AND s.health = 'healthy' AND s.blockers = '[]' AS clean,
                    s.kind = 'cpu' OR s.fabric_mode = 'vf' AND (s.fabric_numa IS NULL OR s.numa_node IS NULL
                        OR s.fabric_numa = s.numa_node) AS fabric) c),
            counted AS (
                SELECT s.node_id, s.kind, s.model, n.region, n.pool_id, n.labels, n.sku_eligibility,
                    n.state = 'active' AND n.cordon_reason IS NULL AS placeable,
                    n.serves = 'any' AS slices, count(*)::integer AS total, (count(*) FILTER (WHERE s.free))::integer AS free,
                    (SELECT max(f)::integer FROM (SELECT count(*) FILTER (WHERE o.free) AS f FROM slots o
                        WHERE (o.node_id, o.kind, o.model) = (s.node_id, s.kind, s.model) GROUP BY o.numa_node) x)
                        AS numa_fit,
                    (count(*) FILTER (WHERE s.ready))::integer AS ready,
                    (count(*) FILTER (WHERE s.state = 'cleaning'))::integer AS cleaning,
                    (count(*) FILTER (WHERE NOT s.ready AND s.state NOT IN ('reserved', 'in_use', 'cleaning')))::integer
                        AS blocked,
                    NOT EXISTS (SELECT FROM slots o WHERE o.node_id = s.node_id
                        AND (o.kind, o.model) <> (s.kind, s.model)) AS alone,
                    NOT EXISTS (SELECT FROM slots o WHERE o.node_id = s.node_id AND (NOT o.ready
                        OR (o.kind, o.model) <> (s.kind, s.model))) AS whole
                FROM slots s JOIN nodes n ON n.id = s.node_id
                GROUP BY s.node_id, s.kind, s.model, n.id)
            SELECT 'kept ' || k::text FROM (TABLE node_capacity EXCEPT TABLE counted) k
            UNION ALL SELECT 'counted ' || c::text FROM (TABLE counted EXCEPT TABLE node_capacity) c";
        let wrong: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut self.admin().await).await.unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub need: i32,
    pub whole: bool,
    pub members: i32,
    pub spread: bool,
    pub limit: i32,
    pub wait: bool,
}

impl Wanted {
    pub const fn slots(need: i32, limit: i32) -> Self {
        Self { need, whole: false, members: 1, spread: false, limit, wait: false }
    }
}

/// Nodes in the order they came, each with how many slots.
pub async fn candidates(conn: &mut PgConnection, wanted: Wanted) -> Result<Vec<(Uuid, usize)>, sqlx::Error> {
    let sql = "SELECT node_id, slot_id FROM
        fleet_candidates(ROW('gpu', 'H200', 'here', 'any', NULL, '{}', $1, $2)::slot_request, $3, $4, $5, $6)";
    let rows = sqlx::query(sql)
        .bind(wanted.need)
        .bind(wanted.whole)
        .bind(wanted.members)
        .bind(wanted.spread)
        .bind(wanted.limit)
        .bind(wanted.wait)
        .fetch_all(conn)
        .await?;
    let mut found: Vec<(Uuid, usize)> = Vec::new();
    for row in rows {
        let node: Uuid = row.get("node_id");
        match found.last_mut() {
            Some((last, count)) if *last == node => *count += 1,
            _ => found.push((node, 1)),
        }
    }
    Ok(found)
}

/// Takes `need` slots of the best node, as a launch does; whether it got them.
pub async fn take(conn: &mut PgConnection, wanted: Wanted) -> Result<bool, sqlx::Error> {
    let mut tx = conn.begin().await?;
    let sql = "SELECT slot_id FROM fleet_candidates(
        ROW('gpu', 'H200', 'here', 'any', NULL, '{}', $1, $2)::slot_request, 1, $3, 1, $4)";
    let slots: Vec<Uuid> = sqlx::query_scalar(sql)
        .bind(wanted.need)
        .bind(wanted.whole)
        .bind(wanted.spread)
        .bind(wanted.wait)
        .fetch_all(&mut *tx)
        .await?;
    let slots: Vec<Uuid> = slots.into_iter().take(usize::try_from(wanted.need).unwrap()).collect();
    if slots.len() < usize::try_from(wanted.need).unwrap() {
        tx.rollback().await?;
        return Ok(false);
    }
    let got: i32 =
        sqlx::query_scalar("SELECT fleet_slots_reserve($1, now())").bind(&slots).fetch_one(&mut *tx).await?;
    assert_eq!(usize::try_from(got).unwrap(), slots.len(), "what is held can be taken");
    tx.commit().await?;
    Ok(true)
}

/// Nobody may wait in a circle: the database would say so, after a second.
pub async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), work).await {
        Ok(value) => value,
        Err(_) => panic!("{what} took more than a minute"),
    }
}

pub fn node_of(id: Uuid) -> NodeId {
    NodeId::from(id)
}
