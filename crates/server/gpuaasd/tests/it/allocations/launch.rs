//! Machines of every kind come, are used and go, as a tenant meets them.

use serde_json::{Value, json};
use testkit::{REGION, Tenant, World, invariants};

const SLICE: &str = "h200-sxm-slice";
const MACHINE: &str = "h200-sxm-baremetal-8g";
const VM: &str = "compute-vm-small";

fn slice(gpus: u32) -> Value {
    json!({ "sku": SLICE, "gpus": gpus })
}

/// The phases that a tenant saw, with how long the machine took for each.
async fn saw_phases(tenant: &Tenant, id: &str, steps: &[&str]) {
    let events = tenant.events(id).await;
    for step in steps {
        let done = events.iter().any(|e| e["kind"] == "phase" && e["name"] == *step);
        assert!(done, "{step} in {events:?}");
    }
    let timed = events.iter().filter(|e| e["kind"] == "phase" && e["duration_ms"].is_i64());
    assert!(timed.count() > 1, "the work on the machine is told by phases: {events:?}");
    let states: Vec<&str> = events.iter().filter_map(|e| e["to_state"].as_str()).collect();
    assert_eq!(states[..3], ["requested", "provisioning", "active"]);
}

#[tokio::test]
async fn machines_of_every_kind_are_launched_used_and_given_back() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 2), ("cpu", 1)]).await;
    let ann = world.tenant("ann").await;
    let before = [world.free(SLICE).await, world.free(MACHINE).await, world.free(VM).await];
    assert_eq!(before[..2], [16, 2]);

    let part = ann.active(slice(2)).await;
    assert_eq!([world.free(SLICE).await, world.free(MACHINE).await], [14, 1], "what is sold is not for sale");
    let whole = ann.active(json!({ "sku": MACHINE, "name": "training" })).await;
    assert_eq!([world.free(SLICE).await, world.free(MACHINE).await], [6, 0]);
    let vm = ann.active(json!({ "sku": VM, "region": REGION })).await;
    assert_eq!(world.free(VM).await, before[2] - 1);

    for (id, steps) in
        [(&part, &["machine"][..]), (&whole, &["account", "driver_check"]), (&vm, &["machine"])]
    {
        saw_phases(&ann, id, steps).await;
        let seen = ann.get(id).await;
        let connection = &seen["connection"];
        assert!(connection["ssh_host"].as_str().is_some_and(|host| !host.is_empty()), "{seen}");
        assert!(connection["username"].as_str().is_some_and(|name| !name.is_empty()), "{seen}");
        assert!(seen["meter_opened_at"].is_string() && seen["meter_closed_at"].is_null(), "{seen}");
        assert_eq!((&seen["region"], &seen["access_current"]), (&json!(REGION), &json!(true)));
    }
    assert_eq!(ann.get(&whole).await["gpus"], 8);

    // A machine that only its account separates from the next user is looked over before that one comes.
    for (id, step) in [(&part, "machine"), (&whole, "verify"), (&vm, "machine")] {
        let over = ann.release(id).await;
        assert!(over["meter_closed_at"].is_string() && over["connection"].is_null(), "{over}");
        assert_eq!(over["release_cause"], "user");
        assert!(ann.event_names(id, "phase").await.iter().any(|name| name == step));
        assert_eq!(ann.act(id, "release").await.expect(202)["version"], over["version"], "once is enough");
    }
    let after = [world.free(SLICE).await, world.free(MACHINE).await, world.free(VM).await];
    assert_eq!(after, before, "all of it is for sale again");
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_request_that_is_sent_again_launches_nothing_more() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let path = ann.path("");
    let asks = (0..8).map(|_| ann.api().post_once("the-one", &path, slice(1)));
    let answers = futures_util::future::join_all(asks).await;
    let mut ids: Vec<Value> =
        answers.into_iter().filter(|a| a.status == 202).map(|a| a.body["id"].clone()).collect();
    ids.push(ann.api().post_once("the-one", &path, slice(1)).await.expect(202)["id"].clone());
    assert!(ids.iter().all(|id| id == &ids[0]), "{ids:?}");
    assert_eq!(world.free(SLICE).await, 7);
    ann.api().post_once("the-one", &path, slice(2)).await.refused(400, "idempotency_key_reused");
    ann.api().post(&path, slice(1)).await.refused(400, "idempotency_key_required");
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 1);
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_tenant_waits_for_a_machine_and_follows_it_to_its_end() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.launch(slice(1)).await;
    let stream = {
        let (api, path) = (ann.api().clone(), ann.path(&format!("/{id}/stream")));
        tokio::spawn(async move { api.get(&path).await })
    };
    let past = ann.api().get(&ann.path(&format!("/{id}?wait=20s&state=requested"))).await.expect(200);
    assert_ne!(past["state"], "requested");
    let ready = ann.api().get(&ann.path(&format!("/{id}?wait=20s"))).await.expect(200);
    assert_eq!(ready["state"], "active", "{ready}");
    ann.release(&id).await;
    let heard = stream.await.unwrap();
    assert_eq!(heard.status, 200);
    let frames: Vec<Value> = heard
        .text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?.trim()).ok())
        .collect();
    let events = ann.events(&id).await;
    let told: Vec<&Value> = frames.iter().filter(|frame| frame["seq"].is_i64()).collect();
    assert_eq!(
        told,
        events.iter().collect::<Vec<_>>(),
        "the stream tells what the list tells, in that order"
    );
    assert!(told.iter().any(|e| e["kind"] == "phase" && e["name"] == "machine"), "{told:?}");
    assert!(heard.text.contains("event: end") || heard.text.contains("event:end"), "{}", heard.text);
    // Whoever lost the connection goes on where they were.
    let middle = events[events.len() / 2]["seq"].as_i64().unwrap();
    let rest = ann.api().get(&ann.path(&format!("/{id}/stream?after={middle}"))).await;
    assert!(!rest.text.contains(&format!("\"seq\":{middle},")) && rest.text.contains("\"released\""));
}

