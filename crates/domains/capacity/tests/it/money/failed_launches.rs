//! A launch that failed alone is nobody's group.

use node_proto::{TaskType, contract::FailureCode};

use super::{
    bank::{self, Bank, RATE},
    kit::SLICE,
    node::failed,
};

#[tokio::test]
async fn a_launch_that_failed_without_a_group_leaves_no_row_about_one() {
    let bank = Bank::with(10 * RATE).await;
    let id = bank.launch(SLICE).await;
    bank.ends(TaskType::VmProvision, vec![failed(FailureCode::Driver, "no")]);
    assert_eq!(bank.drive(&id.to_string()).await, "undone");
    bank.deliver().await;
    assert_eq!(bank.state(id).await, "failed");
    let told = "SELECT count(*) FROM outbox_events WHERE event_type = 'provisioning.failed'";
    assert_eq!(bank.one::<i64>(told).await, 1);
    let rows = "SELECT count(*) FROM audit_logs WHERE action = 'allocation_group.member_failed'";
    assert_eq!(bank.one::<i64>(rows).await, 0);
    bank::hold(&bank.test).await;
}
