//! What a node says about its health, and since when.

use serde_json::json;
use testkit::{NodeClient, World};

use super::node;

#[tokio::test]
async fn a_finding_from_1970_begins_no_earlier_than_the_gateway_can_believe() {
    let world = World::start().await;
    world.policy("fleet.finding_backdate_seconds", 30).await;
    let one = node(&world, "one").await;
    one.api.post(&one.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
    let mut report = NodeClient::heartbeat();
    report["findings"] = json!([{
        "code": "xid.79", "subject": "node", "message": "gone for ever", "observed_at": "1970-01-01T00:00:00Z",
        "evidence": {},
    }]);
    one.api.post(&one.path("heartbeat"), report).await.expect(200);
    let listed = world.admin.get(&format!("/api/v1/platform/findings?node_id={}", one.id)).await.expect(200);
    assert_eq!(listed["items"][0]["action"], "credit", "{listed}");
    // The report before was at or after the node was made.
    let before = "SELECT count(*) FROM health_findings f JOIN nodes n ON n.id = f.node_id
        WHERE f.first_seen_at < n.created_at - interval '30 seconds'";
    assert_eq!(world.count(before).await, 0, "{listed}");
}
