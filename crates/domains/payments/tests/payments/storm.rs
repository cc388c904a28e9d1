//! Messages come many times, in any order, at once, while workers die wherever they happen to be.

use std::time::Duration;

use payments::service::processing::process_next;
use rand::{Rng as _, seq::SliceRandom as _};
use testkit::eventually_within;

use crate::kit::{Kit, completed, dispute, message};

const PAYMENTS: usize = 20;
const COPIES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_payment_is_credited_once_whatever_is_repeated_reordered_or_killed() {
    let kit = Kit::running().await;
    let mut deliveries = Vec::new();
    let mut total = 0;
    for at in 0..PAYMENTS {
        let amount = 1000 + i64::try_from(at).unwrap();
        total += amount;
        let topup = kit.open(amount).await;
        let intent = format!("pi_{at}");
        let mut about = vec![completed(&topup, &intent, "evt")];
        // Every fourth is disputed and won again, often before we know of it.
        if at % 4 == 0 {
            let told = |status| dispute(&format!("dp_{at}"), &intent, amount, status);
            about.push(message(&format!("evt_open_{at}"), "charge.dispute.created", told("needs_response")));
            about.push(message(&format!("evt_won_{at}"), "charge.dispute.closed", told("won")));
        }
        for body in about {
            deliveries.extend(std::iter::repeat_n(body, COPIES));
        }
    }
    let messages = i64::try_from(deliveries.len() / COPIES).unwrap();
    deliveries.shuffle(&mut rand::rng());

    let worker = || {
        let payments = kit.payments.clone();
        tokio::spawn(async move {
            loop {
                // A connection that was cut by another worker's death is reported once; go on.
                if !process_next(&payments).await.unwrap_or(true) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        })
    };
    let mut workers: Vec<_> = (0..3).map(|_| worker()).collect();
    let sending = futures_util::future::join_all(deliveries.chunks(10).map(async |chunk| {
        for body in chunk {
            kit.send(body).await.unwrap();
        }
    }));
    let killing = async {
        for _ in 0..60 {
            let (victim, after) = {
                let mut random = rand::rng();
                (random.random_range(0..workers.len()), Duration::from_millis(random.random_range(1..25)))
            };
            tokio::time::sleep(after).await;
            workers[victim].abort();
            workers[victim] = worker();
        }
    };
    tokio::join!(sending, killing);
    eventually_within(Duration::from_secs(60), "every message is processed", || async {
        let done: i64 = kit.one("SELECT count(*) FROM payment_messages WHERE state = 'processed'").await;
        (done == messages).then_some(())
    })
    .await;
    workers.iter().for_each(tokio::task::JoinHandle::abort);

    assert_eq!(kit.has().await, (total, 0));
    let credited: i64 = kit.one("SELECT count(*) FROM ledger_postings WHERE kind = 'topup'").await;
    let known: i64 = kit.one("SELECT count(DISTINCT intent) FROM payments").await;
    assert_eq!((credited, known), (20, 20));
    assert_eq!(kit.one::<i64>("SELECT sum(amount_minor)::bigint FROM ledger_lines").await, 0);
    let told: i64 =
        kit.one("SELECT count(*) FROM outbox_events WHERE event_type = 'payments.balance_credited'").await;
    assert_eq!(told, 20);
    assert_eq!(kit.states("disputes").await, ["won"; 5]);
}
