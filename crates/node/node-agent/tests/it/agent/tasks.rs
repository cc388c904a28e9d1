//! Tasks from their handing over to the end of their telling.

use std::time::Duration;

use chrono::TimeDelta;
use node_agent::drivers::{DriverError, Steps as _};
use node_proto::{
    Task, TaskError, TaskKind,
    catalog::{Reboot, SelfUpdate},
    contract::{Ending, FailureCode, TaskResult},
};
use serde_json::json;

use super::{
    authority::{ed25519, sign_with},
    node::{Doing, Node},
};

fn code(result: &TaskResult) -> Option<FailureCode> {
    match &result.ending {
        Ending::Failed { failure } => Some(failure.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_begun_reported_done_and_told() {
    let node = Node::joined(Doing::new(|job| {
        job.steps.begin("mark").unwrap();
        Some(Ok(json!({ "drained": true })))
    }))
    .await;
    let running = node.start();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let task = Task { traceparent: Some(trace.to_owned()), ..node.task(1) };
    let id = node.queue(&task);
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    let told = node.gateway.reports_lock().results[&id].clone();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].ending, Ending::Succeeded { output: json!({ "drained": true }) });
    assert_eq!(told[0].phases[0].name, "mark");
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
    let kinds = format!("{:?}", node.journal.records());
    assert!(kinds.contains("Told"), "{kinds}");
    // Whoever asked for it finds it in the node's log.
    let said = node.gateway.reports_lock().log_lines.join("\n");
    assert!(said.contains(&task.correlation_id.to_string()) && said.contains(trace), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_result_is_told_until_it_is_answered_and_always_the_same() {
    let node = Node::joined(Doing::fine()).await;
    node.gateway.reports_lock().busy_results = 3;
    node.gateway.reports_lock().lose_result_answers = 2;
    let running = node.start();
    let id = node.queue(&node.task(1));
    node.gateway.until("three tellings", |told| told.results.get(&id).is_some_and(|r| r.len() == 3)).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let told = node.gateway.reports_lock().results[&id].clone();
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|result| *result == told[0]));
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_comes_again_is_answered_from_the_journal() {
    let node = Node::joined(Doing::fine()).await;
    let running = node.start();
    let task = node.task(1);
    let id = node.queue(&task);
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.crash().await;
    // Even when it has expired meanwhile.
    tokio::time::sleep(Duration::from_secs(3600 * 3)).await;
    let running = node.start();
    node.queue(&task);
    node.gateway.until("the same again", |told| told.results[&id].len() == 2).await;
    let told = node.gateway.reports_lock().results[&id].clone();
    assert_eq!(told[0], told[1]);
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_signed_for_this_node_and_now_is_refused_without_effect() {
    let node = Node::joined(Doing::fine()).await;
    let running = node.start();
    let base = node.task(1);
    let wrong = |number: u128, change: &dyn Fn(&mut node_proto::Task)| {
        let mut task = node_proto::Task { task_id: uuid::Uuid::from_u128(number).into(), ..base.clone() };
        change(&mut task);
        (task.task_id, node.sign(&task))
    };
    let mut expected = Vec::new();
    let forged = node_proto::Task { task_id: uuid::Uuid::from_u128(10).into(), ..base.clone() };
    expected.push(((forged.task_id, sign_with(&ed25519(), &forged)), TaskError::BadSignature));
    expected.push((wrong(11, &|t| t.node_id = uuid::Uuid::from_u128(8).into()), TaskError::WrongNode));
    expected.push((wrong(12, &|t| t.expires_at -= TimeDelta::hours(2)), TaskError::Expired));
    expected.push((wrong(13, &|t| t.issued_at += TimeDelta::hours(2)), TaskError::NotYetValid));
    expected.push((wrong(14, &|t| t.issued_at -= TimeDelta::hours(2)), TaskError::NotYetValid));
    expected.push((wrong(15, &|t| t.task_type = "shell.run".to_owned()), TaskError::UnknownType));
    expected.push((
        wrong(16, &|t| t.params = json!({ "reason": "x", "command": "id" })),
        TaskError::BadParameters,
    ));
    for ((id, signed), reason) in expected {
        node.gateway.queue(signed);
        node.gateway.until("the refusal", |told| told.results.contains_key(&id)).await;
        assert_eq!(
            node.gateway.reports_lock().results[&id][0].ending,
            Ending::Refused { reason },
            "{reason}"
        );
        assert_eq!(node.doing.count(id), 0);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_refused_for_its_time_stays_refused() {
    let node = Node::joined(Doing::fine()).await;
    let running = node.start();
    let mut task = node.task(1);
    task.issued_at += TimeDelta::minutes(30);
    let id = node.queue(&task);
    node.gateway.until("the refusal", |told| told.results.contains_key(&id)).await;
    tokio::time::sleep(Duration::from_secs(35 * 60)).await;
    node.queue(&task);
    node.gateway.until("the refusal again", |told| told.results[&id].len() == 2).await;
    assert_eq!(node.doing.count(id), 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_signer_is_learned_when_its_first_task_comes() {
    let node = Node::joined(Doing::fine()).await;
    let running = node.start();
    node.gateway.until("contact", |told| told.heartbeats.len() > 1).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.gateway.authority.lock().unwrap().signers.push((2, ed25519()));
    node.gateway.reports_lock().keyset_serial = 2;
    let mut task = node.task(1);
    task.signer_version = 2;
    let id = node.queue(&task);
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    assert!(matches!(node.gateway.reports_lock().results[&id][0].ending, Ending::Succeeded { .. }));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_out_of_time_is_reported_and_keeps_its_place() {
    let node = Node::joined(Doing::new(|job| {
        (job.task.task_id != uuid::Uuid::from_u128(1).into()).then(|| Ok(json!({ "drained": true })))
    }))
    .await;
    let running = node.start();
    let first = node.queue(&node.task(1));
    node.gateway.until("the timeout", |told| told.results.contains_key(&first)).await;
    assert_eq!(code(&node.gateway.reports_lock().results[&first][0]), Some(FailureCode::Timeout));
    // One drain at a time: the next one must wait for the one that hangs.
    let second = node.queue(&node.task(2));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(node.doing.count(second), 0);
    node.doing.end_held();
    node.gateway.until("the second", |told| told.results.contains_key(&second)).await;
    assert_eq!(node.gateway.reports_lock().results[&first].len(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_finds_no_place_before_it_expires_is_refused() {
    let node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    let first = node.queue(&node.task(1));
    let second = node.queue(&node.task(2));
    node.gateway.until("both", |told| told.results.len() == 2).await;
    assert_eq!(code(&node.gateway.reports_lock().results[&first][0]), Some(FailureCode::Timeout));
    assert_eq!(
        node.gateway.reports_lock().results[&second][0].ending,
        Ending::Refused { reason: TaskError::Expired }
    );
    assert_eq!(node.doing.count(second), 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_stops_at_its_next_phase() {
    let node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    let task = node.task_of(1, Reboot::TYPE.name(), json!({ "reason": "test" }));
    node.gateway.reports_lock().cancelled.insert(task.task_id);
    let id = node.queue(&task);
    node.gateway.until("progress", |told| told.progress.contains_key(&id)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // What a driver does when it comes to its next phase.
    node.doing.end_held_as(|job| Err(job.steps.begin("boot").unwrap_err()));
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    assert_eq!(code(&node.gateway.reports_lock().results[&id][0]), Some(FailureCode::Cancelled));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_means_that_nothing_is_begun_and_that_it_can_be_tried_later() {
    let node = Node::joined(Doing::fine()).await;
    node.journal.set_full_disk(true);
    let running = node.start();
    let task = node.task(1);
    let id = node.queue(&task);
    node.gateway.until("the failure", |told| told.results.contains_key(&id)).await;
    assert_eq!(code(&node.gateway.reports_lock().results[&id][0]), Some(FailureCode::Journal));
    assert_eq!(node.doing.count(id), 0);
    node.journal.set_full_disk(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.queue(&task);
    node.gateway.until("the success", |told| told.results[&id].len() == 2).await;
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_full_disk_stays_in_contact_and_tells_of_interrupted_work_later() {
    let node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    let id = node.queue(&node.task(1));
    node.gateway.until("the start", |told| told.progress.contains_key(&id)).await;
    running.crash().await;
    node.journal.set_full_disk(true);
    let beats = node.gateway.reports_lock().heartbeats.len();
    let running = node.start();
    node.gateway.until("contact", |told| told.heartbeats.len() > beats + 3).await;
    assert!(node.gateway.reports_lock().results.is_empty());
    node.journal.set_full_disk(false);
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    assert_eq!(code(&node.gateway.reports_lock().results[&id][0]), Some(FailureCode::Interrupted));
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_nobody_wants_is_given_up() {
    let node = Node::joined(Doing::fine()).await;
    node.gateway.reports_lock().refuse_results = true;
    let running = node.start();
    let id = node.queue(&node.task(1));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
    assert!(format!("{:?}", node.journal.records()).contains("Told"));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_handler_and_its_breakdown_are_told() {
    let node = Node::joined(Doing::new(|job| match job.task.task_id == uuid::Uuid::from_u128(1).into() {
        true => Some(Err(DriverError::invalid("no"))),
        false => Some(Ok(json!("x".repeat(2_000_000)))),
    }))
    .await;
    let running = node.start();
    let (first, second) = (node.queue(&node.task(1)), node.queue(&node.task(2)));
    node.gateway.until("both", |told| told.results.len() == 2).await;
    assert_eq!(code(&node.gateway.reports_lock().results[&first][0]), Some(FailureCode::Invalid));
    assert_eq!(code(&node.gateway.reports_lock().results[&second][0]), Some(FailureCode::Driver));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reboot_succeeds_when_the_machine_has_booted_anew() {
    for (boot_id, succeeds) in [("boot-2", true), ("boot-1", false)] {
        let mut node = Node::joined(Doing::new(|_| None)).await;
        let running = node.start();
        let id = node.queue(&node.task_of(1, Reboot::TYPE.name(), json!({ "reason": "test" })));
        node.gateway.until("the start", |told| told.progress.contains_key(&id)).await;
        running.crash().await;
        node.facts.boot_id = boot_id.to_owned();
        let running = node.start();
        node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
        let told = node.gateway.reports_lock().results[&id].clone();
        if succeeds {
            let output = json!({ "boot_id_before": "boot-1", "boot_id_after": "boot-2" });
            assert_eq!(told[0].ending, Ending::Succeeded { output });
        } else {
            assert_eq!(code(&told[0]), Some(FailureCode::Interrupted));
        }
        assert_eq!(node.doing.count(id), 1);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_succeeds_only_once_the_new_program_was_heard() {
    let mut node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    let params = json!({ "version": "2.0.0", "sha256": "00", "size_bytes": 1 });
    let id = node.queue(&node.task_of(1, SelfUpdate::TYPE.name(), params));
    node.gateway.until("the start", |told| told.progress.contains_key(&id)).await;
    running.crash().await;
    node.facts.agent_version = "2.0.0".to_owned();
    node.gateway.reports_lock().refuse_all = true;
    let running = node.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.gateway.reports_lock().results.is_empty());
    node.gateway.reports_lock().refuse_all = false;
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    let output = json!({ "from_version": "1.0.0", "to_version": "2.0.0", "rolled_back": false });
    assert_eq!(node.gateway.reports_lock().results[&id][0].ending, Ending::Succeeded { output });
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_running_work_end_and_begins_nothing_new() {
    let node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    let first = node.queue(&node.task(1));
    node.gateway.until("the start", |told| told.progress.contains_key(&first)).await;
    let second = node.queue(&node.task(2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.cancel.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.doing.end_held();
    running.stop().await;
    assert!(node.gateway.reports_lock().results.contains_key(&first));
    assert_eq!(node.doing.count(second), 0);
    // It is handed out again after the restart, and done.
    node.gateway.reports_lock().sticky.push((second, node.sign(&node.task(2))));
    let running = node.start();
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.doing.end_held();
    node.gateway.until("the second", |told| told.results.contains_key(&second)).await;
    assert_eq!(node.doing.count(second), 1);
    running.stop().await;
}
