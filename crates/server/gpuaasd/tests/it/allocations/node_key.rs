//! What a tenant of a whole machine can learn of the agent, and what it is worth when the machine is no longer theirs.

use serde_json::{Value, json};
use testkit::{NodeClient, NodeKeys, World, eventually, invariants};

use super::real_host::{Host, SKU, colleagues, sell, user_of};

/// Files that everybody on a machine may read, and that the agent or a sign-in changes.
const PUBLIC: [&str; 6] =
    ["/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid", "/var/log/lastlog", "/var/log/wtmp"];
const STATE: &str = "/var/lib/gpuaas-agent";
/// Whatever changed on the machine since the agent came to it, but for the kernel's own.
const WRITTEN: &str = "find / \\( -path /proc -o -path /lab -o -path /dev -o -path /run \\) -prune -o \
                       -newer /run/before-the-agent -print";

async fn certificates(world: &World, node: &str) -> Vec<Value> {
    let path = format!("/api/v1/platform/nodes/{node}/certificates");
    world.admin.get(&path).await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_reads_nothing_of_the_agents_and_a_copied_key_is_worthless_after_the_release() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let mut host = Host::boot();
    host.sh("touch /run/before-the-agent");
    let node = sell(&world, &mut host).await;
    let (his, hers) = (host.key("his"), host.key("hers"));
    let [bo, _cy] = colleagues(&world, [&his, &hers]).await;
    let id = bo.active(json!({ "sku": SKU })).await;
    let user = user_of(&bo, &id, &host).await;
    assert_eq!(bo.get(&id).await["isolation_model"], "user-revoke");
    host.ssh(&user, &his, "sudo -n true").unwrap_err();

    let written: Vec<String> = host.sh(WRITTEN).lines().map(str::to_owned).collect();
    for name in ["key.pem", "chain.pem", "node.json", "trust.json", "tasks", "host"] {
        let path = format!("{STATE}/{name}");
        assert!(written.contains(&path), "{path} is not among {written:?}");
    }
    let quoted: Vec<String> = written.iter().map(|path| format!("'{path}'")).collect();
    let tries = format!(
        "for p in {}; do test -O \"$p\" && continue; test -f \"$p\" && test -r \"$p\" && echo \"$p\"; \
         test -w \"$p\" && ! test -k \"$p\" && echo \"may write $p\"; done; ls {STATE} && echo listed; true",
        quoted.join(" ")
    );
    let open = host.ssh(&user, &his, &tries).unwrap();
    let secret: Vec<&str> =
        open.lines().filter(|line| !PUBLIC.contains(&line.trim_end_matches('-'))).collect();
    assert_eq!(secret, Vec::<&str>::new(), "the tenant gets at what is the agent's");

    // Somebody was root all the same, and has the key.
    let (chain, key) = (host.sh(&format!("cat {STATE}/chain.pem")), host.sh(&format!("cat {STATE}/key.pem")));
    assert!(key.contains("PRIVATE KEY"), "{key}");
    let before = certificates(&world, &node).await[0]["serial"].clone();
    bo.release(&id).await;
    assert_ne!(host.sh(&format!("cat {STATE}/key.pem")), key, "the node has made a new key");
    let after = certificates(&world, &node).await;
    let live: Vec<&Value> = after.iter().filter(|one| one["state"] == "valid").collect();
    assert!(live.len() == 1 && live[0]["serial"] != before, "{after:?}");
    assert_eq!(world.node_state(&node).await, "active");

    let thief = world.node_client(&node, &chain, &key).await;
    thief.api.post(&thief.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_revoked");
    let renewal = json!({ "csr_pem": NodeKeys::generate().csr_pem });
    thief.api.post(&thief.path("cert/renew"), renewal).await.refused(401, "token_revoked");
    // A connection that is opened when the clocks of gateways cannot explain it any more is a copy's.
    eventually("the node is set aside", || async {
        let thief = world.node_client(&node, &chain, &key).await;
        thief.api.post(&thief.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_revoked");
        (world.node_state(&node).await == "quarantined").then_some(())
    })
    .await;
    let found = world.admin.get("/api/v1/platform/findings").await.expect(200)["items"].clone();
    let copied: Vec<&Value> =
        found.as_array().unwrap().iter().filter(|one| one["code"] == "identity.copied").collect();
    assert!(copied.len() == 1 && copied[0]["node_id"] == json!(node), "{found}");
    let audited =
        "SELECT count(*) FROM audit_logs WHERE action = 'node.identity_copied' AND result = 'allowed'";
    assert_eq!(world.count(audited).await, 1);
    let refused = "SELECT count(*) FROM audit_logs WHERE action = 'node.authenticate' AND result = 'refused'";
    assert!(world.count(refused).await >= 1);
    // The node itself is heard all the time.
    let seen = world.node(&node).await["contact"]["last_seen_at"].clone();
    eventually("the node is heard", || async {
        (world.node(&node).await["contact"]["last_seen_at"] != seen).then_some(())
    })
    .await;
    invariants::hold(&world.db).await;
}
