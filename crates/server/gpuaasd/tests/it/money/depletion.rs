//! A balance ends while machines run.

use std::time::Duration;

use testkit::{World, eventually_within, invariants};

use super::{MACHINE_RATE, balance, machine, meter};

const WINDOW_SECONDS: i64 = 10;
/// A few windows, and the releases.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn when_the_balance_is_used_up_everything_is_released_once_and_little_is_owed() {
    let world = World::start_simulated().await;
    world.policy("billing.window_seconds", WINDOW_SECONDS).await;
    world.policy("billing.launch_hold_seconds", 0).await;
    let _nodes = world.simulated(&[("h200-8", 3)]).await;
    let (ann, bob) = (world.poor_tenant("ann").await, world.tenant("bob").await);
    // For some seconds of two machines.
    world.fund(&ann.person.org_id, 12).await;
    let ids = [ann.active(machine()).await, ann.active(machine()).await];
    let bobs = bob.active(machine()).await;
    for id in &ids {
        let over = ann.until_within(PATIENCE, id, &["released"]).await;
        assert_eq!(over["release_cause"], "depletion", "{over}");
        let events = ann.events(id).await;
        let ended: Vec<_> = events.iter().filter(|event| event["to_state"] == "releasing").collect();
        assert_eq!(ended.len(), 1, "{events:?}");
        assert_eq!(ended[0]["reason"], "the balance is used up");
        assert_eq!(ended[0]["actor_kind"], "system");
    }
    eventually_within(PATIENCE, "all of it is posted", || async {
        let settled = [meter(&world, &ids[0]).await, meter(&world, &ids[1]).await];
        settled.iter().all(|state| state == "settled").then_some(())
    })
    .await;
    let after = balance(&ann).await;
    let total = after["total_minor"].as_i64().expect("a number");
    let window = 2 * MACHINE_RATE * WINDOW_SECONDS / 3600;
    assert!((-window..=0).contains(&total), "at most a window is owed: {after}");
    assert_eq!(after["state"], "depleted", "{after}");
    ann.request(machine()).await.refused(402, "insufficient_balance");
    assert_eq!(bob.state(&bobs).await, "active", "others have nothing to do with it");

    // A top-up restarts nothing, and lets new things be launched.
    world.fund(&ann.person.org_id, 10_000).await;
    assert_ne!(balance(&ann).await["state"], "depleted");
    for id in &ids {
        assert_eq!(ann.state(id).await, "released");
    }
    let again = ann.active(machine()).await;
    ann.release(&again).await;
    let releases =
        "SELECT count(*) FROM saga_runs WHERE name LIKE 'release%' GROUP BY subject ORDER BY 1 DESC LIMIT 1";
    assert_eq!(world.count(releases).await, 1);
    invariants::hold(&world.db).await;
}
