//! Fleets that are rows only.

use anyhow::ensure;
use sqlx::{Executor as _, PgConnection};

/// Where there is room: nodes with none to all of their slots free.
pub const OPEN: &str = "bench";
/// Where there is not: at most one free slot in a node, and many that are being cleaned.
pub const FULL: &str = "full";
pub const SLOTS_PER_NODE: u32 = 8;

pub async fn regions(db: &mut PgConnection) -> anyhow::Result<()> {
    for code in [OPEN, FULL] {
        sqlx::query("INSERT INTO regions (code, name, created_at, updated_at) VALUES ($1, $1, now(), now())")
            .bind(code)
            .execute(&mut *db)
            .await?;
    }
    Ok(())
}

/// Adds nodes until there are so many slots. One node in four stands where nothing is free, and one in twenty is kept
/// for another product. Their ids are in no order.
pub async fn grow(db: &mut PgConnection, slots: u32) -> anyhow::Result<()> {
    let nodes = i64::from(slots.div_ceil(SLOTS_PER_NODE));
    let there: i64 = sqlx::query_scalar("SELECT count(*) FROM nodes").fetch_one(&mut *db).await?;
    ensure!(there <= nodes, "fleets are measured from the smallest to the largest");
    sqlx::query(
        "INSERT INTO nodes (id, hostname, region, labels, sku_eligibility, state, state_changed_at, created_at, updated_at)
         SELECT md5('node' || n)::uuid, 'made-up-' || n, CASE WHEN n % 4 = 0 THEN $3 ELSE $4 END,
             jsonb_build_object('rack', 'r' || n / 32), CASE WHEN n % 20 = 0 THEN '{other}' ELSE '{}' END::text[],
             'active', now(), now(), now()
         FROM generate_series($1 + 1, $2) AS n",
    )
    .bind(there)
    .bind(nodes)
    .bind(FULL)
    .bind(OPEN)
    .execute(&mut *db)
    .await?;
    sqlx::query(
        "INSERT INTO node_resource_slots (id, node_id, slot_index, kind, model, state, health, pci_address, nvme_device,
             numa_node, fabric_mode, fabric_vf, created_at, updated_at)
         SELECT md5('slot' || n || '.' || i)::uuid, md5('node' || n)::uuid, i, 'gpu', 'H200',
             CASE WHEN n % 4 <> 0 THEN CASE WHEN i < n % 9 THEN 'in_use' ELSE 'available' END
                  WHEN i = 0 AND n % 8 = 0 THEN 'available' WHEN i = 1 THEN 'cleaning' ELSE 'in_use' END,
             'healthy', '0000:0' || i || ':00.0', 'nvme' || i, i / 4, 'vf', '0000:0' || i || ':00.1', now(), now()
         FROM generate_series($1 + 1, $2) AS n, generate_series(0, $3 - 1) AS i",
    )
    .bind(there)
    .bind(nodes)
    .bind(i64::from(SLOTS_PER_NODE))
    .execute(&mut *db)
    .await?;
    settle(db).await?;
    db.execute("ANALYZE").await?;
    Ok(())
}

/// Gives back all that was reserved, so that the next measurement finds what this one found. A client that stops leaves
/// requests behind which the server still commits: a slot is free only together with its claim, or the next one to take
/// the slot would meet a live claim.
pub async fn capacity_free(db: &mut PgConnection) -> anyhow::Result<()> {
    for statement in [
        "WITH freed AS (UPDATE capacity_claims SET freed_at = now() WHERE freed_at IS NULL RETURNING slot_id)
         UPDATE node_resource_slots s SET state = 'available' FROM freed WHERE s.id = freed.slot_id AND s.state = 'reserved'",
        "UPDATE capacity_holdings SET gpus = 0, allocations = 0",
    ] {
        db.execute(statement).await?;
    }
    settle(db).await
}

/// What was changed by the preparations is not left to whoever is measured next.
async fn settle(db: &mut PgConnection) -> anyhow::Result<()> {
    db.execute("VACUUM nodes, node_resource_slots, node_capacity, capacity_holdings, capacity_claims")
        .await?;
    db.execute("CHECKPOINT").await?;
    Ok(())
}

/// Slots that could be reserved still.
pub async fn free(db: &mut PgConnection) -> anyhow::Result<i64> {
    let sql = "SELECT coalesce(sum(free), 0)::bigint FROM node_capacity WHERE region = $1 AND sku_eligibility = '{}'";
    Ok(sqlx::query_scalar(sql).bind(OPEN).fetch_one(db).await?)
}

/// Allocations that nobody pays for: each variant is to set money aside.
pub async fn unmetered(db: &mut PgConnection) -> anyhow::Result<i64> {
    let sql = "SELECT count(*) FROM allocations a WHERE NOT EXISTS (SELECT FROM meters m WHERE m.allocation_id = a.id)";
    Ok(sqlx::query_scalar(sql).fetch_one(db).await?)
}
