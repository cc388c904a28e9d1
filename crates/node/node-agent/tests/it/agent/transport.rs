//! One connection, dialled again within bounds.

use std::time::Duration;

use super::node::{Doing, Node};

#[tokio::test(start_paused = true)]
async fn everything_goes_over_one_connection() {
    let node = Node::joined(Doing::fine()).await;
    let before = node.gateway.reports_lock().connections;
    let running = node.start();
    for n in 1..=10 {
        node.queue(&node.task(n));
    }
    node.gateway.until("all results", |told| told.results.len() == 10).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node.gateway.reports_lock().connections - before, 1);
    assert!(node.gateway.reports_lock().heartbeats.len() > 40);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cut_off_comes_back_by_itself_and_soon() {
    let node = Node::joined(Doing::fine()).await;
    node.gateway.reports_lock().down = true;
    let running = node.start();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    node.gateway.reports_lock().down = false;
    let asked = tokio::time::Instant::now();
    node.gateway.until("contact", |told| !told.heartbeats.is_empty()).await;
    assert!(asked.elapsed() < Duration::from_secs(90), "{:?}", asked.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_asks_about_twice_a_minute() {
    let node = Node::joined(Doing::fine()).await;
    let running = node.start();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let waits = node.gateway.reports_lock().waits;
    assert!((18..=22).contains(&waits), "{waits}");
    running.stop().await;
}
