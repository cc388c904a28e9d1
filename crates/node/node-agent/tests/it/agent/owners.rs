//! Work about one owner is done one after the other, whatever kind it is.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kernel::ids::TaskId;
use node_agent::session::Streams;
use node_proto::{
    TaskKind,
    catalog::{DeprovisionUser, ProvisionUser, VmRelease, VmRestart},
    grant::Grant,
};
use node_tunnel::{Attached, Handler, Refusal};
use serde_json::{Value, json};

use super::node::{Doing, Node};

fn account() -> Value {
    json!({ "username": "u1", "uid": 20001, "gid": 20001 })
}

fn provision(owner: &str) -> Value {
    json!({ "account": account(), "owner": owner, "shell": "/bin/sh", "authorized_keys": [], "sudo": false })
}

async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

fn begun(node: &Node) -> Vec<TaskId> {
    node.doing.started.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_owner_never_overlap_and_keep_their_order() {
    let node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    let first = node.queue(&node.task_of(1, ProvisionUser::TYPE.name(), provision("a1")));
    let remove = json!({ "account": account(), "owner": "a1" });
    let second = node.queue(&node.task_of(2, DeprovisionUser::TYPE.name(), remove));
    let third = node.queue(&node.task_of(3, VmRelease::TYPE.name(), json!({ "owner": "a1", "slots": [] })));
    let other = node.queue(&node.task_of(4, VmRestart::TYPE.name(), json!({ "owner": "a2" })));
    settle().await;
    let mut together = begun(&node);
    together.sort_unstable();
    assert_eq!(together, [first, other], "another owner does not wait");
    for next in [second, third] {
        node.doing.end_held();
        settle().await;
        assert_eq!(begun(&node).last(), Some(&next));
    }
    node.doing.end_held();
    node.gateway.until("all results", |told| told.results.len() == 4).await;
    assert_eq!(begun(&node).len(), 4);
    running.stop().await;
}

/// Counts whose streams were ended.
#[derive(Default)]
struct Ended(Mutex<Vec<String>>);

#[async_trait]
impl Handler for Ended {
    async fn attach(&self, _: Grant) -> Result<Box<dyn Attached>, Refusal> {
        Err(Refusal("not_supported"))
    }
}

#[async_trait]
impl Streams for Ended {
    async fn end_owner(&self, owner: &str) {
        self.0.lock().unwrap().push(owner.to_owned());
    }
    async fn stop(&self) {}
}

#[tokio::test(start_paused = true)]
async fn what_was_opened_while_an_account_was_removed_ends_too() {
    let ended = Arc::new(Ended::default());
    let mut node = Node::joined(Doing::new(|_| None)).await;
    node.streams = ended.clone();
    let running = node.start();
    node.queue(&node.task_of(1, ProvisionUser::TYPE.name(), provision("a1")));
    settle().await;
    node.doing.end_held();
    let remove = json!({ "account": account(), "owner": "a1" });
    let removal = node.queue(&node.task_of(2, DeprovisionUser::TYPE.name(), remove));
    settle().await;
    assert_eq!(begun(&node).last(), Some(&removal));
    assert_eq!(*ended.0.lock().unwrap(), ["a1"], "before the work begins");
    node.doing.end_held();
    node.gateway.until("the result", |told| told.results.contains_key(&removal)).await;
    assert_eq!(*ended.0.lock().unwrap(), ["a1", "a1"], "and before it is reported that it is done");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_ran_out_of_time_keeps_its_turn_until_it_has_really_ended() {
    let node = Node::joined(Doing::new(|_| None)).await;
    let running = node.start();
    let hangs = node.queue(&node.task_of(1, ProvisionUser::TYPE.name(), provision("a1")));
    let remove = json!({ "account": account(), "owner": "a1" });
    let next = node.queue(&node.task_of(2, DeprovisionUser::TYPE.name(), remove));
    node.gateway.until("the time is up", |told| told.results.contains_key(&hangs)).await;
    settle().await;
    assert_eq!(begun(&node), [hangs]);
    node.doing.end_held();
    settle().await;
    assert_eq!(begun(&node), [hangs, next]);
    running.crash().await;
}
