//! An explanation decides what a launch decides, and what it proposes succeeds.

use billing::model::budget_resource::BudgetWanted;
use events::billing::BudgetAction;
use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};
use testmoney::TestMoney;

use super::{
    bank::{billed, gain},
    world::{Answer, Tenant, World},
};

#[derive(Clone, Debug)]
struct Question {
    sku: &'static str,
    gpus: Option<u32>,
    count: u32,
    region: Option<String>,
}

#[derive(Clone, Debug)]
enum Step {
    Ask(Question),
    /// By somebody without a key.
    AskWithoutKey(Question),
    Node(&'static str, usize),
    Fund(i64),
    HoldSeconds(i64),
    GpusPerProject(i64),
    GpusPerOrg(i64),
    PerPerson(i64),
    BudgetSpent(bool),
}

const REGIONS: [&str; 2] = ["eu", "us"];

fn question() -> impl Strategy<Value = Question> {
    let slice = prop::sample::select(vec![1u32, 2, 4]).prop_map(|gpus| ("h200-sxm-slice", Some(gpus)));
    let what = prop_oneof![4 => slice, 1 => Just(("h200-sxm-baremetal-8g", None))];
    let region = prop::option::of(prop::sample::select(REGIONS.to_vec()));
    (what, prop_oneof![2 => Just(1u32), 1 => 2u32..5], region).prop_map(|((sku, gpus), count, region)| {
        Question { sku, gpus, count, region: region.map(str::to_owned) }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => question().prop_map(Step::Ask),
        1 => question().prop_map(Step::AskWithoutKey),
        3 => (prop::sample::select(REGIONS.to_vec()), prop::sample::select(vec![1usize, 2, 4, 8]))
            .prop_map(|(region, slots)| Step::Node(region, slots)),
        3 => (1i64..6_000).prop_map(Step::Fund),
        1 => prop_oneof![Just(0i64), 1i64..7_200].prop_map(Step::HoldSeconds),
        1 => (0i64..20).prop_map(Step::GpusPerProject),
        1 => (0i64..20).prop_map(Step::GpusPerOrg),
        1 => (0i64..8).prop_map(Step::PerPerson),
        1 => any::<bool>().prop_map(Step::BudgetSpent),
    ]
}

async fn explained(world: &World, tenant: Tenant, question: &Question) -> Value {
    let mut query = format!("sku={}&count={}", question.sku, question.count);
    query.extend(question.gpus.map(|gpus| format!("&gpus={gpus}")));
    query.extend(question.region.as_ref().map(|region| format!("&region={region}")));
    let answer = world.get(tenant, &format!("allocations/explain?{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

async fn launched(world: &World, tenant: Tenant, question: &Question) -> Answer {
    let mut body = json!({ "sku": question.sku });
    let given = [("gpus", json!(question.gpus)), ("region", json!(question.region))];
    for (name, value) in given.into_iter().filter(|(_, value)| !value.is_null()) {
        body[name] = value;
    }
    if question.count == 1 {
        return world.launch(tenant, body).await;
    }
    body["members"] = json!(question.count);
    world.post(tenant, "allocation-groups", body).await
}

fn changed(question: &Question, change: &Value) -> Question {
    let number = |name: &str| change[name].as_u64().and_then(|n| u32::try_from(n).ok());
    Question {
        sku: question.sku,
        gpus: number("gpus").or(question.gpus),
        count: number("count").unwrap_or(question.count),
        region: change["region"].as_str().map(str::to_owned).or_else(|| question.region.clone()),
    }
}

/// The code of a warning, and in how many seconds the balance ends. Nothing runs in these worlds, so it stays the same.
fn warned(answer: &Value) -> Option<(String, i64)> {
    let warnings = answer.get("warnings")?.as_array().unwrap();
    let [warning] = warnings.as_slice() else { panic!("one warning: {warnings:?}") };
    let at: chrono::DateTime<chrono::Utc> = warning["runs_out_at"].as_str().unwrap().parse().unwrap();
    assert!(at > chrono::DateTime::UNIX_EPOCH);
    Some((warning["code"].as_str().unwrap().to_owned(), warning["runs_out_in_seconds"].as_i64().unwrap()))
}

/// What is explained happens. Gives what it was refused for.
async fn ask(world: &World, tenant: Tenant, question: &Question) -> Option<String> {
    let explanation = explained(world, tenant, question).await;
    let answer = launched(world, tenant, question).await;
    let told = format!("{question:?}\nexplained: {explanation}\nlaunched: {answer:?}");
    assert_eq!(explanation["fits"], json!(answer.status.is_success()), "{told}");
    if answer.status.is_success() {
        let region = if question.count == 1 {
            &answer.body["region"]
        } else {
            &answer.body["allocations"][0]["region"]
        };
        assert_eq!(&explanation["region"], region, "{told}");
        assert_eq!(warned(&explanation), warned(&answer.body), "{told}");
        let funds = &explanation["funds"];
        let soon =
            funds["runs_out_in_seconds"].as_i64().unwrap() <= funds["hold_seconds"].as_i64().unwrap().max(60);
        assert_eq!(warned(&explanation).is_some(), soon, "{told}");
        return None;
    }
    let (refusal, details) = (&explanation["refusal"], &answer.body["error"]["details"]);
    assert_eq!(refusal["reason"], details["reason"], "{told}");
    if details.get("smallest_change").is_some() {
        assert_eq!(refusal["smallest_change"], details["smallest_change"], "{told}");
    }
    if !refusal["smallest_change"].is_null() {
        let other = changed(question, &refusal["smallest_change"]);
        let answer = launched(world, tenant, &other).await;
        assert!(answer.status.is_success(), "{told}\nthe change: {other:?} {answer:?}");
    }
    refusal["reason"].as_str().map(str::to_owned)
}

/// Uses up what the project may spend, or lets it spend more than it will.
async fn budget_spent(world: &World, spent: bool) {
    let place = (world.tenant.org, world.tenant.project);
    let money = TestMoney::new(&world.test.db);
    let amount_minor = if spent { 100 } else { 1_000_000_000 };
    money
        .budget_set(place, BudgetWanted { amount_minor, threshold_percent: 100, action: BudgetAction::Block })
        .await;
    if spent {
        money.spend(place, 200).await;
    }
}

async fn play(steps: Vec<Step>) -> Vec<String> {
    let world = World::with(billed).await;
    for region in REGIONS {
        world.region(region).await;
    }
    let keyless = world.joins(world.tenant, "keyless").await;
    let policy = async |key: &str, value: i64| world.test.change_global_policy(key, value).await;
    let mut refused = Vec::new();
    for step in steps {
        match step {
            Step::Ask(question) => refused.extend(ask(&world, world.tenant, &question).await),
            Step::AskWithoutKey(question) => refused.extend(ask(&world, keyless, &question).await),
            Step::Node(region, slots) => drop(world.node(region, slots).await),
            Step::Fund(amount) => drop(gain(&world.test.db, world.tenant.org, amount).await),
            Step::HoldSeconds(seconds) => policy("billing.launch_hold_seconds", seconds).await,
            Step::GpusPerProject(gpus) => policy("quota.gpus_per_project", gpus).await,
            Step::GpusPerOrg(gpus) => policy("quota.gpus_per_org", gpus).await,
            Step::PerPerson(most) => policy("allocation.max_concurrent_per_user", most).await,
            Step::BudgetSpent(spent) => budget_spent(&world, spent).await,
        }
    }
    refused
}

proptest! {
    #![proptest_config(Config { cases: 6, max_shrink_iters: 20, failure_persistence: None, ..Config::default() })]

    #[test]
    fn an_explanation_decides_what_a_launch_decides(steps in prop::collection::vec(step(), 20..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}

/// Reasons of placement, and the currency, have tests of their own.
#[tokio::test(flavor = "multi_thread")]
async fn each_reason_is_explained_in_the_order_in_which_a_launch_finds_it() {
    let slice = |gpus, count| Question { sku: "h200-sxm-slice", gpus: Some(gpus), count, region: None };
    let refused = play(vec![
        Step::AskWithoutKey(slice(1, 1)),
        Step::Ask(slice(1, 1)),
        Step::Fund(2_000),
        Step::Ask(slice(1, 1)),
        Step::Node("eu", 8),
        Step::BudgetSpent(true),
        Step::Ask(slice(1, 1)),
        Step::BudgetSpent(false),
        // 4 at 4.50 for an hour are 18.00 of 20.00: then there is room for nothing.
        Step::Ask(slice(4, 2)),
        Step::Fund(10_000),
        Step::GpusPerProject(5),
        Step::Ask(slice(1, 3)),
    ])
    .await;
    assert_eq!(refused, ["no_ssh_key", "funds", "no_capacity_in_region", "budget_blocked", "funds", "quota"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_uses_up_the_balance_in_its_first_time_is_warned_of_before_it_and_with_it() {
    let world = World::with(billed).await;
    world.region("eu").await;
    world.node("eu", 8).await;
    // A machine costs 4.50 an hour, and a launch must be able to pay for an hour.
    gain(&world.test.db, world.tenant.org, 1_000).await;
    let slice = |count| Question { sku: "h200-sxm-slice", gpus: Some(1), count, region: None };
    let first = explained(&world, world.tenant, &slice(1)).await;
    assert_eq!(
        (first.get("warnings"), &first["funds"]["runs_out_in_seconds"]),
        (None, &json!(8_000)),
        "{first}"
    );
    assert!(launched(&world, world.tenant, &slice(1)).await.body.get("warnings").is_none());
    // The first starts and counts: 10.00 for 9.00 an hour are more than an hour.
    let second = launched(&world, world.tenant, &slice(1)).await;
    assert_eq!((second.status.as_u16(), second.body.get("warnings")), (202, None), "{second:?}");
    // 18.00 for 18.00 an hour are not.
    gain(&world.test.db, world.tenant.org, 800).await;
    let viewer = world.joins_as_viewer(world.tenant, "viewer").await;
    let third = explained(&world, world.tenant, &slice(2)).await;
    assert_eq!(warned(&third), Some(("balance_runs_out_soon".to_owned(), 3_600)), "{third}");
    assert!(
        explained(&world, viewer, &slice(2)).await.get("warnings").is_none(),
        "it would tell of the balance"
    );
    let group = launched(&world, world.tenant, &slice(2)).await;
    assert_eq!(warned(&group.body), warned(&third), "{group:?}");
    let path = format!("allocation-groups/{}", group.body["id"].as_str().unwrap());
    assert!(world.get(world.tenant, &path).await.body.get("warnings").is_none());
}

/// Who may not launch is told what a member would be told, and whoever may not see money is not shown it.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_launch_is_told_of_capacity_and_not_of_the_balance() {
    let world = World::with(billed).await;
    world.region("eu").await;
    world.node("eu", 8).await;
    gain(&world.test.db, world.tenant.org, 777).await;
    let viewer = world.joins_as_viewer(world.tenant, "viewer").await;
    let slice = |gpus| Question { sku: "h200-sxm-slice", gpus: Some(gpus), count: 1, region: None };
    for gpus in [1, 2] {
        let own = explained(&world, world.tenant, &slice(gpus)).await;
        assert_eq!(
            (&own["may_launch"], &own["funds"]["available_minor"]),
            (&json!(true), &json!(777)),
            "{own}"
        );
        let seen = explained(&world, viewer, &slice(gpus)).await;
        assert_eq!((&seen["may_launch"], &seen["fits"]), (&json!(false), &own["fits"]), "{seen}");
        assert_eq!(seen["refusal"]["reason"], own["refusal"]["reason"], "{seen}");
        assert!(seen.get("funds").is_none() && !seen.to_string().contains("7.77"), "{seen}");
    }
}
