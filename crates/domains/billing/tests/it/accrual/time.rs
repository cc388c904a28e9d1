//! Clocks that are wrong, windows that change, outages, months.

use super::kit::Kit;

#[tokio::test]
async fn what_is_posted_is_the_floor_of_the_exact_cost_and_the_rest_is_carried() {
    let kit = Kit::new().await;
    let meter = kit.launch(199, 1).await;
    let mut seconds = 0;
    for _ in 0..30 {
        kit.pass(60);
        seconds += 60;
        kit.tick().await;
        assert_eq!(kit.posted(meter).await, 199 * seconds / 3600);
    }
    kit.pass(7);
    kit.close(meter).await;
    kit.tick().await;
    // The last window is partial.
    assert_eq!(
        (kit.posted(meter).await, kit.meter_state(meter).await),
        (199 * 1807 / 3600, "settled".to_owned())
    );
    kit.holds().await;
}

#[tokio::test]
async fn an_outage_of_five_hours_is_caught_up_hour_by_hour() {
    let kit = Kit::new().await;
    let meter = kit.launch(1000, 7).await;
    kit.pass(5 * 3600 + 130);
    let ticked = kit.tick().await;
    assert_eq!((ticked.windows, ticked.lag_seconds), (6, 5 * 3600 + 120));
    assert_eq!(kit.posted(meter).await, 7000 * (5 * 3600 + 120) / 3600);
    kit.holds().await;
    assert_eq!(kit.tick().await.windows, 0);
}

#[tokio::test]
async fn a_clock_that_steps_an_hour_ahead_and_back_charges_nobody_twice() {
    let kit = Kit::new().await;
    let (stays, ends) = (kit.launch(3600, 1).await, kit.launch(3600, 1).await);
    kit.pass(120);
    kit.tick().await;
    kit.pass(3600);
    kit.tick().await;
    assert_eq!(kit.posted(stays).await, 3720);
    kit.pass(-3600);
    // What was charged ahead of time is waited for, not charged again.
    kit.pass(600);
    assert_eq!(kit.tick().await.windows, 0);
    kit.close(ends).await;
    assert_eq!(kit.tick().await.rewound, 1);
    assert_eq!((kit.posted(ends).await, kit.meter_state(ends).await), (720, "settled".to_owned()));
    kit.holds().await;
    kit.pass(3600);
    kit.tick().await;
    assert_eq!(kit.posted(stays).await, 720 + 3600);
    kit.holds().await;
}

#[tokio::test]
async fn a_clock_that_steps_back_before_the_beginning_takes_nothing_and_gives_nothing() {
    let kit = Kit::new().await;
    kit.pass(60);
    let meter = kit.launch(3600, 1).await;
    kit.pass(-3600);
    kit.tick().await;
    kit.close(meter).await;
    kit.tick().await;
    assert_eq!((kit.posted(meter).await, kit.meter_state(meter).await), (0, "settled".to_owned()));
    kit.holds().await;
}

#[tokio::test]
async fn windows_of_any_length_after_each_other_make_no_difference() {
    let kit = Kit::new().await;
    let meter = kit.launch(123_457, 3).await;
    let mut seconds = 0;
    for (window, pass) in [(60, 61), (10, 35), (3600, 4000), (7 * 13, 500), (60, 59), (10, 3), (900, 1000)] {
        kit.policy("billing.window_seconds", window).await;
        kit.pass(pass);
        seconds += pass;
        kit.tick().await;
        kit.holds().await;
    }
    kit.close(meter).await;
    kit.tick().await;
    assert_eq!(kit.posted(meter).await, 123_457 * 3 * seconds / 3600);
}

#[tokio::test]
async fn time_that_is_given_back_is_not_paid_for_and_may_run_again() {
    let kit = Kit::new().await;
    let meter = kit.launch(3600, 2).await;
    kit.pass(300);
    kit.tick().await;
    assert_eq!(kit.posted(meter).await, 600);
    kit.pause(meter, 200).await;
    assert_eq!(kit.posted(meter).await, 200);
    // It runs again from a second that was charged before and given back.
    kit.pass(-100);
    kit.resume(meter).await;
    kit.pass(160);
    kit.tick().await;
    kit.holds().await;
    kit.pause(meter, 0).await;
    kit.pass(1000);
    kit.tick().await;
    kit.close(meter).await;
    kit.tick().await;
    // 100 seconds before the pause, 160 after it.
    assert_eq!((kit.posted(meter).await, kit.meter_state(meter).await), (520, "settled".to_owned()));
    kit.holds().await;
}

#[tokio::test]
async fn months_are_made_as_they_are_needed() {
    let kit = Kit::at("2031-12-31T23:58:30Z").await;
    let meter = kit.launch(100, 1).await;
    for days in [31, 30, 0] {
        kit.pass(95);
        kit.tick().await;
        // It stands still in between: hours that nobody uses need no rounds.
        kit.pause(meter, 0).await;
        kit.pass(days * 86_400);
        kit.resume(meter).await;
    }
    kit.close(meter).await;
    kit.tick().await;
    assert_eq!(kit.posted(meter).await, 100 * 3 * 95 / 3600);
    kit.holds().await;
    let months = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'usage_records'::regclass";
    assert_eq!(kit.one::<i64>(months).await, 4);
}

#[tokio::test]
async fn what_was_set_aside_is_used_first_and_the_rest_given_back() {
    let kit = Kit::new().await;
    kit.policy("billing.launch_hold_seconds", 600).await;
    let meter = kit.launch(3600, 1).await;
    let held = || kit.one::<i64>("SELECT held_after FROM ledger_postings ORDER BY seq DESC LIMIT 1");
    assert_eq!(held().await, 600);
    kit.pass(120);
    kit.tick().await;
    assert_eq!((held().await, kit.total().await), (480, 999_880));
    kit.pass(30);
    kit.close(meter).await;
    kit.tick().await;
    assert_eq!((held().await, kit.total().await), (0, 999_850));
    kit.holds().await;
}
