//! What a launch is checked against besides capacity: keys, money and limits. A launch is refused for keys, money, capacity
//! and limits, in this order.
//!
//! An explanation finds all of it here and writes nothing. A launch has the database decide money and limits when it writes,
//! and asks here only when there is no room: for a change that would succeed.

use billing::api::{Depletion, FundsRefusal, LaunchCost, LaunchFunds, funds_problem};
use chrono::{DateTime, Utc};
use identity::api::Where;
use kernel::{
    Code, Failure, Problem,
    ids::{OrgId, ProjectId, ServiceAccountId},
    policy::{UNLIMITED, keys},
    principal::PrincipalId,
};
use pg::{Connection, WriteTx};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::{
    Capacity,
    model::{
        allocation::Allocation,
        launch_warning::LaunchWarning,
        placement::{Refusal, RefusalReason},
        sku::Product,
    },
    service::launch::Creator,
    store::{
        claims::{self, QuotaUsage},
        reserve::{Limit, Limits},
    },
};

/// Who asks, and where.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub org: OrgId,
    pub project: ProjectId,
    pub principal: PrincipalId,
    /// Others ask what a member of the project would be told; their own keys do not matter.
    pub may_launch: bool,
    /// Others are told that money is missing, not how much there is.
    pub sees_money: bool,
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

    /// As `capacity_reserve` decides: also what asks for nothing is refused beyond a limit that was lowered.
    fn allows(self, more: i64) -> bool {
        self.allowed.is_none_or(|allowed| self.held.saturating_add(more) <= allowed)
    }
}

/// The money of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotedFunds {
    /// What can be set aside.
    pub available_minor: i64,
    /// What the launch sets aside: the cost of `hold_seconds`.
    pub hold_minor: i64,
    pub hold_seconds: i64,
    pub currency: String,
    /// When the balance ends if the launch and everything else of the organization runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DateTime<Utc>")]
    pub runs_out_at: Option<DateTime<Utc>>,
    /// In so many seconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub runs_out_in_seconds: Option<i64>,
}

/// As it is now, for one product.
pub struct LaunchChecks<'a> {
    product: &'a Product,
    /// The wanted size.
    gpus: i32,
    asker: Asker,
    has_key: bool,
    /// A machine launches only where something ends what it spends.
    is_limited: bool,
    /// None where nobody pays.
    funds: Option<LaunchFunds>,
    pub limits: QuotedLimits,
}

impl<'a> LaunchChecks<'a> {
    pub async fn load(
        capacity: &Capacity,
        conn: &mut Connection,
        asker: Asker,
        product: &'a Product,
        gpus: i32,
    ) -> Result<Self, Failure> {
        let Asker { org, project, principal, may_launch, .. } = asker;
        let has_key = !may_launch
            || !identity::api::member_ssh_keys(conn, project, &[principal.uuid()]).await?.is_empty();
        let is_limited = match principal {
            PrincipalId::ServiceAccount(account) if may_launch => {
                capacity.money.is_limited(conn, (org, project), account).await?
            }
            PrincipalId::ServiceAccount(_) | PrincipalId::User(_) => true,
        };
        let launcher = may_launch.then_some(principal);
        let funds = capacity.money.launch_funds(conn, (org, project), launcher).await?;
        let limits = limits(capacity, conn, asker).await?;
        Ok(Self { product, gpus, asker, has_key, is_limited, funds, limits })
    }

    /// Why so many of the wanted size would be refused before capacity is looked for.
    pub fn refused_before(&self, count: u32) -> Option<Refusal> {
        self.before(self.gpus, count)
    }

    /// Why they would be refused although there is room.
    pub fn refused_after(&self, count: u32) -> Option<Refusal> {
        self.after(self.gpus, count)
    }

