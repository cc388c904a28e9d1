//! The worker that runs by itself: it hears of meters that closed, and looks when a balance ends.

use testkit::eventually;

use super::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_that_closes_is_settled_without_waiting_for_the_window() {
    let kit = Kit::new().await;
    let meter = kit.launch(3600, 1).await;
    let (wake, listening) = kit.test.db.listen();
    let worker = tokio::spawn(billing::jobs::run(kit.billing.clone(), wake));
    kit.pass(60);
    eventually("the worker began", || async { (kit.posted(meter).await == 60).then_some(()) }).await;
    kit.pass(7);
    kit.close(meter).await;
    eventually("the rest is posted", || async { (kit.meter_state(meter).await == "settled").then_some(()) })
        .await;
    assert_eq!(kit.posted(meter).await, 67);
    worker.abort();
    listening.abort();
    kit.holds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_that_ends_within_the_window_is_found_when_it_ends() {
    let kit = Kit::new().await;
    kit.fund(kit.org, 63 - 1_000_000).await;
    kit.launch(3600, 1).await;
    kit.pass(60);
    let (wake, listening) = kit.test.db.listen();
    let worker = tokio::spawn(billing::jobs::run(kit.billing.clone(), wake));
    eventually("the end is near", || async { (kit.state().await == "auto_release_pending").then_some(()) })
        .await;
    kit.pass(3);
    eventually("the end is found", || async { (kit.state().await == "depleted").then_some(()) }).await;
    assert_eq!((kit.total().await, kit.events_emitted("balance_depleted").await), (0, 1));
    worker.abort();
    listening.abort();
    kit.holds().await;
}
