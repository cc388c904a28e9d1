//! `/platform/skus`: products, sizes and prices, for operators.

use chrono::{DateTime, Utc};
use endpoint::{
    Created, Empty, Endpoint, Given, In, Json, NoContent, ScopeKind, Write, delete, get, patch, post,
};
use kernel::{
    Code, Failure, Page, Permission, Problem,
    text::{Name, Slug},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Capacity,
    model::{
        allocation::Shape,
        sku::{Currency, Price, PriceUnit, Profile, ProfileName, Sku, SkuCode, SlotModel},
    },
    service::catalog::managing::{self, PriceRequest, SkuDetail, SkuRequest},
};

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/platform/skus";
    const ONE: &str = "/api/v1/platform/skus/{sku}";
    const PROFILES: &str = "/api/v1/platform/skus/{sku}/profiles";
    const PRICES: &str = "/api/v1/platform/skus/{sku}/prices";
    vec![
        get(ALL, "sku_list", "List products")
            .describe("Includes inactive products.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), list),
        post(ALL, "sku_create", "Create a product")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists, Code::QuotaExceeded])
            .needs(Permission::CapacityManage)
            .audited("sku.create")
            .handle(capacity.clone(), create),
        get(ONE, "sku_get", "Show a product with its sizes and prices")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), show),
        patch(ONE, "sku_update", "Rename, offer or withdraw a product")
            .describe("Existing allocations are not affected. The hardware of a product cannot be changed.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict])
            .needs(Permission::CapacityManage)
            .audited("sku.update")
            .handle(capacity.clone(), update),
        post(PROFILES, "sku_profile_create", "Add a size to a product")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists, Code::QuotaExceeded, Code::Unprocessable])
            .needs(Permission::CapacityManage)
            .audited("sku_profile.create")
            .handle(capacity.clone(), profile_create),
        delete(
            "/api/v1/platform/skus/{sku}/profiles/{profile}",
            "sku_profile_delete",
            "Remove a size of a product",
        )
        .describe("Existing allocations of this size are not affected.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::CapacityManage)
        .audited("sku_profile.delete")
        .handle(capacity.clone(), profile_delete),
        get(PRICES, "sku_price_list", "List the prices of a product")
            .describe("Newest first, including future prices.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), price_list),
        post(PRICES, "sku_price_create", "Set a price, effective now or later")
            .describe("Prices are never changed or removed. Existing allocations keep their price.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists, Code::QuotaExceeded])
            .needs(Permission::CapacityManage)
            .audited("sku_price.create")
            .handle(capacity.clone(), price_create),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SkuPath {
    sku: SkuCode,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ProfilePath {
    sku: SkuCode,
    profile: ProfileName,
}

async fn list(_: Capacity, mut tx: ReadTx, _: In<Empty, Empty, ()>) -> Result<Json<Page<Sku>>, Failure> {
    Ok(Json(managing::sku_list(&mut tx).await?))
}

async fn show(
    _: Capacity,
    mut tx: ReadTx,
    input: In<SkuPath, Empty, ()>,
) -> Result<Json<SkuDetail>, Failure> {
    Ok(Json(managing::sku_get(&mut tx, &input.path.sku).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkuPriceCreate {
    unit: PriceUnit,
    /// Of one unit, in the currency's smallest unit.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    unit_price_minor: i64,
    currency: Currency,
    /// Now, when nothing is said.
    #[serde(default)]
    valid_from: Given<DateTime<Utc>>,
}

impl SkuPriceCreate {
    fn checked(self) -> Result<PriceRequest, Problem> {
        within("unit_price_minor", self.unit_price_minor, 0, 1_000_000_000)?;
        let Self { unit, unit_price_minor, currency, valid_from } = self;
        Ok(PriceRequest { unit, unit_price_minor, currency, valid_from: valid_from.0 })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkuCreate {
    sku: SkuCode,
    vendor: Slug,
    display_name: Name,
    shape: Shape,
    /// The model of its devices as nodes report it; empty for machines without GPUs.
    #[serde(default)]
    slot_model: Given<SlotModel>,
    /// Of one node.
    #[schemars(range(min = 0, max = 64))]
    gpus_total: i32,
    #[schemars(length(min = 1, max = 64))]
    allowed_gpu_counts: Vec<i32>,
    /// True, when nothing is said.
    #[serde(default)]
    active: Given<bool>,
    price: SkuPriceCreate,
}

async fn create(
    _: Capacity,
    mut tx: Write,
    input: In<Empty, Empty, Json<SkuCreate>>,
) -> Result<Created<SkuDetail>, Failure> {
    let body = input.body.0;
    within("gpus_total", i64::from(body.gpus_total), 0, 64)?;
    let slot_model = body.slot_model.0.map_or_else(|| SlotModel::parse(""), Ok);
    let request = SkuRequest {
        sku: body.sku,
        vendor: body.vendor,
        display_name: body.display_name,
        shape: body.shape,
        slot_model: slot_model.map_err(|hint| Problem::field("slot_model", hint))?,
        gpus_total: body.gpus_total,
        allowed_gpu_counts: body.allowed_gpu_counts,
        active: body.active.0.unwrap_or(true),
        price: body.price.checked()?,
    };
    Ok(Created(managing::sku_create(&mut tx, request).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkuUpdate {
    #[serde(default)]
    display_name: Given<Name>,
    /// False withdraws it: nothing new is launched.
    #[serde(default)]
    active: Given<bool>,
    #[serde(default)]
    allowed_gpu_counts: Given<Vec<i32>>,
}

async fn update(
    _: Capacity,
    mut tx: Write,
    input: In<SkuPath, Empty, Json<SkuUpdate>>,
) -> Result<Json<Sku>, Failure> {
    let body = input.body.0;
    let change = managing::SkuChange {
        display_name: body.display_name.0.map(Name::into_string),
        active: body.active.0,
        allowed_gpu_counts: body.allowed_gpu_counts.0,
    };
    Ok(Json(managing::sku_update(&mut tx, &input.path.sku, change, input.if_match).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkuProfileCreate {
    name: ProfileName,
    #[schemars(range(min = 0, max = 64))]
    gpus: i32,
    #[schemars(range(min = 1, max = 4096))]
    vcpus: i32,
    #[schemars(range(min = 256, max = 67_108_864))]
    memory_mib: i64,
    /// What is taken for this number of GPUs when nobody names a size.
    #[serde(default)]
    is_default: Given<bool>,
}

async fn profile_create(
    _: Capacity,
    mut tx: Write,
    input: In<SkuPath, Empty, Json<SkuProfileCreate>>,
) -> Result<Created<Profile>, Failure> {
    let body = input.body.0;
    within("vcpus", i64::from(body.vcpus), 1, 4096)?;
    within("memory_mib", body.memory_mib, 256, 67_108_864)?;
    let profile = Profile {
        name: body.name.into_string(),
        gpus: body.gpus,
        vcpus: body.vcpus,
        memory_mib: body.memory_mib,
        is_default: body.is_default.0.unwrap_or(false),
    };
    Ok(Created(managing::sku_profile_create(&mut tx, &input.path.sku, profile).await?))
}

async fn profile_delete(
    _: Capacity,
    mut tx: Write,
    input: In<ProfilePath, Empty, ()>,
) -> Result<NoContent, Failure> {
    managing::sku_profile_delete(&mut tx, &input.path.sku, &input.path.profile).await?;
    Ok(NoContent)
}

async fn price_list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<SkuPath, Empty, ()>,
) -> Result<Json<Page<Price>>, Failure> {
    Ok(Json(managing::sku_price_list(&mut tx, &input.path.sku).await?))
}

async fn price_create(
    _: Capacity,
    mut tx: Write,
    input: In<SkuPath, Empty, Json<SkuPriceCreate>>,
) -> Result<Created<Price>, Failure> {
    Ok(Created(managing::sku_price_create(&mut tx, &input.path.sku, input.body.0.checked()?).await?))
}

fn within(field: &'static str, value: i64, min: i64, max: i64) -> Result<(), Problem> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Problem::field(field, format!("must be from {min} to {max}")))
}
