//! Random small fleets and requests: at most four nodes, six slots each, two NUMA nodes, two regions.

use std::collections::BTreeMap;

use capacity::model::placement::{NodeView, Packing, Request, SlotView, Take};
use kernel::ids::{NodeId, PoolId, SlotId};
use proptest::prelude::*;
use uuid::Uuid;

pub const REGIONS: [&str; 2] = ["east", "west"];
pub const SKU: &str = "wanted";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Free,
    Used,
    Cleaning,
    Blocked,
    /// Free, but its fabric is on another NUMA node.
    FarFabric,
    NoFabric,
}

#[derive(Clone, Debug)]
pub struct SlotPlan {
    pub numa: Option<i32>,
    pub usage: Use,
}

#[derive(Clone, Debug)]
pub struct NodePlan {
    pub region: &'static str,
    pub pooled: bool,
    pub labelled: bool,
    pub placeable: bool,
    pub eligible: bool,
    /// A slot of another kind, in use or not.
    pub other: Option<bool>,
    pub slots: Vec<SlotPlan>,
}

#[derive(Clone, Debug)]
pub struct FleetPlan {
    pub gpu: bool,
    pub nodes: Vec<NodePlan>,
}

pub fn node_id(node: usize) -> NodeId {
    NodeId::from(Uuid::from_u128(0x10 + node as u128))
}

pub fn slot_id(node: usize, slot: usize) -> SlotId {
    SlotId::from(Uuid::from_u128(0x1000 + (node * 16 + slot) as u128))
}

pub fn pool() -> PoolId {
    PoolId::from(Uuid::from_u128(0xf))
}

pub fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("tier".to_owned(), "gold".to_owned())])
}

pub fn vf(slot: usize) -> String {
    format!("0000:{slot:02x}:00.1")
}

impl FleetPlan {
    /// What a slot comes to: fabric matters to GPUs only.
    pub fn usage(&self, slot: &SlotPlan) -> Use {
        match slot.usage {
            Use::FarFabric | Use::NoFabric if !self.gpu => Use::Free,
            Use::FarFabric if slot.numa.is_none() => Use::Free,
            usage => usage,
        }
    }

    /// The whole fleet as placement sees it.
    pub fn views(&self) -> Vec<NodeView> {
        let eligible =
            self.nodes.iter().enumerate().filter(|(_, node)| node.eligible && !node.slots.is_empty());
        eligible.map(|(at, node)| self.view(at, node)).collect()
    }

    fn view(&self, at: usize, node: &NodePlan) -> NodeView {
        let count = |wanted: &[Use]| {
            u32::try_from(node.slots.iter().filter(|slot| wanted.contains(&self.usage(slot))).count())
                .unwrap()
        };
        let (total, free) = (u32::try_from(node.slots.len()).unwrap(), count(&[Use::Free]));
        let offered = node
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| matches!(self.usage(slot), Use::Free | Use::FarFabric | Use::NoFabric));
        let slots = offered.map(|(index, slot)| SlotView {
            id: slot_id(at, index),
            index: u32::try_from(index).unwrap(),
            numa: slot.numa,
            fabric_vf: (self.usage(slot) != Use::NoFabric).then(|| vf(index)),
            fabric_numa: if slot.usage == Use::FarFabric {
                slot.numa.map(|numa| 1 - numa)
            } else {
                slot.numa
            },
            needs_fabric: self.gpu,
        });
        NodeView {
            id: node_id(at),
            region: node.region.to_owned(),
            pool: node.pooled.then(pool),
            labels: if node.labelled { labels() } else { BTreeMap::new() },
            placeable: node.placeable,
            total,
            cleaning: count(&[Use::Cleaning]),
            blocked: count(&[Use::Blocked, Use::FarFabric, Use::NoFabric]),
            whole: free == total && node.other != Some(true),
            slots: slots.collect(),
            free,
        }
    }
}

fn usage() -> impl Strategy<Value = Use> {
    prop_oneof![
        10 => Just(Use::Free), 5 => Just(Use::Used), 2 => Just(Use::Cleaning), 2 => Just(Use::Blocked),
        1 => Just(Use::FarFabric), 1 => Just(Use::NoFabric),
    ]
}

fn slots() -> impl Strategy<Value = Vec<SlotPlan>> {
    let numa = prop_oneof![4 => Just(Some(0)), 4 => Just(Some(1)), 1 => Just(None)];
    let mixed = prop::collection::vec((numa, usage()), 0..=6);
    let plan = |(numa, usage)| SlotPlan { numa, usage };
    // Whole machines would hardly ever come by chance.
    let even = (usage(), 1..=3_i32).prop_map(move |(usage, half)| {
        (0..2 * half).map(|at| SlotPlan { numa: Some(at % 2), usage }).collect::<Vec<_>>()
    });
    prop_oneof![3 => mixed.prop_map(move |slots| slots.into_iter().map(plan).collect()), 2 => even]
}

fn node() -> impl Strategy<Value = NodePlan> {
    let other = prop_oneof![6 => Just(None), 1 => Just(Some(false)), 1 => Just(Some(true))];
    let often = || prop::bool::weighted(0.85);
    (prop::sample::select(REGIONS.to_vec()), often(), often(), often(), often(), other, slots()).prop_map(
        |(region, pooled, labelled, placeable, eligible, other, slots)| NodePlan {
            region,
            pooled,
            labelled,
            placeable,
            eligible,
            other,
            slots,
        },
    )
}

pub fn fleet() -> impl Strategy<Value = FleetPlan> {
    (prop::bool::weighted(0.8), prop::collection::vec(node(), 0..=4))
        .prop_map(|(gpu, nodes)| FleetPlan { gpu, nodes })
}

pub fn request() -> impl Strategy<Value = Request> {
    let take = prop_oneof![
        1 => (1..=6_u32).prop_map(|slots| Take::Whole { slots }),
        3 => (1..=5_u32).prop_map(|slots| Take::Slots { slots }),
    ];
    let regions = prop_oneof![
        Just(vec!["east"]),
        Just(vec!["west"]),
        Just(vec!["east", "west"]),
        Just(vec!["west", "east"]),
    ];
    let count = prop_oneof![3 => Just(1_u32), 2 => 2..=3_u32];
    (take, count, regions, prop::bool::weighted(0.2), prop::bool::weighted(0.2)).prop_map(
        |(take, count, regions, pooled, labelled)| Request {
            take,
            count,
            regions: regions.into_iter().map(str::to_owned).collect(),
            pool: pooled.then(pool),
            labels: if labelled { labels() } else { BTreeMap::new() },
            sku: SKU.to_owned(),
            other_sizes: vec![1, 2, 4],
        },
    )
}

pub fn packing() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::Pack), Just(Packing::Spread)]
}
