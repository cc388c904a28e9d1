//! After a restore: nothing goes on before the records were compared with what the nodes reported since.

use capacity::{
    model::restore::RestoreMode,
    service::{
        discrepancies::check,
        restore::{compare, restore_resume, restore_status},
    },
};
use chrono::TimeDelta;
use fleet::service::nodes::{cordon_once, node_uncordon};
use kernel::{Code, Failure, ids::NodeId};

use super::kit::Kit;

async fn resume(kit: &Kit) -> Result<RestoreMode, Failure> {
    let mut tx = kit.write("installation.resume").await;
    match restore_resume(&kit.capacity, &mut tx).await {
        Ok(status) => {
            tx.commit(None).await.unwrap();
            Ok(status.mode)
        }
        Err(failure) => {
            tx.roll_back().await;
            Err(failure)
        }
    }
}

async fn is_refused(kit: &Kit, because: &str) {
    let Err(Failure::Problem(problem)) = resume(kit).await else { panic!("it is not refused") };
    assert_eq!(problem.code, Code::InvalidTransition);
    assert!(problem.to_string().contains(because), "{problem}");
}

async fn restored(kit: &Kit) {
    kit.pass(TimeDelta::seconds(1));
    let origin = pg::Origin::internal(kernel::CorrelationId(kit.test.db.ambient().uuid()));
    let permit = pg::Permit::system("a test", origin);
    let mut tx = kit.test.db.write(permit, "installation.restore_begin").await.unwrap();
    pg::installation_restore_begin(&mut tx, None, "a test", pg::Noticed::ByOperator).await.unwrap();
    tx.commit(None).await.unwrap();
}

async fn cordon(kit: &Kit, node: NodeId) {
    let mut tx = kit.write("node.cordon").await;
    cordon_once(&mut tx, node, "it is silent").await.unwrap();
    tx.record("node", node, None::<&()>, None::<&()>).unwrap();
    tx.commit(None).await.unwrap();
}

async fn uncordon(kit: &Kit, node: NodeId) -> Result<(), Failure> {
    let mut tx = kit.write("node.uncordon").await;
    match node_uncordon(&mut tx, node, None).await {
        Ok(_) => {
            tx.commit(None).await.unwrap();
            Ok(())
        }
        Err(failure) => {
            tx.roll_back().await;
            Err(failure)
        }
    }
}

/// Nodes that the status names as not compared.
async fn uncompared(kit: &Kit) -> Vec<NodeId> {
    let origin = pg::Origin::internal(kernel::CorrelationId(kit.test.db.ambient().uuid()));
    let mut tx = kit.test.db.read(&pg::Permit::system("a test", origin)).await.unwrap();
    restore_status(&mut tx).await.unwrap().nodes_uncompared
}

#[tokio::test]
async fn a_node_that_was_cordoned_while_the_others_were_compared_is_compared_before_work_goes_on() {
    let kit = Kit::new().await;
    let (node, silent) = (kit.node("gpu-01", 1).await, kit.node("gpu-02", 1).await);
    cordon(&kit, silent).await;
    restored(&kit).await;
    kit.pass(TimeDelta::seconds(1));
    kit.reports(node, &[], &[]).await;
    compare(&kit.capacity).await.unwrap();
    assert_eq!(uncompared(&kit).await, [silent], "one that is cordoned is listed");
    // It comes back with a machine that nobody knows, and is let in again before anybody looked.
    kit.pass(TimeDelta::seconds(1));
    kit.reports(silent, &[], &["alloc_0193b3a0000070008000000000000001".to_owned()]).await;
    uncordon(&kit, silent).await.unwrap();
    is_refused(&kit, "not been compared").await;
    compare(&kit.capacity).await.unwrap();
    assert_eq!(uncompared(&kit).await, []);
    is_refused(&kit, "1 differences").await;
}

#[tokio::test]
async fn a_node_that_was_left_out_of_a_restore_is_uncordoned_only_after_it_was_compared() {
    let kit = Kit::new().await;
    let (node, silent) = (kit.node("gpu-01", 1).await, kit.node("gpu-02", 1).await);
    restored(&kit).await;
    cordon(&kit, silent).await;
    kit.pass(TimeDelta::seconds(1));
    kit.reports(node, &[], &[]).await;
    compare(&kit.capacity).await.unwrap();
    assert_eq!(resume(&kit).await.unwrap(), RestoreMode::Normal);
    let left_out = async || match uncordon(&kit, silent).await {
        Err(Failure::Problem(problem)) => {
            assert_eq!(problem.code, Code::InvalidTransition);
            assert!(problem.suggestion.is_some_and(|what| what.contains("gpuaas ops discrepancies")));
            true
        }
        done => done.map(|()| false).unwrap(),
    };
    assert!(left_out().await);
    // Being heard is not enough.
    kit.pass(TimeDelta::seconds(1));
    kit.reports(silent, &[], &[]).await;
    assert!(left_out().await);
    check(&kit.capacity, None).await.unwrap();
    assert!(!left_out().await);
    // Others are cordoned and uncordoned as before.
    cordon(&kit, node).await;
    uncordon(&kit, node).await.unwrap();
}

#[tokio::test]
async fn an_operator_resumes_only_when_a_whole_turn_has_compared_what_all_nodes_reported() {
    let kit = Kit::new().await;
    let node = kit.node("gpu-01", 1).await;
    kit.reports(node, &[], &[]).await;
    for _ in 0..2 {
        restored(&kit).await;
        is_refused(&kit, "have not reported").await;
        compare(&kit.capacity).await.unwrap();
        kit.pass(TimeDelta::seconds(1));
        kit.reports(node, &[], &[]).await;
        // The turn before began without the node's report.
        is_refused(&kit, "not been compared").await;
        compare(&kit.capacity).await.unwrap();
        assert_eq!(resume(&kit).await.unwrap(), RestoreMode::Normal);
    }
}
