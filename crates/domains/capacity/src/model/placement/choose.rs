//! Which slots of which nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use kernel::ids::NodeId;

use super::{NodeView, Packing, Placed, Refusal, Request, SlotView, Take, refuse};

/// All members in the first wanted region that takes them, or why none does.
pub fn place(nodes: &[NodeView], request: &Request, packing: Packing) -> Result<Vec<Placed>, Refusal> {
    request
        .regions
        .iter()
        .find_map(|region| choose(nodes, request, region, packing))
        .ok_or_else(|| refuse(nodes, request))
}

/// All members in this region, or nothing.
pub fn choose(nodes: &[NodeView], request: &Request, region: &str, packing: Packing) -> Option<Vec<Placed>> {
    let here = nodes.iter().filter(|node| node.placeable && node.region == region && request.accepts(node));
    match request.take {
        Take::Whole { slots } => whole(here, slots, request.count),
        Take::Slots { slots } => {
            let mut rooms: Vec<Room<'_>> = here.map(Room::on_node).collect();
            (0..request.count).map(|_| one(&mut rooms, slots as usize, packing)).collect()
        }
    }
}

fn whole<'a>(nodes: impl Iterator<Item = &'a NodeView>, slots: u32, count: u32) -> Option<Vec<Placed>> {
    // A slot that the snapshot lacks is held by somebody: the node is not whole for us.
    let complete =
        |node: &&NodeView| node.whole && node.total == slots && node.slots.len() == node.total as usize;
    let mut free: Vec<&NodeView> = nodes.filter(complete).collect();
    free.sort_by_key(|node| node.id);
    free.truncate(count as usize);
    (free.len() == count as usize)
        .then(|| free.into_iter().map(|n| placed(n, n.slots.iter().collect())).collect())
}

fn one(rooms: &mut [Room<'_>], need: usize, packing: Packing) -> Option<Placed> {
    let fitting = rooms.iter_mut().filter(|room| room.free() >= need.max(1));
    let best = fitting.min_by_key(|room| room.rank(need, packing))?;
    let slots = best.take(need);
    Some(placed(best.node, slots))
}

fn placed(node: &NodeView, mut slots: Vec<&SlotView>) -> Placed {
    slots.sort_by_key(|slot| (slot.index, slot.id));
    Placed {
        node: node.id,
        region: node.region.clone(),
        slots: slots.into_iter().map(|slot| slot.id).collect(),
    }
}

/// What is left of a node while members are placed: its usable slots by NUMA node, each in the order of places.
struct Room<'a> {
    node: &'a NodeView,
    numa: BTreeMap<Option<i32>, Vec<&'a SlotView>>,
}

impl<'a> Room<'a> {
    fn on_node(node: &'a NodeView) -> Self {
        let mut slots: Vec<&SlotView> = node.slots.iter().filter(|slot| slot.has_its_fabric()).collect();
        slots.sort_by_key(|slot| (slot.index, slot.id));
        // No two slots may be sold with the same function of the fabric: the first in place has it.
        let mut given = BTreeSet::new();
        let mut numa: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for slot in slots {
            if !slot.needs_fabric || given.insert(slot.fabric_vf.as_deref()) {
                numa.entry(slot.numa).or_default().push(slot);
            }
        }
        Self { node, numa }
    }

    fn free(&self) -> usize {
        self.numa.values().map(Vec::len).sum()
    }

    /// The best is the smallest. The database finds candidates in this order too.
    fn rank(&self, need: usize, packing: Packing) -> (bool, i64, usize, NodeId) {
        let numa_fit = self.numa.values().map(Vec::len).max().unwrap_or(0);
        let free = i64::try_from(self.free()).unwrap_or(i64::MAX);
        let free = match packing {
            Packing::Pack => free,
            Packing::Spread => -free,
        };
        (numa_fit < need, free, numa_fit, self.node.id)
    }

    /// From the smallest NUMA node that fits; else from as few as possible, the biggest first.
    fn take(&mut self, need: usize) -> Vec<&'a SlotView> {
        let fitting = self.numa.iter_mut().filter(|(_, slots)| slots.len() >= need);
        if let Some((_, slots)) = fitting.min_by_key(|(numa, slots)| (slots.len(), **numa)) {
            return slots.drain(..need).collect();
        }
        let mut biggest: Vec<_> = self.numa.iter_mut().collect();
        biggest.sort_by_key(|(numa, slots)| (Reverse(slots.len()), **numa));
        let mut taken = Vec::with_capacity(need);
        for (_, slots) in biggest {
            let some = slots.len().min(need - taken.len());
            taken.extend(slots.drain(..some));
        }
        taken
    }
}

impl SlotView {
    /// A GPU needs a function of the fabric, on its own NUMA node as far as both are known.
    fn has_its_fabric(&self) -> bool {
        let near = match (self.numa, self.fabric_numa) {
            (Some(gpu), Some(fabric)) => gpu == fabric,
            _ => true,
        };
        !self.needs_fabric || self.fabric_vf.is_some() && near
    }
}

impl Request {
    /// Whether the request lets a node be considered at all.
    pub(super) fn accepts(&self, node: &NodeView) -> bool {
        self.pool.is_none_or(|pool| node.pool == Some(pool))
            && self.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
    }
}
