//! Many requests at once for little.

use std::{collections::BTreeSet, sync::Arc};

use capacity::model::placement::{Packing, Request, Take};
use kernel::{Code, Failure, ids::SlotId};

use super::{
    fleets::{FleetPlan, NodePlan, SKU, SlotPlan, Use},
    kit::Kit,
};

/// Nodes with eight slots, of which the last ones are free.
fn fleet(free: &[usize]) -> FleetPlan {
    let slot = |index: usize, free: usize| SlotPlan {
        numa: Some(i32::from(index >= 4)),
        usage: if index < 8 - free { Use::Used } else { Use::Free },
    };
    let node = |free: usize| NodePlan {
        region: "east",
        pooled: false,
        labelled: false,
        placeable: true,
        eligible: true,
        other: None,
        slots: (0..8).map(|index| slot(index, free)).collect(),
    };
    FleetPlan { gpu: true, nodes: free.iter().map(|free| node(*free)).collect() }
}

fn request(take: Take, count: u32) -> Request {
    Request {
        take,
        count,
        regions: vec!["east".to_owned()],
        pool: None,
        labels: std::collections::BTreeMap::new(),
        sku: SKU.to_owned(),
        other_sizes: vec![1, 2, 4, 8],
    }
}

/// All at once. What was taken is taken once; whoever got nothing was told that the product is not to be had.
async fn race(kit: &Arc<Kit>, requests: Vec<Request>) -> (Vec<Vec<SlotId>>, usize) {
    let tasks: Vec<_> = requests
        .into_iter()
        .enumerate()
        .map(|(at, request)| {
            let kit = kit.clone();
            let packing = if at % 2 == 0 { Packing::Pack } else { Packing::Spread };
            tokio::spawn(async move { kit.take(&request, packing).await })
        })
        .collect();
    let (mut won, mut lost, mut seen) = (Vec::new(), 0, BTreeSet::new());
    for task in tasks {
        match task.await.unwrap() {
            Ok(slots) => {
                assert!(slots.iter().all(|slot| seen.insert(*slot)), "a slot was taken twice");
                won.push(slots);
            }
            Err(Failure::Problem(problem)) => {
                assert_eq!(problem.code, Code::SkuUnavailable, "{problem}");
                lost += 1;
            }
            Err(failure) => panic!("{failure:?}"),
        }
    }
    assert_eq!(kit.deadlocks().await, 0);
    (won, lost)
}

const RESERVED: &str = "SELECT count(*) FROM node_resource_slots WHERE state = 'reserved' AND version = 2";

#[tokio::test(flavor = "multi_thread")]
async fn of_100_requests_for_the_last_slot_one_wins_and_99_are_refused() {
    let kit = Arc::new(Kit::new().await);
    kit.load(&fleet(&[1, 0, 0])).await;
    let (won, lost) = race(&kit, vec![request(Take::Slots { slots: 1 }, 1); 100]).await;
    assert_eq!((won.len(), lost), (1, 99));
    assert_eq!(kit.number(RESERVED).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_refused_while_there_is_room_for_everybody() {
    let kit = Arc::new(Kit::new().await);
    kit.load(&fleet(&[8; 13])).await;
    let (won, lost) = race(&kit, vec![request(Take::Slots { slots: 1 }, 1); 104]).await;
    assert_eq!((won.len(), lost), (104, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_machines_are_given_out_once_each() {
    let kit = Arc::new(Kit::new().await);
    kit.load(&fleet(&[8, 8, 7, 8])).await;
    let (won, lost) = race(&kit, vec![request(Take::Whole { slots: 8 }, 1); 60]).await;
    assert_eq!((won.len(), lost), (3, 57));
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_single_requests_race_without_deadlock_and_groups_get_all_or_nothing() {
    let kit = Arc::new(Kit::new().await);
    kit.load(&fleet(&[8; 6])).await;
    let requests = (0..96).map(|at| match at % 4 {
        0 => request(Take::Slots { slots: 4 }, 3),
        1 => request(Take::Slots { slots: 2 }, 1),
        2 => request(Take::Whole { slots: 8 }, 2),
        _ => request(Take::Slots { slots: 1 }, 1),
    });
    let (won, lost) = race(&kit, requests.collect()).await;
    assert!(won.iter().all(|slots| matches!(slots.len(), 1 | 2 | 12 | 16)), "a part of a group");
    assert_eq!(won.len() + lost, 96);
    let taken: usize = won.iter().map(Vec::len).sum();
    assert_eq!(i64::try_from(taken), Ok(kit.number(RESERVED).await));
    // Those for two slots alone were enough for everything: at most one slot of each node is left over.
    assert!(taken >= 42, "{taken}");
}
