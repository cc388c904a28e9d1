//! A node says that its hardware is sick: whoever is on it does not pay, to the second.

use std::time::Duration;

use serde_json::json;
use testkit::{World, eventually_within, invariants};

use super::{MACHINE_RATE, balance, machine, meter, uuid};

const PATIENCE: Duration = Duration::from_secs(45);

#[tokio::test]
async fn a_machine_that_falls_sick_is_not_paid_for_until_it_is_well() {
    let world = World::start_simulated().await;
    world.policy("billing.window_seconds", 10).await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let nodes = world.simulated(&[("h200-8", 2)]).await;
    let ann = world.tenant("ann").await;
    let (id, well) = (ann.active(machine()).await, ann.active(machine()).await);
    let node = world.allocation(&id).await["node_id"].as_str().expect("a node").to_owned();
    let at = nodes.ids.iter().position(|known| *known == node).expect("one of the nodes");
    let rule =
        format!("[[script]]\nhostname = '{}'\ndoes = 'sick'\nmessage = 'xid.79'\n", nodes.hostnames[at]);
    nodes.script(&rule);
    let until =
        |state: &'static str| {
            let (world, id) = (&world, &id);
            eventually_within(PATIENCE, state, move || async move {
                (meter(world, id).await == state).then_some(())
            })
        };
    until("paused").await;
    assert_eq!((ann.state(&id).await.as_str(), meter(&world, &well).await.as_str()), ("active", "open"));
    let told = "SELECT count(*) FROM outbox_events WHERE event_type = 'billing.credit_posted'";
    assert_eq!(world.count(told).await, 1);

    // Over again: somebody has seen to it. Time is counted in whole seconds, so one has to pass.
    let passed = "SELECT count(*) FROM meter_pauses WHERE date_trunc('second', clock_timestamp()) > since";
    eventually_within(PATIENCE, "a second of it has passed", || async {
        (world.count(passed).await == 1).then_some(())
    })
    .await;
    nodes.script("");
    let path = format!("/api/v1/platform/findings?node_id={node}&action=credit");
    let findings = world.admin.get(&path).await.expect(200);
    let finding = findings["items"][0]["id"].as_str().unwrap_or_else(|| panic!("a finding in {findings}"));
    let path = format!("/api/v1/platform/findings/{finding}/resolve");
    world.admin.post(&path, json!({ "note": "replaced" })).await.expect(200);
    until("open").await;
    ann.release(&id).await;
    until("settled").await;

    let seconds = |what: &str| {
        let sql =
            format!("SELECT ({what})::bigint FROM meters m WHERE allocation_id = '{}'::uuid", uuid(&id));
        let world = &world;
        async move { world.count(&sql).await }
    };
    let lasted = seconds("extract(epoch FROM closed_at - opened_at)").await;
    let free = seconds(
        "SELECT sum(extract(epoch FROM p.resumed_at - p.since)) FROM meter_pauses p WHERE p.meter_id = m.id",
    )
    .await;
    assert!(free > 0 && lasted >= free, "{free} of {lasted} seconds");
    let posted = seconds("posted_minor").await;
    assert_eq!(posted, MACHINE_RATE * (lasted - free) / 3600, "exact to the second");

    let shown = [
        balance(&ann).await.to_string(),
        ann.api().get(&format!("/api/v1/orgs/{}/billing/ledger", ann.person.org_id)).await.text,
    ];
    for text in shown {
        for secret in [node.as_str(), nodes.hostnames[at].as_str()] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    ann.release(&well).await;
    invariants::hold(&world.db).await;
}
