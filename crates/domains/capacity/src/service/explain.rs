//! Why something can or cannot be launched, without launching it. Reads only, and says nothing about single machines.

use identity::api::Where;
use kernel::{Failure, Problem};
use pg::Connection;
use schemars::JsonSchema;
use serde::Serialize;

use super::launch_checks::{Asker, LaunchChecks, QuotedFunds, QuotedLimits};
use crate::{
    Capacity,
    model::{
        group::MOST_MEMBERS,
        launch_warning::LaunchWarning,
        placement::{Refusal, Request},
        sku::{PriceUnit, Product},
    },
    service::placing,
    store::candidates::SlotsOf,
};

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
    /// Keys, money, capacity and limits allow it.
    pub fits: bool,
    /// Whether whoever asks may launch here. When not, the answer is the one for a member of the project with a key.
    pub may_launch: bool,
    /// Where it would go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub region: Option<String>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refusal")]
    pub refusal: Option<Refusal>,
    pub price: QuotedPrice,
    /// Absent where nobody pays, and for whoever may neither launch nor see the balance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QuotedFunds")]
    pub funds: Option<QuotedFunds>,
    pub limits: QuotedLimits,
    /// What whoever launches it should know, although nothing is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<LaunchWarning>,
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
    let who = Where { org: Some(asker.org), project: Some(asker.project), user: asker.principal.user() };
    let isolation = placing::isolation(capacity, who).await?;
    let installs = placing::needed(capacity, product.sku.capacity_shape, isolation);
    let outlook = placing::outlook(conn, of, &request, installs).await?;
    let (gpus, count) = (profile.gpus, request.count);
    let checks = LaunchChecks::load(capacity, conn, asker, &product, gpus).await?;
    let other = || outlook.smallest_change(&request, &checks.allowed());
    // In the order in which a launch looks.
    let refusal = match (checks.refused_before(count), &outlook.region) {
        (Some(refusal), _) => Some(Refusal { smallest_change: other(), ..refusal }),
        (None, None) => Some(outlook.refusal(&request, &checks.allowed())),
        (None, Some(_)) => {
            checks.refused_after(count).map(|refusal| Refusal { smallest_change: other(), ..refusal })
        }
    };
    Ok(Explanation {
        sku: request.sku,
        profile: profile.name,
        gpus,
        count,
        fits: refusal.is_none(),
        may_launch: asker.may_launch,
        price: price(&product, gpus, count)?,
        funds: checks.quote(count),
        warnings: if refusal.is_none() { checks.warnings(count) } else { Vec::new() },
        limits: checks.limits,
        region: outlook.region.filter(|_| refusal.is_none()),
        refusal,
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
