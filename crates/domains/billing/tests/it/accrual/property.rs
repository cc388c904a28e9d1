//! For any sequence of prices, windows, pauses, ends, crashes and new workers: posted = floor(exact).

use billing::model::rating::usage_cost;
use kernel::ids::AllocationId;
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::Config};

use super::kit::{Kit, worker};

#[derive(Clone, Debug)]
enum Step {
    Pass(i64),
    Tick,
    /// A tick whose session is killed at some statement.
    Crash(i64),
    NewWorker,
    Window(i64),
    Launch(i64, i32),
    Pause(usize, i64),
    Resume(usize),
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![1..90i64, 90..9_000i64].prop_map(Step::Pass),
        4 => Just(Step::Tick),
        1 => (1..40i64).prop_map(Step::Crash),
        1 => Just(Step::NewWorker),
        1 => (10..3600i64).prop_map(Step::Window),
        2 => (prop_oneof![0..300i64, 1..50_000i64], 1..9i32).prop_map(|(price, units)| Step::Launch(price, units)),
        1 => (0..8usize, 0..4_000i64).prop_map(|(which, ago)| Step::Pause(which, ago)),
        1 => (0..8usize).prop_map(Step::Resume),
        1 => (0..8usize).prop_map(Step::Close),
    ]
}

/// What a meter should cost, kept apart from the product.
struct Oracle {
    allocation: AllocationId,
    price: i64,
    units: i32,
    seconds: i64,
    running_since: Option<i64>,
    ended: bool,
}

async fn play(steps: Vec<Step>) {
    let mut kit = Kit::new().await;
    kit.fund(kit.org, 1_000_000_000).await;
    kit.policy("billing.launch_hold_seconds", 1_000).await;
    kit.test.sql(super::crashes::FUSE).await;
    let mut meters: Vec<Oracle> = Vec::new();
    for step in steps {
        let now = kit.now().timestamp();
        match step {
            Step::Pass(seconds) => kit.pass(seconds),
            Step::Tick => {
                kit.tick().await;
            }
            Step::Crash(place) => {
                kit.test
                    .sql(&format!(
                        "SELECT setval('fuse_count', 1, false); UPDATE fuse_at SET place = {place}"
                    ))
                    .await;
                let _ = kit.try_tick().await;
                kit.test.sql("UPDATE fuse_at SET place = 0").await;
            }
            Step::NewWorker => kit.billing = worker(&kit.test),
            Step::Window(seconds) => kit.policy("billing.window_seconds", seconds).await,
            Step::Launch(price, units) => {
                let allocation = kit.launch(price, units).await;
                let running_since = Some(now);
                meters.push(Oracle { allocation, price, units, seconds: 0, running_since, ended: false });
            }
            Step::Pause(which, ago) => {
                let Some(meter) = meters.get_mut(which) else { continue };
                let Some(since) = meter.running_since.take() else { continue };
                meter.seconds += (now - ago - since).max(0);
                // What was charged before it stood still and ran again is another fault's.
                kit.pause(meter.allocation, ago.min((now - since).max(0))).await;
            }
            Step::Resume(which) => {
                let Some(meter) = meters.get_mut(which) else { continue };
                if meter.running_since.is_none() && !meter.ended {
                    meter.running_since = Some(now);
                    kit.resume(meter.allocation).await;
                }
            }
            Step::Close(which) => {
                let Some(meter) = meters.get_mut(which).filter(|meter| !meter.ended) else { continue };
                meter.seconds += meter.running_since.take().map_or(0, |since| now - since);
                meter.ended = true;
                kit.close(meter.allocation).await;
            }
        }
    }
    for meter in &mut meters {
        if !meter.ended {
            meter.seconds += meter.running_since.map_or(0, |since| kit.now().timestamp() - since);
            kit.close(meter.allocation).await;
        }
    }
    while kit.tick().await.more {}
    kit.holds().await;
    for meter in meters {
        let (exact, _) = usage_cost(0, meter.price, meter.units, meter.seconds).unwrap();
        let posted = kit.posted(meter.allocation).await;
        assert_eq!(posted, exact, "{} seconds at {} times {}", meter.seconds, meter.units, meter.price);
        assert_eq!(kit.meter_state(meter.allocation).await, "settled");
    }
}

proptest! {
    #![proptest_config(Config { cases: 8, max_shrink_iters: 10, failure_persistence: None, ..Config::default() })]

    #[test]
    fn posted_is_the_floor_of_the_exact_cost_whatever_happens(steps in prop::collection::vec(step(), 5..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}

/// A whole accrual charges what the formula says, for more than can be played.
#[tokio::test]
async fn an_accrual_charges_what_the_formula_says() {
    let kit = Kit::new().await;
    kit.fund(kit.org, 1_000_000_000_000_000).await;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let any = (0..1_000_000_000i64, 0..100i32, 1..3600i64, 0..3600i32);
    for _ in 0..60 {
        let (price, units, seconds, carry) = any.new_tree(&mut runner).unwrap().current();
        let meter = kit.launch(price, units).await;
        let id = meter.uuid();
        kit.test.sql(&format!("UPDATE meters SET carry = {carry} WHERE allocation_id = '{id}'")).await;
        kit.pass(seconds);
        kit.close(meter).await;
        let mut ticked = kit.tick().await;
        while ticked.more {
            ticked = kit.tick().await;
        }
        let after = format!("SELECT carry FROM meters WHERE allocation_id = '{id}'");
        let rated = (kit.posted(meter).await, kit.one::<i32>(&after).await);
        assert_eq!(
            Some(rated),
            usage_cost(carry, price, units, seconds),
            "{price} {units} {seconds} {carry}"
        );
    }
}
