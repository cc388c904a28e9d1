//! Why something can or cannot be launched, without launching it. Reads only, and says nothing about single machines.

use identity::api::Where;
use kernel::{
    Failure, Problem,
    ids::{OrgId, ProjectId, UserId},
    policy::{UNLIMITED, keys},
};
use pg::Connection;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::{
    Capacity,
    model::{
        group::MOST_MEMBERS,
        placement::{Change, Refusal, RefusalReason, Request},
        sku::{PriceUnit, Product},
    },
    service::placing,
    store::{
        candidates::SlotsOf,
        claims::{self, QuotaUsage},
    },
};

/// Who asks, and where.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub org: OrgId,
    pub project: ProjectId,
    /// A person or a service account.
    pub id: Uuid,
    pub user: Option<UserId>,
}

/// What would be launched.
#[derive(Clone, Debug)]
pub struct Question {
    pub sku: String,
    pub gpus: Option<i32>,
    pub profile: Option<String>,
    pub count: u32,
    pub region: Option<String>,
}

/// What a launch would meet at this moment. Nothing is kept free for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllocationExplanation")]
pub struct Explanation {
    pub sku: String,
    pub profile: String,
    pub gpus: i32,
    pub count: u32,
    /// There is room, and the limits allow it. Funds are looked at by the launch.
    pub fits: bool,
    /// Where it would go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub region: Option<String>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refusal")]
    pub refusal: Option<Refusal>,
    pub price: QuotedPrice,
    pub limits: QuotedLimits,
}

/// What it would cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotedPrice {
    pub unit: PriceUnit,
    pub unit_price_minor: i64,
    pub currency: String,
    /// All of them together.
    pub per_hour_minor: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotedLimits {
    pub org_gpus: Limited,
    pub project_gpus: Limited,
    /// Of whoever asks.
    pub own_allocations: Limited,
}

/// How much of a limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Limited {
    pub held: i64,
    /// Without limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub allowed: Option<i64>,
}

impl Limited {
    fn new(held: i64, allowed: i64) -> Self {
        Self { held, allowed: (allowed < UNLIMITED).then_some(allowed) }
    }

    fn left(self) -> i64 {
        self.allowed.map_or(i64::MAX, |allowed| allowed.saturating_sub(self.held).max(0))
    }
}

pub async fn explain(
    capacity: &Capacity,
    conn: &mut Connection,
    asker: Asker,
    question: Question,
) -> Result<Explanation, Failure> {
    if !(1..=MOST_MEMBERS).contains(&question.count) {
        return Err(Problem::field("count", format!("must be from 1 to {MOST_MEMBERS}")).into());
    }
    let product = capacity.catalog.product(&question.sku).await?;
    let profile = product.profile_for(question.gpus, question.profile.as_deref())?;
    let now = capacity.db.ambient().now();
    let request = Request {
        take: product.take(profile.gpus),
        count: question.count,
        regions: capacity.regions.wanted(conn, question.region.as_deref(), now).await?,
        pool: None,
        labels: std::collections::BTreeMap::new(),
        sku: product.sku.sku.clone(),
        other_sizes: product.other_sizes(profile.gpus),
    };
    let of = SlotsOf { kind: product.sku.slot_kind, model: &product.sku.slot_model };
    let who = Where { org: Some(asker.org), project: Some(asker.project), user: asker.user };
    let isolation = placing::isolation(capacity, who).await?;
    let installs = placing::needed(capacity, product.sku.capacity_shape, isolation);
    let place = placing::outlook(conn, of, &request, installs).await?;
    let limits = limits(capacity, conn, asker).await?;
    // A launch looks for a place before it counts.
    let answer = match place {
        Ok(region) => limit_exceeded(&limits, &request, profile.gpus).map_or(Ok(region), Err),
        Err(refusal) => Err(refusal),
    };
    Ok(Explanation {
        sku: request.sku,
        profile: profile.name,
        gpus: profile.gpus,
        count: request.count,
        fits: answer.is_ok(),
        price: price(&product, profile.gpus, request.count)?,
        limits,
        region: answer.as_ref().ok().cloned(),
        refusal: answer.err(),
    })
}

fn price(product: &Product, gpus: i32, count: u32) -> Result<QuotedPrice, Failure> {
    let price = &product.price;
    let one = billing::api::hour_cost(price.unit_price_minor, product.units(gpus));
    let all = one.and_then(|one| one.checked_mul(i64::from(count)));
    Ok(QuotedPrice {
        unit: price.unit,
        unit_price_minor: price.unit_price_minor,
        currency: price.currency.clone(),
        per_hour_minor: all.ok_or_else(|| {
            Failure::bug(format!("the cost of {count} times {} overflows", product.sku.sku))
        })?,
    })
}

async fn limits(capacity: &Capacity, conn: &mut Connection, asker: Asker) -> Result<QuotedLimits, Failure> {
    let org = Where { org: Some(asker.org), ..Where::default() };
    let project = Where { project: Some(asker.project), ..org };
    let own = Where { user: asker.user, ..project };
    let policies = &capacity.policies;
    let org_gpus = policies.setting_at(keys::QUOTA_GPUS_PER_ORG, org).await?.get();
    let project_gpus = policies.setting_at(keys::QUOTA_GPUS_PER_PROJECT, project).await?.get();
    let own_allocations = policies.setting_at(keys::ALLOCATION_MAX_CONCURRENT_PER_USER, own).await?.get();
    let [of_org, of_project, of_own]: [QuotaUsage; 3] =
        claims::quota_usage(conn, asker.org, asker.project, asker.id).await?;
    Ok(QuotedLimits {
        org_gpus: Limited::new(of_org.gpus, org_gpus),
        project_gpus: Limited::new(of_project.gpus, project_gpus),
        own_allocations: Limited::new(of_own.allocations, own_allocations),
    })
}

/// Whether the limits forbid what there would be room for.
fn limit_exceeded(limits: &QuotedLimits, request: &Request, gpus: i32) -> Option<Refusal> {
    let gpus_left = limits.org_gpus.left().min(limits.project_gpus.left());
    let allowed = |gpus: i64, count: i64| {
        count <= limits.own_allocations.left() && gpus.saturating_mul(count) <= gpus_left
    };
    let (gpus, count) = (i64::from(gpus), i64::from(request.count));
    if allowed(gpus, count) {
        return None;
    }
    let fewer = (1..request.count).rev().find(|fewer| allowed(gpus, i64::from(*fewer)));
    let smaller = || {
        let sizes = request.other_sizes.iter().copied().filter(|size| i64::from(*size) < gpus);
        sizes.filter(|size| allowed(i64::from(*size), count)).max()
    };
    let smallest_change =
        fewer.map(|count| Change::Count { count }).or_else(|| smaller().map(|gpus| Change::Gpus { gpus }));
    let message = "Capacity is available, but the launch would exceed a limit of the organization, of the \
                   project or of the user. Release allocations, or ask for a higher limit.";
    let reason = RefusalReason::Quota;
    Some(Refusal { reason, message: message.to_owned(), smallest_change, after_cleaning: false })
}
