//! After a restore: nothing goes on before the records were compared with what the nodes reported since.

use capacity::service::restore::{compare, restore_resume};
use chrono::TimeDelta;
use kernel::{Code, Failure};

use crate::kit::Kit;

async fn resume(kit: &Kit) -> Result<String, Failure> {
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

#[tokio::test]
async fn an_operator_resumes_only_when_a_whole_turn_has_compared_what_all_nodes_reported() {
    let kit = Kit::new().await;
    let node = kit.node("gpu-01", 1).await;
    kit.reports(node, &[], &[]).await;
    for _ in 0..2 {
        kit.pass(TimeDelta::seconds(1));
        let origin = pg::Origin::internal(kernel::CorrelationId(kit.test.db.ambient().uuid()));
        let permit = pg::Permit::system("a test", origin);
        let mut tx = kit.test.db.write(permit, "installation.restore_begin").await.unwrap();
        pg::installation_restore_begin(&mut tx, None, "a test").await.unwrap();
        tx.commit(None).await.unwrap();
        is_refused(&kit, "have not reported").await;
        compare(&kit.capacity).await.unwrap();
        kit.pass(TimeDelta::seconds(1));
        kit.reports(node, &[], &[]).await;
        // The turn before began without the node's report.
        is_refused(&kit, "not compared").await;
        compare(&kit.capacity).await.unwrap();
        assert_eq!(resume(&kit).await.unwrap(), "normal");
    }
}
