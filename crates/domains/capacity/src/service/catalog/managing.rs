//! What operators do to products, sizes and prices. Each change drops what every replica has cached of the catalog.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Failure, Page, Problem,
    text::{Name, Slug},
};
use pg::{ReadTx, WriteTx, changed, created, found, removed};
use schemars::JsonSchema;
use serde::Serialize;

use super::KEY;
use crate::{
    model::{
        allocation::Shape,
        sku::{Currency, Price, PriceUnit, Profile, ProfileName, Sku, SkuCode, SlotModel, listed},
    },
    store,
};

pub use crate::store::catalog::SkuChange;

/// The whole catalog is kept in memory and shown on one page.
const MOST_SKUS: i64 = 500;
const MOST_PROFILES: usize = 100;
const MOST_PRICES: i64 = 1000;
/// How far a price may be dated ahead.
const FURTHEST: TimeDelta = TimeDelta::days(3660);

/// A product with its sizes and its newest prices.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SkuDetail {
    #[serde(flatten)]
    pub sku: Sku,
    pub profiles: Vec<Profile>,
    /// The newest first; also those that do not hold yet.
    pub prices: Vec<Price>,
}

const PRICES_SHOWN: i64 = 20;

#[derive(Clone, Debug)]
pub struct SkuRequest {
    pub sku: SkuCode,
    pub vendor: Slug,
    pub display_name: Name,
    pub shape: Shape,
    pub slot_model: SlotModel,
    pub gpus_total: i32,
    pub allowed_gpu_counts: Vec<i32>,
    pub active: bool,
    pub price: PriceRequest,
}

#[derive(Clone, Debug)]
pub struct PriceRequest {
    pub unit: PriceUnit,
    pub unit_price_minor: i64,
    pub currency: Currency,
    /// Nothing: from now on.
    pub valid_from: Option<DateTime<Utc>>,
}

pub async fn sku_list(tx: &mut ReadTx) -> Result<Page<Sku>, Failure> {
    Ok(Page { items: store::catalog::all(tx.conn()).await?, next_cursor: None })
}

pub async fn sku_get(tx: &mut ReadTx, sku: &SkuCode) -> Result<SkuDetail, Failure> {
    detail(tx.conn(), sku.as_str()).await
}

async fn detail(conn: &mut pg::Connection, sku: &str) -> Result<SkuDetail, Failure> {
    let found = found(store::catalog::get(conn, sku).await?, "sku")?;
    let profiles = store::catalog::profiles(conn, sku).await?;
    let prices = store::catalog::prices(conn, sku, PRICES_SHOWN).await?;
    Ok(SkuDetail { sku: found, profiles, prices })
}

