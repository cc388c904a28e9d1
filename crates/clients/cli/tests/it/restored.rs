//! Going on after a restore from a backup, by commands alone.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::eventually_within;

use crate::{allocations::Cloud, kit::text};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_operator_settles_what_differs_after_a_restore_and_resumes() {
    let mut cloud = Cloud::start().await;
    assert_eq!(cloud.operator.json(&["ops", "restore", "status"]).await["mode"], "normal");
    assert_eq!(cloud.world.server.stop().await, Some(0));
    let backup = cloud.world.db.back_up().await;
    cloud.world.server.spawn();
    cloud.world.server.ready().await;
    let later = text(&cloud.launch(1, "later").await["id"]);
    assert_eq!(cloud.world.server.stop().await, Some(0));
    cloud.world.db.restore(backup).await;
    cloud.world.server.spawn();
    cloud.world.server.ready().await;

    // Everything that was signed in was ended by the restore.
    let said = cloud.operator.run(&["ops", "restore", "status"]).await;
    assert!(said.code != Some(0) && said.err.contains("token_revoked"), "{said:?}");
    cloud.sign_in_again();
    let operator = &cloud.operator;
    let status = operator.run(&["ops", "restore", "status"]).await.ok();
    assert!(status.contains("restore") && status.contains("generation"), "{status}");
    let create = ["allocations", "create", "--sku", crate::allocations::SLICE];
    let said = cloud.user.run(&create).await;
    assert!(said.code != Some(0) && said.err.contains("gpuaas ops restore status"), "{said:?}");
    let found = eventually_within(PATIENCE, "the difference is found", || async {
        let listed = operator.json(&["ops", "restore", "differences"]).await;
        let items: Vec<Value> = listed.as_array().unwrap().clone();
        items.into_iter().find(|d| d["allocation_id"] == json!(later))
    })
    .await;
    assert_eq!(found["kind"], "unknown_on_node");
    let id = text(&found["id"]);
    operator.run(&["ops", "restore", "resume"]).await.fails(1);
    let said = operator.run(&["ops", "restore", "resume", "--yes"]).await;
    assert!(said.code != Some(0) && said.err.contains("gpuaas ops restore settle"), "{said:?}");

    let settle = ["ops", "restore", "settle", &id, "--note", "launched after the backup"];
    assert_ne!(operator.run(&[&settle[..], &["--decision", "end"]].concat()).await.code, Some(0));
    operator.run(&["ops", "restore", "settle", "../x", "--decision", "keep", "--note", "x"]).await.fails(4);
    operator.run(&[&settle[..], &["--decision", "cordon"]].concat()).await.ok();
    let listed = operator.json(&["ops", "restore", "differences"]).await;
    assert!(listed.as_array().unwrap().iter().any(|d| d["id"] == json!(id) && d["decision"] == "cordon"));
    eventually_within(PATIENCE, "everything was compared", || async {
        let said = operator.run(&["ops", "restore", "resume", "--yes"]).await;
        assert!(said.code == Some(0) || said.err.contains("compared"), "{said:?}");
        (said.code == Some(0)).then_some(())
    })
    .await;
    assert_eq!(operator.json(&["ops", "restore", "status"]).await["mode"], "normal");
    let node = operator.json(&["nodes", "show", &cloud.nodes.hostnames[0]]).await;
    assert!(node.to_string().contains("differs after a restore"), "{node}");
}
