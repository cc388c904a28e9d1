//! Results, the end of time, and cancelling: exactly one of them ends a task.

use fleet::model::task::TaskState;
use fleet::{
    api::{CompletedTask, TaskEnding, TaskRequest},
    service::dispatch,
};
use kernel::{Code, Failure, ids::TaskId};
use node_proto::{
    catalog::{TopologyDiscover, TopologyDiscoverInput},
    contract::{Ending, Phase, Progress},
};
use serde_json::json;
use uuid::Uuid;

use super::kit::{GOOD_FOR, Kit, failed, succeeded};

#[tokio::test]
async fn a_task_ends_once_however_often_and_by_whomever_it_is_told() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    let task = kit.queue(node).await;
    assert_eq!(
        kit.result_report(node, task, succeeded()).await,
        Err(Code::InvalidTransition),
        "it was not handed out"
    );
    kit.tasks_lease(node, None).await;
    assert_eq!(kit.result_report(other, task, succeeded()).await, Err(Code::NotFound));
    assert_eq!(kit.result_report(node, TaskId::from(Uuid::nil()), succeeded()).await, Err(Code::NotFound));
    let (first, second) =
        tokio::join!(kit.result_report(node, task, succeeded()), kit.result_report(node, task, succeeded()));
    assert_eq!((first, second), (Ok(true), Ok(true)));
    assert_eq!(kit.result_report(node, task, failed("no")).await, Err(Code::Conflict));
    assert_eq!(kit.result_report(node, task, succeeded()).await, Ok(true));
    assert_eq!((kit.state(task).await.as_str(), kit.endings()), ("succeeded", vec!["Reported".to_owned()]));
    assert_eq!(kit.audited("task.result", "allowed").await, "1");
}

#[tokio::test]
async fn a_result_for_the_waiting_party_of_another_release_is_kept_for_who_knows_it() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    kit.test
        .sql(&format!("UPDATE node_tasks SET waiting_kind = 'nobody' WHERE id = '{}'", task.uuid()))
        .await;
    assert_eq!(kit.result_report(node, task, succeeded()).await, Err(Code::InternalError));
    assert_eq!((kit.state(task).await.as_str(), kit.endings()), ("dispatched", vec![]), "nothing was stored");
    kit.test.sql(&format!("UPDATE node_tasks SET waiting_kind = 'saga' WHERE id = '{}'", task.uuid())).await;
    assert_eq!(kit.result_report(node, task, succeeded()).await, Ok(true));
    assert_eq!(kit.endings(), ["Reported"]);
}

#[tokio::test]
async fn two_different_endings_at_once_leave_one() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    for _ in 0..5 {
        let task = kit.given(node).await;
        let (a, b) = tokio::join!(
            kit.result_report(node, task, succeeded()),
            kit.result_report(node, task, failed("no"))
        );
        assert!(
            matches!((a, b), (Ok(true), Err(Code::Conflict)) | (Err(Code::Conflict), Ok(true))),
            "{a:?} {b:?}"
        );
    }
    assert_eq!(kit.endings(), vec!["Reported"; 5]);
}

#[tokio::test]
async fn a_result_and_the_end_of_its_time_race_and_exactly_one_wins() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    for _ in 0..5 {
        let task = kit.given(node).await;
        kit.clock.advance(GOOD_FOR);
        let (told, expired) = tokio::join!(
            kit.result_report(node, task, succeeded()),
            dispatch::expire_overdue(&kit.fleet, 10)
        );
        let state = kit.state(task).await;
        match (told, expired) {
            (Ok(true), Ok(0)) => assert_eq!(state, "succeeded"),
            (Ok(false), Ok(1)) => assert_eq!(state, "expired"),
            other => panic!("{other:?} left it {state}"),
        }
    }
    assert_eq!(kit.endings().len(), 5);
}

#[tokio::test]
async fn what_nobody_told_in_time_expires_and_a_late_answer_is_evidence() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let (given, queued) = (kit.given(node).await, kit.queue(node).await);
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 10).await.map_err(drop), Ok(0));
    kit.clock.advance(GOOD_FOR);
    assert!(kit.tasks_lease(node, Some(Vec::new())).await.is_empty(), "what is over is not handed out");
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 1).await.map_err(drop), Ok(2));
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 10).await.map_err(drop), Ok(0));
    assert_eq!(
        (kit.state(given).await, kit.state(queued).await),
        ("expired".to_owned(), "expired".to_owned())
    );
    assert_eq!(kit.endings(), ["Expired", "Expired"]);
    let progress = dispatch::progress(&kit.fleet, node, given, Progress { phases: Vec::new() }).await;
    assert!(progress.is_ok_and(|answer| answer.cancelled));
    assert_eq!(kit.result_report(node, given, succeeded()).await, Ok(false));
    assert_eq!(kit.result_report(node, given, failed("another")).await, Ok(false));
    let late = kit
        .text(format!("SELECT late_outcome->>'status' FROM node_tasks WHERE id = '{}'", given.uuid()))
        .await;
    assert_eq!((late.as_str(), kit.endings().len()), ("succeeded", 2));
}