/// With its first price, so that there is never a product that costs nobody knows what.
pub async fn sku_create(tx: &mut WriteTx, request: SkuRequest) -> Result<SkuDetail, Failure> {
    let now = tx.db().ambient().now();
    let counts = checked_counts(request.shape, request.gpus_total, request.allowed_gpu_counts)?;
    if store::catalog::count(tx.conn()).await? >= MOST_SKUS {
        return Err(Problem::new(Code::QuotaExceeded, "The maximum number of products is reached.").into());
    }
    let sku = Sku {
        sku: request.sku.into_string(),
        vendor: request.vendor.into_string(),
        display_name: request.display_name.into_string(),
        resource_class: request.shape.resource_class(),
        capacity_shape: request.shape,
        slot_kind: request.shape.slot_kind(),
        slot_model: request.slot_model.into_string(),
        gpus_total: request.gpus_total,
        allowed_gpu_counts: counts,
        active: request.active,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    let price = checked_price(&sku, request.price, now)?;
    store::catalog::insert(tx.conn(), &sku).await?;
    store::catalog::insert_price(tx.conn(), &sku.sku, &price, now).await?;
    let after = detail(tx.conn(), &sku.sku).await?;
    created(tx, "sku", &after.sku.sku, &after)?;
    tx.invalidate(KEY.to_owned());
    Ok(after)
}

/// What is made of it already goes on as it was sold.
pub async fn sku_update(
    tx: &mut WriteTx,
    sku: &SkuCode,
    change: SkuChange,
    if_match: Option<i64>,
) -> Result<Sku, Failure> {
    let now = tx.db().ambient().now();
    let before = sku_lock(tx, sku).await?;
    let counts = change.allowed_gpu_counts;
    let counts =
        counts.map(|counts| checked_counts(before.capacity_shape, before.gpus_total, counts)).transpose()?;
    let change = SkuChange { allowed_gpu_counts: counts, ..change };
    let after =
        store::catalog::update(tx.conn(), sku.as_str(), &change, if_match, now).await?.or_problem("sku")?;
    changed(tx, "sku", sku, &before, &after)?;
    tx.invalidate(KEY.to_owned());
    Ok(after)
}

pub async fn sku_profile_create(
    tx: &mut WriteTx,
    sku: &SkuCode,
    profile: Profile,
) -> Result<Profile, Failure> {
    let now = tx.db().ambient().now();
    let of = sku_lock(tx, sku).await?;
    if of.capacity_shape == Shape::Baremetal {
        let text = "A product of whole machines has exactly one size: the whole machine.";
        return Err(Problem::new(Code::Unprocessable, text).into());
    }
    if !of.allowed_gpu_counts.contains(&profile.gpus) {
        let text = format!("must be one of {}", listed(&of.allowed_gpu_counts));
        return Err(Problem::field("gpus", text).into());
    }
    if store::catalog::profiles(tx.conn(), sku.as_str()).await?.len() >= MOST_PROFILES {
        return Err(Problem::new(
            Code::QuotaExceeded,
            "The maximum number of sizes of the product is reached.",
        )
        .into());
    }
    store::catalog::insert_profile(tx.conn(), sku.as_str(), &profile, now).await?;
    created(tx, "sku_profile", format!("{sku}/{}", profile.name), &profile)?;
    tx.invalidate(KEY.to_owned());
    Ok(profile)
}

/// Machines of this size stay as they are.
pub async fn sku_profile_delete(tx: &mut WriteTx, sku: &SkuCode, name: &ProfileName) -> Result<(), Failure> {
    sku_lock(tx, sku).await?;
    let before = store::catalog::delete_profile(tx.conn(), sku.as_str(), name.as_str()).await?;
    removed(tx, "sku_profile", format!("{sku}/{name}"), &found(before, "sku_profile")?)?;
    tx.invalidate(KEY.to_owned());
    Ok(())
}

pub async fn sku_price_list(tx: &mut ReadTx, sku: &SkuCode) -> Result<Page<Price>, Failure> {
    found(store::catalog::get(tx.conn(), sku.as_str()).await?, "sku")?;
    Ok(Page { items: store::catalog::prices(tx.conn(), sku.as_str(), MOST_PRICES).await?, next_cursor: None })
}

/// From now or from a later moment on. What runs keeps the price that it was made at.
pub async fn sku_price_create(
    tx: &mut WriteTx,
    sku: &SkuCode,
    price: PriceRequest,
) -> Result<Price, Failure> {
    let now = tx.db().ambient().now();
    let price = checked_price(&sku_lock(tx, sku).await?, price, now)?;
    let known = store::catalog::prices(tx.conn(), sku.as_str(), MOST_PRICES).await?;
    if i64::try_from(known.len()).is_ok_and(|known| known >= MOST_PRICES) {
        return Err(Problem::new(
            Code::QuotaExceeded,
            "The maximum number of prices of the product is reached.",
        )
        .into());
    }
    store::catalog::insert_price(tx.conn(), sku.as_str(), &price, now).await?;
    created(tx, "sku_price", format!("{sku}/{}", price.valid_from.to_rfc3339()), &price)?;
    tx.invalidate(KEY.to_owned());
    Ok(price)
}

async fn sku_lock(tx: &mut WriteTx, sku: &SkuCode) -> Result<Sku, Failure> {
    Ok(found(store::catalog::lock(tx.conn(), sku.as_str()).await?, "sku")?)
}

fn checked_counts(shape: Shape, gpus_total: i32, mut counts: Vec<i32>) -> Result<Vec<i32>, Problem> {
    counts.sort_unstable();
    counts.dedup();
    let (total_fits, counts_fit, hint) = match shape {
        Shape::Baremetal => (
            gpus_total > 0,
            counts == [gpus_total],
            "must be equal to gpus_total for whole machines".to_owned(),
        ),
        Shape::GpuSlice => (
            gpus_total > 0,
            !counts.is_empty() && counts.iter().all(|count| (1..=gpus_total).contains(count)),
            format!("must be numbers from 1 to {gpus_total}"),
        ),
        Shape::CpuVm => (gpus_total == 0, counts == [0], "must be 0 for machines without GPUs".to_owned()),
    };
    if !total_fits {
        return Err(Problem::field(
            "gpus_total",
            "must be 0 for machines without GPUs and at least 1 for others",
        ));
    }
    if counts_fit { Ok(counts) } else { Err(Problem::field("allowed_gpu_counts", hint)) }
}

fn checked_price(sku: &Sku, price: PriceRequest, now: DateTime<Utc>) -> Result<Price, Problem> {
    if sku.capacity_shape == Shape::CpuVm && price.unit == PriceUnit::GpuHour {
        return Err(Problem::field("unit", "must be node_hour: the product has no GPUs"));
    }
    let valid_from = price.valid_from.unwrap_or(now);
    if valid_from < now || valid_from > now + FURTHEST {
        return Err(Problem::field(
            "valid_from",
            "must not be in the past or more than ten years in the future",
        ));
    }
    let (unit, currency) = (price.unit, price.currency.into_string());
    Ok(Price { valid_from, unit, unit_price_minor: price.unit_price_minor, currency })
}
