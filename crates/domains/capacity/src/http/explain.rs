//! Why something can or cannot be launched.

use endpoint::{Endpoint, Given, In, Json, ProjectPath, ScopeKind, get};
use kernel::{Code, Failure, Permission, text::Term};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    Capacity,
    model::sku::{ProfileName, SkuCode},
    service::{
        explain::{Explanation, Question, explain},
        launch_checks::Asker,
    },
};

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    const EXPLAIN: &str = "/api/v1/projects/{project_id}/allocations/explain";
    vec![
        get(EXPLAIN, "allocation_explain", "Dry run of a launch")
            .describe(
                "Checks SSH keys, money, capacity, limits and price without changing anything. If the launch \
                 would be refused, the response contains the reason and the smallest change that would succeed now.",
            )
            .in_scope(ScopeKind::Project)
            .errors(&[Code::SkuUnavailable])
            .needs(Permission::AllocationRead)
            .handle(capacity.clone(), show),
    ]
}

/// A number of a query, where everything is text.
#[derive(Clone, Copy, JsonSchema)]
#[schemars(inline)]
struct Number(u16);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map(Self).map_err(|_| D::Error::custom("must be an integer up to 65535"))
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ExplainQuery {
    /// The product.
    sku: SkuCode,
    /// How many GPUs; the smallest size of the product when neither this nor `profile` is given.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1024))]
    gpus: Given<Number>,
    /// A size of the product by name.
    #[serde(default)]
    profile: Given<ProfileName>,
    /// So many of it together; one when absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 64))]
    count: Given<Number>,
    /// Where; any region when absent.
    #[serde(default)]
    region: Given<Term>,
}

async fn show(
    capacity: Capacity,
    mut tx: ReadTx,
    input: In<ProjectPath, ExplainQuery, ()>,
) -> Result<Json<Explanation>, Failure> {
    let access = &input.access;
    let may_launch = access.permissions().holds(Permission::AllocationCreate);
    let asker = Asker {
        org: access.org()?,
        project: access.project()?,
        principal: access.principal()?,
        may_launch,
        sees_money: may_launch || access.permissions().holds(Permission::BillingRead),
    };
    let query = input.query;
    let question = Question {
        sku: query.sku.into_string(),
        gpus: query.gpus.0.map(|Number(gpus)| i32::from(gpus)),
        profile: query.profile.0.map(ProfileName::into_string),
        count: query.count.0.map_or(1, |Number(count)| u32::from(count)),
        region: query.region.0.map(Term::into_string),
    };
    Ok(Json(explain(&capacity, tx.conn(), asker, question).await?))
}
