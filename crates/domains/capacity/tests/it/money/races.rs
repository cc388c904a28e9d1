//! A top-up meets the release of everything, in many orders: whichever is first, what is left agrees.

use std::{sync::Arc, time::Duration};

use super::{
    bank::{self, Bank, RATE, deliver, gain},
    kit::SLICE,
};

const ROUNDS: u64 = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_top_up_that_races_with_depletion_leaves_each_allocation_either_running_or_released() {
    let bank = Bank::with(1_000 * RATE).await;
    let (mut kept, mut released) = (0_i64, 0_i64);
    for round in 0..ROUNDS {
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(bank.active(SLICE).await);
        }
        let total = bank.balances().await.total();
        bank.gain(-total).await;
        assert_eq!(bank.standing().await, "depleted");
        let (kit, db, org) = (bank.0.clone(), bank.test.db.clone(), bank.org);
        let releasing = tokio::spawn(async move { deliver(&kit).await });
        let paying = tokio::spawn(async move {
            // Earlier or later by the round, so that it meets every place of the other.
            tokio::time::sleep(Duration::from_millis(round * 3)).await;
            gain(&db, org, 1_000 * RATE).await
        });
        paying.await.unwrap();
        releasing.await.unwrap();
        for id in &ids {
            match (bank.state(*id).await.as_str(), bank.meter(*id).await.as_str()) {
                ("active", "open") => kept += 1,
                ("releasing", "closed") => {
                    released += 1;
                    assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
                }
                other => panic!("round {round}: {other:?}"),
            }
        }
        assert_ne!(bank.standing().await, "depleted");
        bank::hold(&bank.test).await;
        // A clean table for the next round.
        for id in ids {
            if bank.state(id).await == "active" {
                let mut tx = bank.as_creator().await;
                capacity::service::release::allocation_release(&bank.capacity, &mut tx, bank.asked(id))
                    .await
                    .unwrap();
                tx.commit(None).await.unwrap();
                assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
            }
        }
        bank.accrue().await;
    }
    println!("{kept} went on, {released} were released");
    assert_eq!(kept + released, i64::try_from(ROUNDS * 4).unwrap());
    let twice =
        "SELECT count(*) FROM (SELECT subject FROM saga_runs WHERE name LIKE 'release%' GROUP BY subject
                 HAVING count(*) > 1) x";
    assert_eq!(bank.one::<i64>(twice).await, 0, "each was released once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launches_that_race_with_the_end_of_the_balance_are_refused_or_released() {
    let bank = Arc::new(Bank::with(1_000 * RATE).await);
    for _ in 0..8 {
        bank.machine().await;
    }
    let launching: Vec<_> = (0..6)
        .map(|_| {
            let bank = bank.clone();
            tokio::spawn(async move {
                use capacity::service::launch::{Creator, Wanted, launch};
                let mut tx = bank.as_creator().await;
                let creator = Creator::user(bank.org, bank.project, bank.creator);
                let wanted = Wanted {
                    sku: SLICE.to_owned(),
                    gpus: None,
                    profile: None,
                    region: None,
                    name: None,
                    image: None,
                };
                match launch(&bank.capacity, &mut tx, creator, wanted).await {
                    Ok(launched) => tx.commit(None).await.map(|_| launched.made.id).ok(),
                    Err(_) => {
                        tx.roll_back().await;
                        None
                    }
                }
            })
        })
        .collect();
    bank.gain(-1_000 * RATE).await;
    let mut made = Vec::new();
    for one in launching {
        made.extend(one.await.unwrap());
    }
    bank.deliver().await;
    for id in made {
        assert_eq!(bank.drive(&id.to_string()).await, "undone");
        assert_eq!((bank.state(id).await.as_str(), bank.meter(id).await.as_str()), ("released", "void"));
    }
    bank::hold(&bank.test).await;
}
