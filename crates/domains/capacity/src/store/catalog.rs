//! Products, sizes, prices.

use chrono::{DateTime, Utc};
use fleet::api::SlotKind;
use kernel::{Code, Failure, Problem};
use pg::{Connection, Swap};

use crate::model::{
    allocation::Shape,
    sku::{Availability, Price, PriceUnit, Profile, ResourceClass, Sku},
};

/// All of them: their number is bounded where they are made.
pub async fn all(conn: &mut Connection) -> Result<Vec<Sku>, Failure> {
    let rows = sqlx::query_as!(
        Sku,
        r#"SELECT sku, vendor, display_name, resource_class AS "resource_class: ResourceClass",
             capacity_shape AS "capacity_shape: Shape", slot_kind AS "slot_kind: SlotKind", slot_model, gpus_total, allowed_gpu_counts, active,
             version, created_at, updated_at
         FROM sku_catalog ORDER BY sku"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

pub async fn get(conn: &mut Connection, sku: &str) -> Result<Option<Sku>, Failure> {
    let row = sqlx::query_as!(
        Sku,
        r#"SELECT sku, vendor, display_name, resource_class AS "resource_class: ResourceClass",
             capacity_shape AS "capacity_shape: Shape", slot_kind AS "slot_kind: SlotKind", slot_model, gpus_total, allowed_gpu_counts, active,
             version, created_at, updated_at
         FROM sku_catalog WHERE sku = $1"#,
        sku
    )
    .fetch_optional(conn)
    .await?;
    Ok(row)
}

/// Held, so that what is decided from it stays true.
pub async fn lock(conn: &mut Connection, sku: &str) -> Result<Option<Sku>, Failure> {
    let row = sqlx::query_as!(
        Sku,
        r#"SELECT sku, vendor, display_name, resource_class AS "resource_class: ResourceClass",
             capacity_shape AS "capacity_shape: Shape", slot_kind AS "slot_kind: SlotKind", slot_model, gpus_total, allowed_gpu_counts, active,
             version, created_at, updated_at
         FROM sku_catalog WHERE sku = $1 FOR UPDATE"#,
        sku
    )
    .fetch_optional(conn)
    .await?;
    Ok(row)
}

/// Every size with its product, by name.
pub async fn all_profiles(conn: &mut Connection) -> Result<Vec<(String, Profile)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT sku, name, gpus, vcpus, memory_mib, is_default FROM resource_profiles ORDER BY sku, name"
    )
    .fetch_all(conn)
    .await?;
    let profile = |row: (String, String, i32, i32, i64, bool)| {
        let (sku, name, gpus, vcpus, memory_mib, is_default) = row;
        (sku, Profile { name, gpus, vcpus, memory_mib, is_default })
    };
    Ok(rows
        .into_iter()
        .map(|r| profile((r.sku, r.name, r.gpus, r.vcpus, r.memory_mib, r.is_default)))
        .collect())
}

/// With its product: the price that holds at `now`, and those that will.
pub async fn prices_from(
    conn: &mut Connection,
    now: DateTime<Utc>,
) -> Result<Vec<(String, Price)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT sku, valid_from, unit AS "unit: PriceUnit", unit_price_minor, currency FROM sku_prices p
         WHERE valid_from >= coalesce((SELECT max(q.valid_from) FROM sku_prices q
             WHERE q.sku = p.sku AND q.valid_from <= $1), '-infinity')
         ORDER BY sku, valid_from"#,
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| {
            let price = Price {
                valid_from: r.valid_from,
                unit: r.unit,
                unit_price_minor: r.unit_price_minor,
                currency: r.currency,
            };
            (r.sku, price)
        })
        .collect())
}

/// What to show of one product: its kind of slots, and the size whose number is told.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub sku: &'a Sku,
    /// 0: the whole node.
    pub size: i32,
}

/// How much of each product there is, by region, as it is committed now.
pub async fn availability(
    conn: &mut Connection,
    wanted: &[Wanted<'_>],
) -> Result<Vec<(String, Availability)>, sqlx::Error> {
    let texts =
        |text: fn(&Sku) -> &str| wanted.iter().map(|w| text(w.sku).to_owned()).collect::<Vec<String>>();
    let rows = sqlx::query!(
        r#"SELECT sku AS "sku!", region AS "region!", total AS "total!", free AS "free!", largest AS "largest!",
               whole_nodes AS "whole_nodes!", launchable AS "launchable!"
           FROM fleet_availability($1, $2, $3, $4, $5) ORDER BY sku, region"#,
        &texts(|sku| &sku.sku),
        &texts(|sku| sku.slot_kind.name()),
        &texts(|sku| &sku.slot_model),
        &wanted.iter().map(|w| w.sku.gpus_total).collect::<Vec<i32>>(),
        &wanted.iter().map(|w| w.size).collect::<Vec<i32>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| {
            let availability = Availability {
                region: r.region,
                total: r.total,
                free: r.free,
                largest: i64::from(r.largest),
                whole_machines: r.whole_nodes,
                launchable: r.launchable,
            };
            (r.sku, availability)
        })
        .collect())
}

/// As many as there are.
pub async fn count(conn: &mut Connection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM sku_catalog"#).fetch_one(conn).await
}

