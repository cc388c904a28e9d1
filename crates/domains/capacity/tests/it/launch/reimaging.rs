//! Machines that nothing can install anew are not sold to tenants who would be root on them.

use http::StatusCode;
use serde_json::json;

use super::{
    invariants,
    world::{World, slice, whole},
};

const EXPLAIN: &str = "allocations/explain?sku=h200-sxm-baremetal-8g";

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_with_root_is_refused_where_nothing_can_install_the_machine_anew() {
    let world = World::new().await;
    world.region("eu").await;
    let real = world.node("eu", 8).await;
    world.test.set_global_policy("allocation.isolation_model", "\"full-reimage\"").await;

    let explained = world.get(world.tenant, EXPLAIN).await;
    assert_eq!(explained.body["fits"], false, "{explained:?}");
    assert_eq!(explained.body["refusal"]["reason"], "not_reimageable");
    let refused = world.launch(world.tenant, whole()).await;
    assert_eq!(refused.code(), "sku_unavailable", "{refused:?}");
    assert_eq!(refused.body["error"]["details"]["reason"], "not_reimageable");
    let fix = refused.body["error"]["suggestion"].as_str().unwrap();
    assert!(fix.contains("user-revoke") && fix.contains("provisioner"), "{fix}");
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 0);

    // A slice is a machine of its own, and gone with its tenant.
    let sliced = world.launch(world.tenant, slice(1)).await;
    assert_eq!(sliced.status, StatusCode::ACCEPTED, "{sliced:?}");
    // A machine that can be installed is found behind those that cannot.
    let simulated = world.node("eu", 8).await;
    world.sql(&format!("UPDATE nodes SET simulated = true WHERE id = '{}'", simulated.uuid())).await;
    world.node("eu", 8).await;
    assert_eq!(world.get(world.tenant, EXPLAIN).await.body["fits"], true);
    let made = world.launch(world.tenant, whole()).await;
    assert_eq!(made.body["isolation_model"], json!("full-reimage"), "{made:?}");
    let on = format!(
        "SELECT count(*) FROM allocations WHERE shape = 'baremetal' AND node_id = '{}'",
        simulated.uuid()
    );
    assert_eq!(world.count(&on).await, 1);
    assert_ne!(real, simulated);
    invariants::hold(&world).await;
}
