//! Restored from backup without the file that remembers certificates: what nodes were given since the backup is taken over
//! when they show it, once for each node.

use kernel::Ambient;
use serde_json::{Value, json};
use testkit::{NodeClient, NodeKeys, World, eventually, program};
use trust::ca::{Serial, Validity};

use crate::{
    node_attacks::certificates::{authority, spiffe},
    tools::command,
};

async fn renewed(world: &World, node: &NodeClient) -> NodeClient {
    let keys = NodeKeys::generate();
    let answer =
        node.api.post(&node.path("cert/renew"), json!({ "csr_pem": keys.csr_pem })).await.expect(200);
    let chain = answer["certificate"]["chain_pem"].as_str().expect("a chain");
    world.node_client(&node.id, chain, &keys.key_pem).await
}

async fn report_accepted(node: &NodeClient) {
    node.api.post(&node.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
}

async fn refused(node: &NodeClient) -> Value {
    node.api.post(&node.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_revoked")
}

/// A renewal that was heard.
async fn renewed_and_heard(world: &World, node: &NodeClient) -> NodeClient {
    let next = renewed(world, node).await;
    report_accepted(&next).await;
    next
}

async fn stop(world: &mut World) {
    assert_eq!(world.server.stop().await, Some(0), "{}", world.server.log());
}

async fn start(world: &mut World) {
    world.server.spawn();
    world.server.ready().await;
}

/// Those that are in force.
async fn valid(world: &World, node: &NodeClient) -> usize {
    let path = format!("/api/v1/platform/nodes/{}/certificates", node.id);
    let listed = world.admin.get(&path).await.expect(200);
    listed["items"].as_array().expect("certificates").iter().filter(|one| one["state"] == "valid").count()
}

/// Findings that somebody has a copy of the node's key.
async fn copies(world: &World, node: &NodeClient) -> i64 {
    let id = node.id.trim_start_matches("node_");
    world
        .count(&format!(
            "SELECT count(*) FROM health_findings WHERE code = 'identity.copied' AND node_id = '{id}'"
        ))
        .await
}

#[tokio::test]
async fn a_certificate_from_after_the_backup_is_taken_over_and_renews_and_a_second_one_is_a_copy() {
    let mut world = World::start().await;
    let mut nodes = Vec::new();
    for name in ["well", "copied", "copied-late", "revoked", "repaired", "as-before"] {
        let node = world.enrolled_node(&world.created_node(name).await).await;
        report_accepted(&node).await;
        nodes.push(node);
    }
    let [well, copied, copied_late, revoked, repaired, as_before] = &nodes[..] else { panic!("six nodes") };
    stop(&mut world).await;
    let backup = world.db.back_up().await;
    start(&mut world).await;
    let well_since = renewed_and_heard(&world, well).await;
    let stolen = renewed_and_heard(&world, copied).await;
    let own = renewed_and_heard(&world, &stolen).await;
    let stolen_late = renewed_and_heard(&world, copied_late).await;
    let own_late = renewed_and_heard(&world, &stolen_late).await;
    let revoked_since = renewed_and_heard(&world, revoked).await;
    let repaired_since = renewed_and_heard(&world, repaired).await;
    // Nothing outside the database remembers them.
    stop(&mut world).await;
    world.db.restore(backup).await;
    let data = world.server.dir.path().join("data");
    std::fs::remove_file(data.join("secrets/generation.json")).expect("remove the file");
    let config = world.server.dir.path().join("gpuaas.toml");
    let said =
        command(program("gpuaasd")).arg("--config").arg(config).arg("restore").output().expect("gpuaasd");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    start(&mut world).await;
    world.admin = world.server.api().with_token(world.idp.token("root", "again"));
    let mode = world.admin.get("/api/v1/platform/restore").await.expect(200);
    assert_eq!(mode["mode"], "restore");

    // The node goes on with what it has, and the one of the backup is worth nothing.
    report_accepted(&well_since).await;
    report_accepted(&well_since).await;
    assert_eq!(valid(&world, well).await, 1);
    refused(well).await;
    let renewed_since = renewed_and_heard(&world, &well_since).await;
    report_accepted(&renewed_since).await;
    refused(&well_since).await;
    assert_eq!(valid(&world, well).await, 1);
    // One that did not renew since the backup goes on as before.
    report_accepted(as_before).await;
    renewed_and_heard(&world, as_before).await;
    let adopted =
        "SELECT count(*) FROM audit_logs WHERE action = 'node.certificate_adopt' AND result = 'allowed'";
    assert_eq!(world.count(adopted).await, 1);

    // Whoever shows an earlier or a later one of the same node has a copy, or was not the first.
    report_accepted(&stolen).await;
    refused(&own).await;
    assert_eq!(world.node_state(&copied.id).await, "quarantined");
    report_accepted(&own_late).await;
    refused(&stolen_late).await;
    assert_eq!(world.node_state(&copied_late.id).await, "quarantined");
    for node in [copied, copied_late] {
        assert_eq!((copies(&world, node).await, valid(&world, node).await), (1, 1));
    }

    // What an operator did since the restore counts.
    let path = format!("/api/v1/platform/nodes/{}/certificates/revoke", revoked.id);
    world.admin.post(&path, json!({ "reason": "the key was stolen" })).await.expect(200);
    refused(&revoked_since).await;
    let path = format!("/api/v1/platform/nodes/{}/repair-token", repaired.id);
    let token = world.admin.post(&path, json!({})).await.expect(201)["token"].clone();
    let keys = NodeKeys::generate();
    let body = json!({
        "node_id": repaired.id, "token": token, "csr_pem": keys.csr_pem, "hostname": "repaired",
        "agent_version": "0.0.1", "machine_id": "test",
    });
    world.node_listener().await.post("/internal/v1/nodes/enroll", body).await.expect(200);
    refused(&repaired_since).await;
    assert_eq!((copies(&world, revoked).await, copies(&world, repaired).await), (0, 0), "neither is a copy");
}

#[tokio::test]
async fn a_certificate_of_ours_that_nobody_recorded_is_refused_where_no_database_was_restored() {
    let world = World::start().await;
    let node = world.enrolled_node(&world.created_node("victim").await).await;
    report_accepted(&node).await;
    let (keys, ambient) = (NodeKeys::generate(), Ambient::system());
    let now = ambient.now();
    let validity = Validity {
        not_before: now - chrono::TimeDelta::minutes(5),
        not_after: now + chrono::TimeDelta::hours(48),
    };
    let issued =
        authority(&world).await.issue(&keys.csr_pem, &spiffe(&node.id), Serial::random(&ambient), validity);
    let unknown = world.node_client(&node.id, &issued.expect("issued").chain_pem, &keys.key_pem).await;
    let answer = refused(&unknown).await;
    assert!(
        answer["error"]["suggestion"].as_str().is_some_and(|what| what.contains("gpuaasd restore")),
        "{answer}"
    );
    unknown
        .api
        .post(&unknown.path("cert/renew"), json!({ "csr_pem": NodeKeys::generate().csr_pem }))
        .await
        .refused(401, "token_revoked");
    eventually("it is in the trail", || async {
        let sql = "SELECT count(*) FROM audit_logs WHERE action = 'node.authenticate' AND result = 'refused'";
        (world.count(sql).await > 0).then_some(())
    })
    .await;
    report_accepted(&node).await;
    assert_eq!(valid(&world, &node).await, 1);
}