    /// What is refused for nothing but capacity.
    pub fn allowed(&self) -> impl Fn(Option<u32>, u32) -> bool + Sync + '_ {
        |size, count| {
            let gpus = size.and_then(|size| i32::try_from(size).ok()).unwrap_or(self.gpus);
            self.before(gpus, count).is_none() && self.after(gpus, count).is_none()
        }
    }

    fn before(&self, gpus: i32, count: u32) -> Option<Refusal> {
        if !self.has_key {
            return Some(refusal(RefusalReason::NoSshKey, no_ssh_key(self.asker.principal)));
        }
        if let PrincipalId::ServiceAccount(account) = self.asker.principal
            && !self.is_limited
        {
            return Some(refusal(RefusalReason::SpendCap, no_spend_cap(account)));
        }
        let cost = self.cost(gpus, count);
        let refused = self.funds.as_ref()?.decide(cost).err()?;
        let reason = match refused {
            FundsRefusal::Currency => RefusalReason::Currency,
            FundsRefusal::BudgetBlocked => RefusalReason::BudgetBlocked,
            FundsRefusal::SpendCap { .. } => RefusalReason::SpendCap,
            FundsRefusal::Insufficient { .. } => RefusalReason::Funds,
        };
        let mut refusal = refusal(reason, funds_problem(refused, cost.currency));
        if reason == RefusalReason::Funds && !self.asker.sees_money {
            "The balance of the organization does not cover the hold of the launch."
                .clone_into(&mut refusal.message);
        }
        Some(refusal)
    }

    fn after(&self, gpus: i32, count: u32) -> Option<Refusal> {
        let QuotedLimits { org_gpus, project_gpus, own_allocations } = self.limits;
        let count = i64::from(count);
        let all = i64::from(gpus).saturating_mul(count);
        if own_allocations.allows(count) && project_gpus.allows(all) && org_gpus.allows(all) {
            return None;
        }
        let message = "Capacity is available, but the launch would exceed a limit of the organization, of the \
                       project or of the user. Release allocations, or ask for a higher limit.";
        Some(Refusal {
            reason: RefusalReason::Quota,
            message: message.to_owned(),
            smallest_change: None,
            after_cleaning: false,
        })
    }

    /// None where nobody pays, for whoever may not see it, and where balance and price cannot be compared.
    fn visible_funds(&self) -> Option<&LaunchFunds> {
        let price = &self.product.price.currency;
        let same = |currency: &Option<String>| currency.as_deref().is_none_or(|own| own == price);
        self.funds.as_ref().filter(|funds| self.asker.sees_money && same(&funds.currency))
    }

    /// What whoever launches so many would be warned of.
    pub fn warnings(&self, count: u32) -> Vec<LaunchWarning> {
        let depletion = self.visible_funds().and_then(|funds| funds.depletion(self.cost(self.gpus, count)));
        depletion_warnings(depletion)
    }

    pub fn quote(&self, count: u32) -> Option<QuotedFunds> {
        let cost = self.cost(self.gpus, count);
        let funds = self.visible_funds()?;
        let depletion = funds.depletion(cost);
        Some(QuotedFunds {
            runs_out_at: depletion.map(|end| end.at),
            runs_out_in_seconds: depletion.map(|end| end.in_seconds),
            available_minor: funds.available_minor,
            hold_minor: funds.hold_minor(cost),
            hold_seconds: funds.hold_seconds,
            currency: cost.currency.to_owned(),
        })
    }

    fn cost(&self, gpus: i32, members: u32) -> LaunchCost<'a> {
        let price = &self.product.price;
        let units = self.product.units(gpus);
        LaunchCost { unit_price_minor: price.unit_price_minor, units, members, currency: &price.currency }
    }
}

/// A balance that ends soon is warned of.
pub fn depletion_warnings(depletion: Option<Depletion>) -> Vec<LaunchWarning> {
    let soon = depletion.filter(|end| end.is_soon);
    soon.map(|end| LaunchWarning::balance_runs_out(end.at, end.in_seconds)).into_iter().collect()
}

/// A service account spends only within a spend cap or a budget.
pub fn no_spend_cap(account: ServiceAccountId) -> Problem {
    let text = "A service account launches only with a spend cap, or in a project with a budget that releases allocations \
                when it is spent, and it has neither.";
    Problem::new(Code::InsufficientBalance, text)
        .detail("reason", json!(RefusalReason::SpendCap))
        .suggest(format!(
            "Ask an owner or admin of the organization for a cap: gpuaas service-accounts spend-cap set {account} --amount AMOUNT"
        ))
}

