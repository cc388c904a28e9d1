//! The rules again, slowly: every set of slots of every node is looked at, every way to spread members is tried.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use capacity::model::placement::{Change, NodeView, Packing, Placed, RefusalReason, Request, SlotView, Take};
use kernel::ids::SlotId;

pub fn eligible<'a>(nodes: &'a [NodeView], request: &Request, region: &str) -> Vec<&'a NodeView> {
    let mut found = Vec::new();
    for node in nodes {
        let labels = request.labels.iter().all(|label| node.labels.iter().any(|other| other == label));
        let pool = request.pool.is_none() || request.pool == node.pool;
        if node.region == region && labels && pool {
            found.push(node);
        }
    }
    found
}

/// A set of slots that may be sold together.
pub fn is_valid(set: &[&SlotView]) -> bool {
    let mut functions = BTreeSet::new();
    set.iter().filter(|slot| slot.needs_fabric).all(|slot| {
        let far = slot.numa.is_some() && slot.fabric_numa.is_some() && slot.numa != slot.fabric_numa;
        slot.fabric_vf.as_ref().is_some_and(|vf| functions.insert(vf)) && !far
    })
}

fn valid_sets<'a>(node: &'a NodeView, taken: &BTreeSet<SlotId>) -> Vec<Vec<&'a SlotView>> {
    let masks = 1_u32..1 << node.slots.len();
    let set = |mask: u32| -> Vec<&SlotView> {
        let chosen = node.slots.iter().enumerate().filter(|(at, _)| mask & (1 << at) != 0);
        chosen.map(|(_, slot)| slot).collect()
    };
    masks.map(set).filter(|set| is_valid(set) && set.iter().all(|slot| !taken.contains(&slot.id))).collect()
}

fn numa_nodes(set: &[&SlotView]) -> BTreeSet<Option<i32>> {
    set.iter().map(|slot| slot.numa).collect()
}

fn place_one(nodes: &[&NodeView], take: Take, packing: Packing, taken: &BTreeSet<SlotId>) -> Option<Placed> {
    let mut best = None;
    for node in nodes.iter().filter(|node| node.placeable) {
        let sets = valid_sets(node, taken);
        let untouched = node.slots.iter().all(|slot| !taken.contains(&slot.id));
        for set in &sets {
            let fits = match take {
                Take::Whole { slots } => {
                    node.whole && untouched && node.total == slots && set.len() == slots as usize
                }
                Take::Slots { slots } => set.len() == slots as usize,
            };
            if !fits {
                continue;
            }
            let score = match take {
                Take::Whole { .. } => (false, 0, 0, node.id, within(set, &sets)),
                Take::Slots { .. } => {
                    let free = i64::try_from(sets.iter().map(Vec::len).max().unwrap()).unwrap();
                    let near =
                        sets.iter().filter(|set| numa_nodes(set).len() == 1).map(Vec::len).max().unwrap();
                    let free = if packing == Packing::Pack { free } else { -free };
                    (near < set.len(), free, near, node.id, within(set, &sets))
                }
            };
            if best.as_ref().is_none_or(|(other, _, _)| score < *other) {
                best = Some((score, node, set.clone()));
            }
        }
    }
    let (_, node, mut set) = best?;
    set.sort_by_key(|slot| slot.index);
    Some(Placed {
        node: node.id,
        region: node.region.clone(),
        slots: set.iter().map(|slot| slot.id).collect(),
    })
}

/// How good a set is on its node: few NUMA nodes; the smallest one that fits, or else as much as possible from the
/// biggest ones; low places.
fn within(set: &[&SlotView], sets: &[Vec<&SlotView>]) -> (usize, Vec<i64>, Vec<u32>) {
    let mut free: BTreeMap<Option<i32>, usize> = BTreeMap::new();
    for other in sets {
        if let [numa] = numa_nodes(other).into_iter().collect::<Vec<_>>()[..] {
            let most = free.entry(numa).or_default();
            *most = other.len().max(*most);
        }
    }
    let spanned = numa_nodes(set);
    let mut order: Vec<Option<i32>> = free.keys().copied().collect();
    order.sort_by_key(|numa| (Reverse(free[numa]), *numa));
    let number = |n: usize| i64::try_from(n).unwrap();
    let preference = match spanned.first() {
        Some(numa) if spanned.len() == 1 => vec![number(free[numa]), numa.map_or(-1, i64::from)],
        _ => order.iter().map(|numa| -number(set.iter().filter(|slot| slot.numa == *numa).count())).collect(),
    };
    let mut places: Vec<u32> = set.iter().map(|slot| slot.index).collect();
    places.sort_unstable();
    (spanned.len(), preference, places)
}