#[tokio::test]
async fn a_cancelled_task_tells_its_node_to_stop() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    let phases = vec![Phase {
        name: "collect".to_owned(),
        started_at: kit.test.db.ambient().now(),
        duration_ms: None,
    }];
    let progress = || dispatch::progress(&kit.fleet, node, task, Progress { phases: phases.clone() });
    assert!(progress().await.is_ok_and(|answer| !answer.cancelled));
    let mut tx = kit.write().await;
    let stale = dispatch::cancel(&kit.fleet, &mut tx, task, Some(1)).await;
    assert!(matches!(stale, Err(Failure::Problem(problem)) if problem.code == Code::Conflict));
    let view = dispatch::cancel(&kit.fleet, &mut tx, task, None).await.map_err(|_| "refused").unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(
        (view.state, view.phases.len(), view.params),
        (TaskState::Cancelled, 1, json!({ "parts": [] }))
    );
    assert!(progress().await.is_ok_and(|answer| answer.cancelled));
    let mut tx = kit.write().await;
    let again = dispatch::cancel(&kit.fleet, &mut tx, task, None).await;
    assert!(matches!(again, Err(Failure::Problem(problem)) if problem.code == Code::InvalidTransition));
    tx.roll_back().await;
    assert_eq!(
        (kit.result_report(node, task, succeeded()).await, kit.endings()),
        (Ok(false), vec!["Cancelled".to_owned()])
    );
}

#[tokio::test]
async fn a_success_that_nobody_can_read_is_a_failure() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    let odd = Ending::Succeeded { output: json!({ "parts": "none" }) };
    assert_eq!(kit.result_report(node, task, odd.clone()).await, Ok(true));
    assert_eq!(kit.result_report(node, task, odd).await, Ok(true), "the same again is the same");
    let code = kit
        .text(format!("SELECT outcome->'failure'->>'code' FROM node_tasks WHERE id = '{}'", task.uuid()))
        .await;
    assert_eq!((kit.state(task).await.as_str(), code.as_str()), ("failed", "invalid"));
    let tasks = kit.told.tasks.lock().unwrap();
    assert!(matches!(
        &tasks[..],
        [CompletedTask { ending: TaskEnding::Reported(Ending::Failed { .. }), .. }]
    ));
}

#[tokio::test]
async fn when_the_waiting_party_fails_nothing_is_stored_and_the_node_tells_again() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    *kit.told.fails.lock().unwrap() = true;
    assert_eq!(kit.result_report(node, task, succeeded()).await, Err(Code::InternalError));
    assert_eq!(
        (kit.state(task).await.as_str(), kit.audited("task.result", "allowed").await.as_str()),
        ("dispatched", "0")
    );
    *kit.told.fails.lock().unwrap() = false;
    assert_eq!(kit.result_report(node, task, succeeded()).await, Ok(true));
    assert_eq!(kit.endings(), ["Reported"]);
}

#[tokio::test]
async fn one_that_cannot_be_ended_does_not_keep_others_from_expiring() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let stuck = kit.queue(node).await;
    let mut tx = kit.write().await;
    let request = TaskRequest::<TopologyDiscover> {
        node,
        input: TopologyDiscoverInput {},
        attempt: 1,
        good_for: GOOD_FOR,
        waiting: None,
    };
    let free = kit.fleet.task_queue(&mut tx, request).await.unwrap();
    tx.commit(None).await.unwrap();
    kit.clock.advance(GOOD_FOR);
    *kit.told.fails.lock().unwrap() = true;
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 1).await.map_err(drop), Ok(1));
    assert_eq!((kit.state(stuck).await, kit.state(free).await), ("queued".to_owned(), "expired".to_owned()));
}

#[tokio::test]
async fn an_end_belongs_to_the_request_that_asked_for_the_task() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let (told, forgotten) = (kit.given(node).await, kit.given(node).await);
    assert_eq!(kit.result_report(node, told, succeeded()).await, Ok(true));
    kit.clock.advance(GOOD_FOR);
    dispatch::expire_overdue(&kit.fleet, 10).await.unwrap();
    for (task, action) in [(told, "task.result"), (forgotten, "task.expire")] {
        let same = format!(
            "SELECT count(*)::text FROM audit_logs a JOIN node_tasks t ON t.correlation_id = a.correlation_id
             WHERE t.id = '{}' AND a.action = '{action}' AND a.target_id = '{task}'",
            task.uuid()
        );
        assert_eq!(kit.text(same).await, "1", "{action}");
    }
}
