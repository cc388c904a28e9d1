//! Handing out: each task to its node, once, and only what was signed.

use chrono::TimeDelta;
use fleet::service::dispatch::{self, Ask, MOST_DELIVERIES};
use kernel::ids::TaskId;
use node_proto::contract::Progress;
use pg::Roles;
use serde_json::{Value, json};
use uuid::Uuid;

use super::kit::{Kit, ids, succeeded};

#[tokio::test]
async fn many_who_claim_at_once_get_each_task_once() {
    let kit = Kit::new().await;
    let nodes = [kit.node().await, kit.node().await];
    let mut queued = Vec::new();
    for n in 0..40 {
        queued.push(kit.queue(nodes[n % 2]).await);
    }
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let fleet = kit.fleet.clone();
        workers.spawn(async move {
            let mut got = Vec::new();
            for _ in 0..20 {
                let asks = nodes.map(|node| Ask { node, room: 3, holding: Some(Vec::new()) });
                got.extend(ids(&dispatch::tasks_lease(&fleet, &asks).await.unwrap()));
            }
            got
        });
    }
    let mut got: Vec<TaskId> = workers.join_all().await.into_iter().flatten().collect();
    got.sort_unstable();
    assert_eq!(got, queued);
}

#[tokio::test]
async fn each_node_gets_its_own_in_order_and_no_more_than_it_has_room_for() {
    let kit = Kit::new().await;
    let (a, b, idle) = (kit.node().await, kit.node().await, kit.node().await);
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        of_b.push(kit.queue(b).await);
        of_a.push(kit.queue(a).await);
    }
    let ask = |node, room| Ask { node, room, holding: None };
    let claimed = dispatch::tasks_lease(&kit.fleet, &[ask(a, 2), ask(b, 16), ask(idle, 16)]).await.unwrap();
    let of = |node| ids(&claimed.iter().filter(|t| t.node_id == node).cloned().collect::<Vec<_>>());
    assert_eq!((of(a), of(b), of(idle)), (of_a[..2].to_vec(), of_b, Vec::new()));
    assert_eq!(kit.tasks_lease(a, None).await, of_a[2..]);
}

#[tokio::test]
async fn a_lapsed_lease_comes_back_only_when_the_node_says_it_does_not_hold_the_task() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    let task = kit.given(node).await;
    assert!(kit.tasks_lease(node, Some(Vec::new())).await.is_empty(), "the lease still runs");
    kit.clock.advance(TimeDelta::seconds(31));
    assert!(kit.tasks_lease(node, None).await.is_empty(), "a node that does not say may have it");
    assert!(kit.tasks_lease(node, Some(vec![task])).await.is_empty(), "the node has it");
    assert!(kit.tasks_lease(other, Some(Vec::new())).await.is_empty(), "it is another node's");
    // What another node claims to hold says nothing about this one.
    let asks = [
        Ask { node: other, room: 16, holding: Some(vec![task]) },
        Ask { node, room: 16, holding: Some(Vec::new()) },
    ];
    let again = dispatch::tasks_lease(&kit.fleet, &asks).await.unwrap();
    assert_eq!((ids(&again), again[0].deliveries), (vec![task], 2));
    // Once started it is the node's, however long it takes.
    dispatch::progress(&kit.fleet, node, task, Progress { phases: Vec::new() }).await.unwrap();
    kit.clock.advance(TimeDelta::seconds(31));
    assert!(kit.tasks_lease(node, Some(Vec::new())).await.is_empty());
    assert_eq!(kit.state(task).await, "running");
}

#[tokio::test]
async fn what_could_not_be_sent_is_there_for_the_next_who_asks() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.queue(node).await;
    let asks = [Ask { node, room: 1, holding: Some(Vec::new()) }];
    let first = dispatch::tasks_lease(&kit.fleet, &asks).await.unwrap();
    dispatch::put_back(&kit.fleet, &first).await.unwrap();
    let again = dispatch::tasks_lease(&kit.fleet, &asks).await.unwrap();
    assert_eq!((ids(&again), again[0].deliveries), (vec![task], 1));
    assert_eq!(kit.result_report(node, task, succeeded()).await, Ok(true));
    dispatch::put_back(&kit.fleet, &again).await.unwrap();
    assert_eq!(kit.state(task).await, "succeeded");
}

#[tokio::test]
async fn what_somebody_else_handed_out_since_is_not_put_back() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.queue(node).await;
    let asks = [Ask { node, room: 1, holding: Some(Vec::new()) }];
    let slow = dispatch::tasks_lease(&kit.fleet, &asks).await.unwrap();
    kit.clock.advance(TimeDelta::seconds(31));
    assert_eq!(ids(&dispatch::tasks_lease(&kit.fleet, &asks).await.unwrap()), [task]);
    dispatch::put_back(&kit.fleet, &slow).await.unwrap();
    assert_eq!(kit.state(task).await, "dispatched", "the other one has sent it");
    assert_eq!(kit.result_report(node, task, succeeded()).await, Ok(true));
}