#[tokio::test]
async fn a_machine_is_restarted_and_stays_the_same() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 2)]).await;
    let ann = world.tenant("ann").await;
    for body in [slice(2), json!({ "sku": MACHINE })] {
        let id = ann.active(body).await;
        let before = ann.get(&id).await;
        ann.act(&id, "restart").await.expect(202);
        testkit::eventually("the restart is over", || async {
            let names = ann.event_names(&id, "operation").await;
            (names == ["restart", "restarted"]).then_some(())
        })
        .await;
        let after = ann.get(&id).await;
        for same in ["state", "connection", "meter_opened_at", "active_at"] {
            assert_eq!(before[same], after[same], "{same}");
        }
        ann.release(&id).await;
        ann.act(&id, "restart").await.refused(409, "invalid_transition");
    }
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn several_machines_are_launched_together_or_not_at_all() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 2)]).await;
    let ann = world.tenant("ann").await;
    let all = format!("/api/v1/projects/{}/allocation-groups", ann.project);
    let of =
        |members: u32, gpus: u32| json!({ "members": members, "sku": SLICE, "gpus": gpus, "name": "ring" });
    let refused = ann.api().post_once("five", &all, of(5, 4)).await.refused(409, "sku_unavailable");
    assert_eq!(refused["error"]["details"]["smallest_change"], json!({ "change": "count", "count": 4 }));
    assert_eq!(world.free(SLICE).await, 16, "not one of them was kept");

    let made = ann.api().post_once("three", &all, of(3, 4)).await.expect(202);
    let one = format!("{all}/{}", made["id"].as_str().unwrap());
    let reach = |state: &'static str| {
        let (api, one) = (ann.api(), &one);
        testkit::eventually(state, move || async move {
            let group = api.get(one).await.expect(200);
            (group["state"] == state).then_some(group)
        })
    };
    let group = reach("active").await;
    assert_eq!((group["allocations"].as_array().unwrap().len(), world.free(SLICE).await), (3, 4));
    ann.api().post(&format!("{one}/release"), json!({})).await.expect(202);
    reach("released").await;
    assert_eq!(world.free(SLICE).await, 16);

    // One of them cannot be made: none is left.
    nodes.script("[[script]]\ntask = 'slice.vm_provision'\nnth = 2\nhostname = 'simnode-h200-8-1'\n");
    let made = ann.api().post_once("unlucky", &all, of(4, 4)).await.expect(202);
    let one = format!("{all}/{}", made["id"].as_str().unwrap());
    testkit::eventually("the group is over", || async {
        (ann.api().get(&one).await.expect(200)["state"] == "failed").then_some(())
    })
    .await;
    // The machine that failed is looked over before it is sold again.
    testkit::eventually("all of it is for sale", || async { (world.free(SLICE).await == 16).then_some(()) })
        .await;
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_refusal_says_what_would_fit_and_the_same_is_explained_without_launching() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 2)]).await;
    let ann = world.tenant("ann").await;
    let explain =
        async |query: &str| ann.api().get(&ann.path(&format!("/explain?{query}"))).await.expect(200);
    let fits = explain(&format!("sku={SLICE}&gpus=8&count=2")).await;
    assert_eq!((&fits["fits"], &fits["region"]), (&json!(true), &json!(REGION)), "{fits}");
    assert_eq!(fits["price"]["per_hour_minor"], 450 * 16);
    assert!(fits["refusal"].is_null());

    for _ in 0..2 {
        ann.active(slice(4)).await;
    }
    // Slices fill one machine before they take another.
    assert_eq!([world.free(SLICE).await, world.free(MACHINE).await], [8, 1]);
    ann.active(slice(1)).await;
    let told = explain(&format!("sku={SLICE}&gpus=8")).await;
    assert_eq!(told["fits"], json!(false));
    let refused = ann.request(slice(8)).await.refused(409, "sku_unavailable");
    let details = &refused["error"]["details"];
    assert_eq!(details["reason"], told["refusal"]["reason"]);
    assert_eq!(details["smallest_change"], json!({ "change": "gpus", "gpus": 4 }));
    assert_eq!(details["smallest_change"], told["refusal"]["smallest_change"]);
    ann.active(slice(4)).await;
    assert_eq!(explain(&format!("sku={SLICE}&gpus=4")).await["fits"], json!(false));
    let elsewhere = ann.request(json!({ "sku": SLICE, "region": "nowhere" })).await;
    assert!((400..500).contains(&elsewhere.status), "{}", elsewhere.text);
    invariants::hold(&world.db).await;
}