pub fn place(nodes: &[NodeView], request: &Request, packing: Packing) -> Option<Vec<Placed>> {
    for region in &request.regions {
        let here = eligible(nodes, request, region);
        let mut taken = BTreeSet::new();
        let mut placed = Vec::new();
        while placed.len() < request.count as usize {
            let Some(one) = place_one(&here, request.take, packing, &taken) else { break };
            taken.extend(one.slots.iter().copied());
            placed.push(one);
        }
        if placed.len() == request.count as usize {
            return Some(placed);
        }
    }
    None
}

/// Whether so many members go onto nodes with so much room, trying every way.
fn spreads(room: &mut [u32], need: u32, count: u32) -> bool {
    count == 0
        || (0..room.len()).any(|at| {
            if room[at] < need {
                return false;
            }
            room[at] -= need;
            let rest = spreads(room, need, count - 1);
            room[at] += need;
            rest
        })
}

/// What of a node counts as free in a world that is as it is, clean, or ready.
#[derive(Clone, Copy, PartialEq)]
enum World {
    Now,
    Clean,
    Ready,
}

fn possible(
    nodes: &[NodeView],
    request: &Request,
    region: &str,
    take: Take,
    count: u32,
    world: World,
) -> bool {
    let mut room = Vec::new();
    for node in eligible(nodes, request, region) {
        let sold = valid_sets(node, &BTreeSet::new()).iter().map(Vec::len).max().unwrap_or(0);
        let sold = u32::try_from(sold).unwrap();
        let free = match world {
            World::Now if node.placeable => sold,
            World::Clean if node.placeable => sold + node.cleaning,
            World::Ready => sold + node.cleaning + node.blocked,
            _ => 0,
        };
        room.push(match take {
            Take::Slots { .. } => free,
            Take::Whole { slots } => {
                let blocked_by_others = world == World::Now && !node.whole;
                if free == node.total && node.total == slots && !blocked_by_others { slots } else { 0 }
            }
        });
    }
    spreads(&mut room, take.slots(), count)
}

pub fn after_cleaning(nodes: &[NodeView], request: &Request) -> bool {
    request.regions.iter().any(|r| possible(nodes, request, r, request.take, request.count, World::Clean))
}

pub fn reason(nodes: &[NodeView], request: &Request) -> RefusalReason {
    let ready = |r: &String| possible(nodes, request, r, request.take, request.count, World::Ready);
    let total = |r: &String| -> u32 {
        eligible(nodes, request, r).iter().filter(|node| node.placeable).map(|node| node.free).sum()
    };
    if request.regions.iter().any(ready) {
        RefusalReason::ReadinessBlocks
    } else if request.regions.iter().any(|r| total(r) >= request.take.slots() * request.count) {
        RefusalReason::NoSingleNodeFits
    } else {
        RefusalReason::NoCapacityInRegion
    }
}

/// Every change there is, from the smallest on; the first that would succeed, with so many slots in all at most.
pub fn smallest_change(nodes: &[NodeView], request: &Request, most: u32) -> Option<Change> {
    let now = |r: &str, take, count| possible(nodes, request, r, take, count, World::Now);
    let all: BTreeSet<&str> = nodes.iter().map(|node| node.region.as_str()).collect();
    let elsewhere = || all.iter().filter(|region| !request.regions.iter().any(|wanted| wanted == **region));
    let mut changes = Vec::new();
    for region in elsewhere() {
        changes.push((
            Change::Region { region: (*region).to_owned() },
            vec![*region],
            request.take,
            request.count,
        ));
    }
    let wanted: Vec<&str> = request.regions.iter().map(String::as_str).collect();
    for count in (1..request.count).rev() {
        changes.push((Change::Count { count }, wanted.clone(), request.take, count));
    }
    if let Take::Slots { slots } = request.take {
        let sizes = || (1..slots).rev().filter(|size| request.other_sizes.contains(size));
        for gpus in sizes() {
            changes.push((Change::Gpus { gpus }, wanted.clone(), Take::Slots { slots: gpus }, request.count));
        }
        for gpus in sizes() {
            for region in elsewhere() {
                let change = Change::GpusAndRegion { gpus, region: (*region).to_owned() };
                changes.push((change, vec![*region], Take::Slots { slots: gpus }, request.count));
            }
        }
    }
    let fits = |(_, regions, take, count): &(Change, Vec<&str>, Take, u32)| {
        take.slots() * count <= most && regions.iter().any(|r| now(r, *take, *count))
    };
    changes.into_iter().find(fits).map(|(change, ..)| change)
}
