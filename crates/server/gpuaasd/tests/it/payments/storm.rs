//! The process dies again and again while the provider tells of payments.

use std::time::Duration;

use testkit::eventually_within;

use super::Shop;

const PAYMENTS: i64 = 20;
/// How many messages were taken when the process dies.
const DEATHS: [i64; 9] = [3, 11, 26, 47, 71, 98, 140, 190, 240];

#[tokio::test]
async fn a_hundred_deliveries_of_twenty_payments_while_the_process_is_killed_credit_each_payment_once() {
    // Each message five times: a hundred that say "paid", and two hundred others.
    let mut shop = Shop::open(&["--duplicate", "4", "--reorder"]).await;
    let mut topups = Vec::new();
    for at in 0..PAYMENTS {
        topups.push(shop.topup(1000 + at).await);
    }
    let before = shop.pay.get("/sim/deliveries").await["delivered"].as_i64().unwrap();
    for topup in &topups {
        shop.pay.post(&format!("/sim/checkout/{}/pay", topup.session()), &[]).await;
    }
    let mut amid = 0;
    for death in DEATHS {
        let pay = &shop.pay;
        let waiting = eventually_within(Duration::from_secs(60), "messages are taken", || async {
            let told = pay.get("/sim/deliveries").await;
            let enough = told["delivered"].as_i64().unwrap() - before >= death;
            (enough || told["waiting"] == 0).then(|| told["waiting"].as_i64().unwrap())
        })
        .await;
        shop.world.server.kill();
        amid += usize::from(waiting > 0);
        shop.world.server.spawn();
        shop.world.server.ready().await;
    }
    assert!(amid > DEATHS.len() / 2, "only {amid} times it died while there was something to tell");
    eventually_within(Duration::from_secs(60), "every message is taken", || async {
        let told = shop.pay.get("/sim/deliveries").await;
        assert_eq!(told["given_up"], serde_json::json!([]));
        (told["waiting"] == 0).then_some(())
    })
    .await;
    shop.has((1000..1000 + PAYMENTS).sum(), 0).await;
    shop.all_processed().await;
    shop.books_are_right(PAYMENTS).await;
    // And each is the amount that was paid.
    let same = "SELECT count(*) FROM payments p JOIN topups t ON t.id = p.topup_id AND t.amount_minor = p.amount_minor
        AND t.state = 'paid'";
    assert_eq!(shop.world.count(same).await, PAYMENTS);
}
