//! Nodes without room for tasks, which wait all the same.

use std::time::Duration;

use node_proto::{
    Task, TaskKind as _,
    catalog::ProvisionUser,
    contract::{Dial, TunnelClass},
};
use serde_json::json;

use super::{
    gateway::URL,
    node::{Doing, Node, Running},
};

/// Starts a node and queues so many tasks, none of which ends by itself.
async fn busy_node(tasks: u32) -> (Node, Running) {
    let node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    for n in 0..tasks {
        node.queue(&provision(&node, n));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    (node, running)
}

fn provision(node: &Node, n: u32) -> Task {
    let params = json!({ "account": { "username": format!("u{n}"), "uid": 20000 + n, "gid": 20000 + n },
        "owner": format!("a{n}"), "shell": "/bin/sh", "authorized_keys": [], "sudo": false });
    node.task_of(u128::from(n) + 1, ProvisionUser::TYPE.name(), params)
}

#[tokio::test(start_paused = true)]
async fn no_more_is_taken_than_the_node_has_room_for() {
    let (node, running) = busy_node(40).await;
    assert_eq!(node.doing.started.lock().unwrap().len(), ProvisionUser::TYPE.at_once());
    assert_eq!(node.journal.records().len(), 32);
    running.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_without_room_is_still_told_to_dial_a_gateway_and_goes_on_as_soon_as_it_has_room() {
    let (node, running) = busy_node(33).await;
    let (since, room) = {
        let mut told = node.gateway.reports_lock();
        told.dial = Some(Dial { url: URL.to_owned(), class: TunnelClass::Interactive });
        (tokio::time::Instant::now(), told.room)
    };
    assert_eq!(room, Some(0), "it waits, for no tasks");
    node.gateway.changed.notify_waiters();
    // The gateway of this test serves no tunnels.
    let dialled = |line: &String| line.contains(&format!("the gateway {URL} cannot be used"));
    node.gateway.until("the gateway is dialled", |told| told.log_lines.iter().any(dialled)).await;
    assert_eq!(node.journal.records().len(), 32);
    node.doing.end_held();
    node.gateway.until("the last task is taken", |told| told.queue.is_empty()).await;
    assert!(since.elapsed() < Duration::from_secs(30), "it does not wait for the end of its last wait");
    running.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_gives_a_task_to_a_node_without_room_is_asked_again_with_room_or_when_it_may_be_another()
 {
    let (node, running) = busy_node(32).await;
    // These are given to whoever waits.
    for n in 32..40 {
        let task = provision(&node, n);
        node.gateway.reports_lock().sticky.push((task.task_id, node.sign(&task)));
        node.gateway.changed.notify_waiters();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(node.journal.records().len(), 33);
    // Then it is replaced by a newer one, and the node connects anew: with its new key.
    let renewals = {
        let mut told = node.gateway.reports_lock();
        told.sticky.clear();
        told.renew_now = true;
        told.renewals
    };
    node.gateway.until("a new connection", |told| told.renewals > renewals && !told.renew_now).await;
    node.gateway.reports_lock().room = None;
    node.gateway.until("it waits again", |told| told.room == Some(0)).await;
    running.crash().await;
}
