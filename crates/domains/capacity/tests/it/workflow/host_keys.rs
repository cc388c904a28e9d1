//! The host keys of a machine: what its node reports, as far as it can be one.

use kernel::ids::AllocationId;
use node_proto::{TaskType, contract::Ending};
use serde_json::json;
use testcapacity::HOST_KEY;

use super::kit::{Kit, MACHINE, SLICE};

async fn stored(kit: &Kit, id: AllocationId) -> String {
    kit.one(&format!(
        "SELECT array_to_string(ssh_host_keys, '|') FROM allocations WHERE id = '{}'",
        id.uuid()
    ))
    .await
}

#[tokio::test]
async fn the_host_keys_that_a_node_reports_are_kept_and_what_is_no_key_is_not() {
    let kit = Kit::new().await;
    let id = kit.launch(MACHINE).await;
    assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
    assert_eq!(stored(&kit, id).await, HOST_KEY, "a damaged one was reported with it");
    let slice = kit.launch(SLICE).await;
    assert_eq!(kit.drive(&slice.to_string()).await, "succeeded");
    assert_eq!(stored(&kit, slice).await, "");
}

#[tokio::test]
async fn a_node_of_the_contract_before_reports_none_and_its_machine_is_made_all_the_same() {
    let kit = Kit::new().await;
    let id = kit.launch(MACHINE).await;
    let uid: i32 = kit.one(&format!("SELECT uid FROM allocations WHERE id = '{}'", id.uuid())).await;
    let output = json!({
        "username": format!("gpu{uid}"), "uid": uid, "gid": uid, "home": format!("/home/gpu{uid}"), "keys": 1,
        "created": true,
    });
    kit.ends(TaskType::ProvisionUser, vec![Ending::Succeeded { output }]);
    assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
    assert_eq!(stored(&kit, id).await, "");
}
