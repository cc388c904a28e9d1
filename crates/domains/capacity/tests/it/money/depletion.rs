//! The balance is used up: everything that runs is released, once, by the way in which all are released.

use capacity::service::forced::release_overdue;
use kernel::ids::AllocationId;

use super::{
    bank::{self, Bank, RATE},
    kit::{MACHINE, SLICE},
};

async fn cause(bank: &Bank, id: AllocationId) -> String {
    bank.one(&format!("SELECT coalesce(release_cause, '') FROM allocations WHERE id = '{}'", id.uuid())).await
}

async fn runs(bank: &Bank, id: AllocationId, name: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM saga_runs WHERE subject = '{id}' AND name LIKE '{name}%'");
    bank.one(&sql).await
}

/// Everything is gone, and a little more.
async fn deplete(bank: &Bank) {
    let total = bank.balances().await.total();
    bank.gain(-total - 1).await;
    assert_eq!(bank.standing().await, "depleted");
}

#[tokio::test]
async fn depletion_releases_what_runs_and_cancels_what_is_being_launched_once() {
    let bank = Bank::with(10 * RATE).await;
    let (slice, machine) = (bank.active(SLICE).await, bank.active(MACHINE).await);
    let launching = bank.launch(SLICE).await;
    bank.later(90);
    deplete(&bank).await;
    bank.deliver().await;
    for id in [slice, machine] {
        assert_eq!((bank.state(id).await.as_str(), bank.meter(id).await.as_str()), ("releasing", "closed"));
        assert_eq!((cause(&bank, id).await.as_str(), runs(&bank, id, "release").await), ("depletion", 1));
        assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
        assert_eq!(bank.state(id).await, "released");
    }
    assert_eq!(bank.drive(&launching.to_string()).await, "undone");
    assert_eq!(
        (bank.state(launching).await.as_str(), bank.meter(launching).await.as_str()),
        ("released", "void")
    );
    assert_eq!(cause(&bank, launching).await, "depletion");
    // Hearing it again, or depleting again, releases nothing twice.
    bank.gain(5 * RATE).await;
    deplete(&bank).await;
    bank.deliver().await;
    assert_eq!(bank.events("provisioning.releasing.requested").await, 2);
    assert_eq!(bank.events("provisioning.force_release_requested").await, 3);
    let told = format!(
        "SELECT count(*) FROM allocation_events WHERE allocation_id = '{}' AND to_state = 'releasing'
             AND reason = 'the balance is used up' AND actor_kind = 'system'",
        slice.uuid()
    );
    assert_eq!(bank.one::<i64>(&told).await, 1, "the history says why");
    bank.accrue().await;
    assert_eq!(bank.meter(slice).await, "settled");
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn what_runs_on_because_the_event_was_not_handled_is_released_all_the_same() {
    let bank = Bank::with(10 * RATE).await;
    let (active, launching) = (bank.active(SLICE).await, bank.launch(SLICE).await);
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "there is money");
    deplete(&bank).await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "the event has its time");
    bank.later(61);
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 2);
    assert_eq!(
        (bank.state(active).await.as_str(), bank.meter(active).await.as_str()),
        ("releasing", "closed")
    );
    assert_eq!(
        (cause(&bank, active).await.as_str(), cause(&bank, launching).await.as_str()),
        ("depletion", "depletion")
    );
    let creators: i64 = bank
        .one(
            "SELECT count(*) FROM outbox_events WHERE event_type = 'provisioning.releasing.requested'
                 AND payload->>'creator_id' LIKE 'user_%'",
        )
        .await;
    assert_eq!(creators, 1, "whoever made it can be told");
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0);
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn a_top_up_before_anything_was_released_keeps_everything() {
    let bank = Bank::with(10 * RATE).await;
    let ids = [bank.active(SLICE).await, bank.active(SLICE).await];
    deplete(&bank).await;
    bank.gain(RATE).await;
    bank.deliver().await;
    for id in ids {
        assert_eq!((bank.state(id).await.as_str(), bank.meter(id).await.as_str()), ("active", "open"));
    }
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn another_organization_is_not_touched() {
    let bank = Bank::with(10 * RATE).await;
    let id = bank.active(SLICE).await;
    let other = bank.test.db.ambient().id();
    bank::gain(&bank.test.db, other, 5).await;
    bank::gain(&bank.test.db, other, -6).await;
    bank.deliver().await;
    assert_eq!((bank.state(id).await.as_str(), bank.meter(id).await.as_str()), ("active", "open"));
    bank::hold(&bank.test).await;
}