pub fn no_ssh_key(principal: PrincipalId) -> Problem {
    if let PrincipalId::ServiceAccount(id) = principal {
        let text = "The service account has no SSH key: nobody could log in to the machine.";
        let how = format!(
            "Ask an owner or admin of the project to give it a public key: gpuaas service-accounts update {id} --ssh-key FILE"
        );
        return Problem::new(Code::Unprocessable, text)
            .detail("reason", json!(RefusalReason::NoSshKey))
            .suggest(how);
    }
    let text =
        "You have no SSH key, or are not a member of this project: nobody could log in to the machine.";
    Problem::new(Code::Unprocessable, text)
        .detail("reason", json!(RefusalReason::NoSshKey))
        .suggest("Add your public key with `gpuaas ssh-keys create FILE`, then launch again.")
}

/// A machine that spends has a limit that it cannot change.
pub async fn check_spending_is_limited(
    capacity: &Capacity,
    tx: &mut WriteTx,
    creator: Creator,
) -> Result<(), Failure> {
    let PrincipalId::ServiceAccount(account) = creator.principal else { return Ok(()) };
    if capacity.money.is_limited(tx.conn(), (creator.org, creator.project), account).await? {
        return Ok(());
    }
    Err(no_spend_cap(account).into())
}

/// The limit that a launch exceeds, in a transaction that has written it.
pub async fn limit_problem(
    tx: &mut WriteTx,
    creator: Creator,
    made: &[Allocation],
    limit: Limit,
    limits: Limits,
) -> Result<Problem, Failure> {
    // What is read here has this request in it.
    let [org, project, person] =
        claims::quota_usage(tx.conn(), creator.org, creator.project, creator.principal.uuid()).await?;
    let asked_gpus: i64 = made.iter().map(|a| i64::from(a.gpus)).sum();
    let asked = i64::try_from(made.len())?;
    let (whose, name, unit, limit, held, asked) = match limit {
        Limit::Org => ("The organization", "org", "GPUs", limits.org_gpus, org.gpus - asked_gpus, asked_gpus),
        Limit::Project => {
            ("The project", "project", "GPUs", limits.project_gpus, project.gpus - asked_gpus, asked_gpus)
        }
        Limit::Person => {
            let held = person.allocations - asked;
            ("You", "person", "allocations", limits.person_allocations, held, asked)
        }
    };
    let verb = if name == "person" { "hold" } else { "holds" };
    let text =
        format!("{whose} {verb} {held} of at most {limit} {unit}; {asked} more would exceed the limit.");
    Ok(Problem::new(Code::QuotaExceeded, text)
        .detail("reason", "quota")
        .detail("limit", name)
        .detail("allowed", limit)
        .detail("held", held)
        .detail("asked", asked))
}

fn refusal(reason: RefusalReason, problem: Problem) -> Refusal {
    let message = problem.message.into_owned();
    Refusal { reason, message, smallest_change: None, after_cleaning: false }
}

async fn limits(capacity: &Capacity, conn: &mut Connection, asker: Asker) -> Result<QuotedLimits, Failure> {
    let org = Where { org: Some(asker.org), ..Where::default() };
    let project = Where { project: Some(asker.project), ..org };
    let own = Where { user: asker.principal.user(), ..project };
    let policies = &capacity.policies;
    let org_gpus = policies.setting_at(keys::QUOTA_GPUS_PER_ORG, org).await?.get();
    let project_gpus = policies.setting_at(keys::QUOTA_GPUS_PER_PROJECT, project).await?.get();
    let own_allocations = policies.setting_at(keys::ALLOCATION_MAX_CONCURRENT_PER_USER, own).await?.get();
    let [of_org, of_project, of_own]: [QuotaUsage; 3] =
        claims::quota_usage(conn, asker.org, asker.project, asker.principal.uuid()).await?;
    Ok(QuotedLimits {
        org_gpus: Limited::new(of_org.gpus, org_gpus),
        project_gpus: Limited::new(of_project.gpus, project_gpus),
        own_allocations: Limited::new(of_own.allocations, own_allocations),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_allows_up_to_itself_and_nothing_when_it_is_exceeded() {
        let limited = Limited::new(3, 5);
        assert_eq!([0, 2, 3].map(|more| limited.allows(more)), [true, true, false]);
        let lowered = Limited::new(6, 5);
        assert_eq!([0, 1].map(|more| lowered.allows(more)), [false, false]);
        assert!(Limited::new(6, UNLIMITED).allows(i64::MAX));
    }
}
