//! The pure decision.

use std::collections::{BTreeMap, BTreeSet};

use capacity::model::placement::{
    NodeView, Packing, Placed, Request, SlotView, Take, fitting_region, place, refuse, smallest_change,
};
use kernel::ids::SlotId;
use proptest::prelude::*;

use super::{
    fleets::{fleet, node_id, packing, request, slot_id},
    oracle,
};

fn slots_of<'a>(nodes: &'a [NodeView], placed: &Placed) -> (&'a NodeView, Vec<&'a SlotView>) {
    let node = nodes.iter().find(|node| node.id == placed.node).unwrap();
    (node, placed.slots.iter().map(|id| node.slots.iter().find(|slot| slot.id == *id).unwrap()).collect())
}

/// What holds of every placement, however good it is.
fn check_valid(nodes: &[NodeView], request: &Request, placed: &[Placed]) {
    assert_eq!(placed.len(), request.count as usize);
    let mut taken: BTreeSet<SlotId> = BTreeSet::new();
    for one in placed {
        let (node, slots) = slots_of(nodes, one);
        assert_eq!(one.region, placed[0].region, "members in different regions");
        assert_eq!(node.region, one.region);
        assert!(node.placeable && request.regions.contains(&one.region));
        assert!(oracle::eligible(nodes, request, &one.region).contains(&node));
        assert!(oracle::is_valid(&slots));
        assert_eq!(slots.len(), request.take.slots() as usize);
        assert!(slots.iter().all(|slot| taken.insert(slot.id)), "a slot twice");
        if let Take::Whole { slots } = request.take {
            assert!(node.whole && node.total == slots);
        }
    }
}

/// The NUMA node of a slot, the function of the fabric that it says it has, and where that is.
type Fabric = (Option<i32>, Option<u32>, Option<i32>);