pub async fn insert(conn: &mut Connection, new: &Sku) -> Result<(), Failure> {
    sqlx::query!(
        "INSERT INTO sku_catalog (sku, vendor, display_name, resource_class, capacity_shape, slot_kind, slot_model,
             gpus_total, allowed_gpu_counts, active, version, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        new.sku,
        new.vendor,
        new.display_name,
        new.resource_class.name(),
        new.capacity_shape.name(),
        new.slot_kind.name(),
        new.slot_model,
        new.gpus_total,
        &new.allowed_gpu_counts,
        new.active,
        new.version,
        new.created_at,
        new.updated_at,
    )
    .execute(conn)
    .await
    .map_err(|error| exists(error, "sku_catalog_pkey", "A product with this name already exists.", "sku"))?;
    Ok(())
}

/// What can be changed of a product; what it is made of cannot.
#[derive(Clone, Debug, Default)]
pub struct SkuChange {
    pub display_name: Option<String>,
    pub active: Option<bool>,
    pub allowed_gpu_counts: Option<Vec<i32>>,
}

pub async fn update(
    conn: &mut Connection,
    sku: &str,
    change: &SkuChange,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<Sku>, Failure> {
    let row = sqlx::query_as!(
        Sku,
        r#"UPDATE sku_catalog SET display_name = coalesce($3, display_name), active = coalesce($4, active),
             allowed_gpu_counts = coalesce($5, allowed_gpu_counts), version = version + 1, updated_at = $6
         WHERE sku = $1 AND version = coalesce($2, version)
         RETURNING sku, vendor, display_name, resource_class AS "resource_class: ResourceClass",
             capacity_shape AS "capacity_shape: Shape", slot_kind AS "slot_kind: SlotKind", slot_model, gpus_total, allowed_gpu_counts, active,
             version, created_at, updated_at"#,
        sku,
        if_match,
        change.display_name.as_deref(),
        change.active,
        change.allowed_gpu_counts.as_deref(),
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match row {
        Some(_) => None,
        None => get(conn, sku).await?.map(|sku| sku.version),
    };
    Ok(Swap::from_update(row, current))
}

pub async fn insert_profile(
    conn: &mut Connection,
    sku: &str,
    profile: &Profile,
    now: DateTime<Utc>,
) -> Result<(), Failure> {
    sqlx::query!(
        "INSERT INTO resource_profiles (sku, name, gpus, vcpus, memory_mib, is_default, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)",
        sku,
        profile.name,
        profile.gpus,
        profile.vcpus,
        profile.memory_mib,
        profile.is_default,
        now,
    )
    .execute(conn)
    .await
    .map_err(|error| match pg::constraint_violated(&error) {
        Some("resource_profiles_default") => Problem::new(
            Code::AlreadyExists,
            "A default size for this GPU count already exists.",
        )
        .detail("field", "is_default")
        .suggest("Delete it first, or add this one without is_default.")
        .into(),
        _ => exists(error, "resource_profiles_pkey", "A size with this name already exists.", "name"),
    })?;
    Ok(())
}

pub async fn delete_profile(
    conn: &mut Connection,
    sku: &str,
    name: &str,
) -> Result<Option<Profile>, sqlx::Error> {
    sqlx::query_as!(
        Profile,
        "DELETE FROM resource_profiles WHERE sku = $1 AND name = $2
         RETURNING name, gpus, vcpus, memory_mib, is_default",
        sku,
        name,
    )
    .fetch_optional(conn)
    .await
}

pub async fn profiles(conn: &mut Connection, sku: &str) -> Result<Vec<Profile>, sqlx::Error> {
    sqlx::query_as!(
        Profile,
        "SELECT name, gpus, vcpus, memory_mib, is_default FROM resource_profiles WHERE sku = $1 ORDER BY name",
        sku,
    )
    .fetch_all(conn)
    .await
}

pub async fn insert_price(
    conn: &mut Connection,
    sku: &str,
    price: &Price,
    now: DateTime<Utc>,
) -> Result<(), Failure> {
    sqlx::query!(
        "INSERT INTO sku_prices (sku, valid_from, unit, unit_price_minor, currency, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        sku,
        price.valid_from,
        price.unit.name(),
        price.unit_price_minor,
        price.currency,
        now,
    )
    .execute(conn)
    .await
    .map_err(|error| {
        exists(error, "sku_prices_pkey", "A price with this effective time already exists.", "valid_from")
    })?;
    Ok(())
}

/// The newest first.
pub async fn prices(conn: &mut Connection, sku: &str, limit: i64) -> Result<Vec<Price>, sqlx::Error> {
    sqlx::query_as!(
        Price,
        r#"SELECT valid_from, unit AS "unit: PriceUnit", unit_price_minor, currency FROM sku_prices WHERE sku = $1
         ORDER BY valid_from DESC LIMIT $2"#,
        sku,
        limit,
    )
    .fetch_all(conn)
    .await
}

fn exists(error: sqlx::Error, constraint: &str, text: &'static str, field: &'static str) -> Failure {
    if pg::constraint_violated(&error) == Some(constraint) {
        return Problem::new(Code::AlreadyExists, text).detail("field", field).into();
    }
    error.into()
}