#[tokio::test]
async fn a_task_is_handed_out_so_often_and_no_more() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.queue(node).await;
    for _ in 0..MOST_DELIVERIES {
        assert_eq!(kit.tasks_lease(node, Some(Vec::new())).await, [task]);
        kit.clock.advance(TimeDelta::seconds(31));
    }
    assert!(kit.tasks_lease(node, Some(Vec::new())).await.is_empty());
    assert!(dispatch::ready(&kit.fleet, &[node]).await.unwrap().is_empty());
}

#[tokio::test]
async fn ready_work_is_found_without_being_told() {
    let kit = Kit::new().await;
    let (node, idle) = (kit.node().await, kit.node().await);
    let task = kit.queue(node).await;
    let ready = dispatch::ready(&kit.fleet, &[node, idle]).await.unwrap();
    assert_eq!(ready, [dispatch::Ready { node, lapsed: None }]);
    kit.tasks_lease(node, None).await;
    assert!(dispatch::ready(&kit.fleet, &[node, idle]).await.unwrap().is_empty());
    kit.clock.advance(TimeDelta::seconds(31));
    let ready = dispatch::ready(&kit.fleet, &[node, idle]).await.unwrap();
    assert_eq!(ready, [dispatch::Ready { node, lapsed: Some(task) }]);
}

#[tokio::test]
async fn rows_that_no_signer_signed_are_never_sent() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    let good = kit.queue(node).await;
    // Whoever can write rows tries what they can think of.
    let columns = "node_id, task_type, payload, signature, signer_version, correlation_id, issued_at, expires_at, \
                   waiting_kind, waiting_key, created_at, updated_at";
    let forged = |id: u128, select: &str| {
        format!(
            "INSERT INTO node_tasks (id, {columns}) SELECT '{}', {select} FROM node_tasks WHERE id = '{}'",
            Uuid::from_u128(id),
            good.uuid()
        )
    };
    let node_id = other.uuid();
    let attempts = [
        columns.to_owned(),
        columns.replace("node_id", &format!("'{node_id}'")),
        columns.replace(
            "payload",
            r"convert_to(replace(convert_from(payload, 'UTF8'), 'diag.collect', 'node.reboot'), 'UTF8')",
        ),
        columns.replace("task_type", "'node.reboot'"),
        columns.replace("expires_at", "expires_at + interval '1 year'"),
        columns.replace("signer_version", "99"),
        columns.replace("signature", "set_byte(signature, 0, get_byte(signature, 0) # 1)"),
    ];
    for (n, select) in attempts.iter().enumerate() {
        kit.test.sql(&forged(n as u128 + 1, select)).await;
    }
    let asks = [node, other].map(|node| Ask { node, room: 16, holding: None });
    let claimed = dispatch::tasks_lease(&kit.fleet, &asks).await.unwrap();
    assert_eq!(claimed.len(), attempts.len() + 1);
    let (mine, others): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|task| task.node_id == node);
    let sent = dispatch::checked(&kit.fleet, node, mine).await.unwrap();
    let keyset = kit.fleet.trust().keyset().await.unwrap().0;
    let sent: Vec<TaskId> = sent.iter().map(|task| task.open(&keyset).unwrap().task_id).collect();
    assert_eq!(sent, [good]);
    assert!(dispatch::checked(&kit.fleet, other, others).await.unwrap().is_empty());
    let rejected = attempts.len().to_string();
    assert_eq!(kit.audited("task.dispatch", "refused").await, rejected);
    assert_eq!(
        kit.text("SELECT count(*)::text FROM node_tasks WHERE state = 'failed'".to_owned()).await,
        rejected
    );
    assert_eq!(kit.endings(), vec!["Rejected"; attempts.len()]);
    assert_eq!(kit.state(good).await, "dispatched");
}

#[tokio::test]
async fn what_was_signed_cannot_be_changed_in_its_row() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.queue(node).await;
    let mut system = kit.test.conn(Roles::System).await;
    for column in
        ["payload = payload", "signature = signature", "expires_at = expires_at", "node_id = node_id"]
    {
        let sql = format!("BEGIN READ WRITE; UPDATE node_tasks SET {column} WHERE id = '{}'", task.uuid());
        let refused =
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut system).await.unwrap_err().to_string();
        assert!(refused.contains("signed work cannot be changed"), "{refused}");
        sqlx::raw_sql("ROLLBACK").execute(&mut system).await.unwrap();
    }
    let unchanged: Value = json!({ "state": kit.state(task).await });
    assert_eq!(unchanged, json!({ "state": "queued" }));
}