/// A snapshot without slots, as a refusal is made from.
fn counts(nodes: &[NodeView]) -> Vec<NodeView> {
    nodes.iter().map(|node| NodeView { slots: Vec::new(), ..node.clone() }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_decision_is_the_one_that_brute_force_finds(
        fleet in fleet(), request in request(), packing in packing(), most in 0..12_u32,
    ) {
        let nodes = fleet.views();
        let decided = place(&nodes, &request, packing);
        prop_assert_eq!(decided.clone().ok(), oracle::place(&nodes, &request, packing));
        let region = decided.as_ref().ok().map(|placed| placed[0].region.as_str());
        prop_assert_eq!(region, fitting_region(&counts(&nodes), &request));
        match decided {
            Ok(placed) => check_valid(&nodes, &request, &placed),
            Err(refusal) => {
                prop_assert_eq!(refusal.reason, oracle::reason(&nodes, &request));
                prop_assert_eq!(&refusal.smallest_change, &oracle::smallest_change(&nodes, &request, u32::MAX));
                prop_assert_eq!(refusal.after_cleaning, oracle::after_cleaning(&nodes, &request));
                prop_assert_eq!(&refusal, &refuse(&counts(&nodes), &request));
                // With a limit that is no matter of capacity.
                let wanted = request.take.slots();
                let allowed = |size: Option<u32>, count: u32| size.unwrap_or(wanted) * count <= most;
                let within = smallest_change(&counts(&nodes), &request, &allowed);
                prop_assert_eq!(within, oracle::smallest_change(&nodes, &request, most));
                let told = serde_json::to_string(&refusal).unwrap();
                prop_assert!(!told.contains("node_0") && !told.contains("slot_0"), "{told}");
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_change_that_is_named_succeeds(fleet in fleet(), request in request(), packing in packing()) {
        use capacity::model::placement::Change;
        let nodes = fleet.views();
        let change = place(&nodes, &request, packing).err().and_then(|refusal| refusal.smallest_change);
        if let Some(change) = change {
            let mut changed = request;
            match change {
                Change::Region { region } => changed.regions = vec![region],
                Change::Count { count } => changed.count = count,
                Change::Gpus { gpus } => changed.take = Take::Slots { slots: gpus },
                Change::GpusAndRegion { gpus, region } => {
                    changed.take = Take::Slots { slots: gpus };
                    changed.regions = vec![region];
                }
            }
            prop_assert!(place(&nodes, &changed, packing).is_ok());
        }
    }

    #[test]
    fn the_order_of_a_snapshot_does_not_matter(fleet in fleet(), request in request(), packing in packing()) {
        let nodes = fleet.views();
        let mut turned = nodes.clone();
        turned.reverse();
        turned.iter_mut().for_each(|node| node.slots.reverse());
        prop_assert_eq!(place(&nodes, &request, packing), place(&turned, &request, packing));
    }

    #[test]
    fn one_numa_node_is_used_whenever_one_is_enough(fleet in fleet(), request in request(), packing in packing()) {
        let nodes = fleet.views();
        let (Take::Slots { slots }, 1) = (request.take, request.count) else { return Ok(()) };
        let Ok(placed) = place(&nodes, &request, packing) else { return Ok(()) };
        let fits_near = |node: &&NodeView| {
            let mut numa: BTreeMap<Option<i32>, u32> = BTreeMap::new();
            for slot in node.slots.iter().filter(|slot| oracle::is_valid(&[slot])) {
                *numa.entry(slot.numa).or_default() += 1;
            }
            node.placeable && numa.values().any(|free| *free >= slots)
        };
        let possible = oracle::eligible(&nodes, &request, &placed[0].region).iter().any(fits_near);
        let (_, taken) = slots_of(&nodes, &placed[0]);
        let used: BTreeSet<_> = taken.iter().map(|slot| slot.numa).collect();
        prop_assert_eq!(used.len() == 1, possible);
    }

    /// Whatever a node says about its fabric: shared functions, none, far ones, unknown ones.
    #[test]
    fn every_gpu_has_fabric_of_its_own_on_its_numa_node(
        slots in prop::collection::vec((prop::option::of(0..2_i32), prop::option::of(0..4_u32), prop::option::of(0..2_i32)), 1..=8),
        need in 1..=4_u32, count in 1..=2_u32, packing in packing(),
    ) {
        let view = |(index, (numa, vf, fabric_numa)): (usize, &Fabric)| SlotView {
            id: slot_id(0, index),
            index: u32::try_from(index).unwrap(),
            numa: *numa,
            fabric_vf: vf.map(|vf| vf.to_string()),
            fabric_numa: *fabric_numa,
            needs_fabric: true,
        };
        let slots: Vec<SlotView> = slots.iter().enumerate().map(view).collect();
        let total = u32::try_from(slots.len()).unwrap();
        let nodes = [NodeView {
            id: node_id(0), region: "east".to_owned(), pool: None, labels: BTreeMap::new(), placeable: true, total,
            cleaning: 0, blocked: 0, whole: true, free: total, slots,
        }];
        let request = wanted(need, count);
        if let Ok(placed) = place(&nodes, &request, packing) {
            let all: Vec<&SlotView> = placed.iter().flat_map(|one| slots_of(&nodes, one).1).collect();
            prop_assert!(oracle::is_valid(&all), "{all:?}");
        }
    }
}

fn wanted(slots: u32, count: u32) -> Request {
    Request {
        take: Take::Slots { slots },
        count,
        regions: vec!["east".to_owned()],
        pool: None,
        labels: BTreeMap::new(),
        sku: "wanted".to_owned(),
        other_sizes: vec![1, 2, 4, 8],
    }
}

fn node(at: usize, free: u32) -> NodeView {
    NodeView {
        id: node_id(at),
        region: "east".to_owned(),
        pool: None,
        labels: BTreeMap::new(),
        placeable: true,
        total: 8,
        cleaning: 0,
        blocked: 0,
        whole: free == 8,
        slots: (0..free)
            .map(|index| SlotView {
                id: slot_id(at, index as usize),
                index,
                numa: Some(i32::try_from(index / 4).unwrap()),
                fabric_vf: Some(format!("vf{index}")),
                fabric_numa: None,
                needs_fabric: true,
            })
            .collect(),
        free,
    }
}

#[test]
fn packing_keeps_big_requests_possible_and_spreading_does_not() {
    let nodes = [node(0, 8), node(1, 3)];
    assert_eq!(place(&nodes, &wanted(2, 1), Packing::Pack).unwrap()[0].node, node_id(1));
    assert_eq!(place(&nodes, &wanted(2, 1), Packing::Spread).unwrap()[0].node, node_id(0));
}

#[test]
fn a_refusal_says_what_is_missing_where() {
    let cleaning = [NodeView { cleaning: 4, ..node(0, 0) }];
    let blocked = [NodeView { blocked: 4, ..node(0, 0) }];
    let scattered = [node(0, 1), node(1, 1)];
    let anywhere = Request { regions: vec!["east".to_owned(), "west".to_owned()], ..wanted(2, 1) };
    let whole = Request { take: Take::Whole { slots: 2 }, ..wanted(2, 1) };
    for (nodes, request, words) in [
        (&cleaning[..], wanted(2, 1), ["Capacity for it in region east", "still being cleaned"]),
        (&cleaning, wanted(2, 2), ["Capacity for all of them in region east", "still being cleaned"]),
        (&cleaning, anywhere, ["Capacity for it in any region", "still being cleaned"]),
        (&blocked, wanted(2, 1), ["Capacity for it in region east", "not ready"]),
        (
            &scattered,
            wanted(2, 1),
            ["Enough capacity is available in region east in total", "no single machine"],
        ),
        (&scattered, whole, ["Enough capacity is available in region east in total", "no whole machine"]),
        (&[], wanted(2, 1), ["Not enough capacity", "in region east"]),
        (&[], wanted(0, 1), ["Not enough capacity", "in region east"]),
    ] {
        let message = refuse(nodes, &request).message;
        assert!(words.iter().all(|part| message.contains(part)), "{message}");
    }
}
