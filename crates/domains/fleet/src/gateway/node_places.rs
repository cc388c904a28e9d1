//! How many connections a node may have.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use kernel::ids::NodeId;

/// A node needs one connection, and two while it changes its certificate; and one tunnel of each kind.
const MOST_IN_USE: u32 = 8;
/// Tunnels in which only old streams are open. They keep no new connection out.
const MOST_DRAINING: u32 = 32;

#[derive(Clone, Copy, Default)]
struct Counts {
    in_use: u32,
    draining: u32,
}

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct NodePlaces(Arc<Mutex<HashMap<NodeId, Counts>>>);

/// The place of one connection.
pub struct NodePlace {
    places: NodePlaces,
    node: NodeId,
    drains: bool,
}

impl NodePlaces {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Counts>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Nothing when the node has as many connections as it may have.
    pub fn enter(&self, node: NodeId) -> Option<NodePlace> {
        let mut nodes = self.lock();
        let counts = nodes.entry(node).or_default();
        if counts.in_use >= MOST_IN_USE {
            return None;
        }
        counts.in_use += 1;
        Some(NodePlace { places: self.clone(), node, drains: false })
    }
}

impl NodePlace {
    /// Leaves its place to a new connection, as long as not too many drain.
    pub fn drain(&mut self) {
        let mut nodes = self.places.lock();
        let counts = nodes.entry(self.node).or_default();
        if !self.drains && counts.draining < MOST_DRAINING {
            counts.in_use = counts.in_use.saturating_sub(1);
            counts.draining += 1;
            self.drains = true;
        }
    }
}

impl Drop for NodePlace {
    fn drop(&mut self) {
        let mut nodes = self.places.lock();
        let Some(counts) = nodes.get_mut(&self.node) else { return };
        let count = if self.drains { &mut counts.draining } else { &mut counts.in_use };
        *count = count.saturating_sub(1);
        if counts.in_use == 0 && counts.draining == 0 {
            nodes.remove(&self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_drains_keeps_no_new_connection_out() {
        let (places, node) = (NodePlaces::default(), NodeId::from(uuid::Uuid::from_u128(1)));
        let mut entered: Vec<NodePlace> = std::iter::from_fn(|| places.enter(node)).collect();
        assert_eq!(entered.len(), MOST_IN_USE as usize);
        assert!(places.enter(NodeId::from(uuid::Uuid::from_u128(2))).is_some(), "another node");
        for place in &mut entered {
            place.drain();
            place.drain();
        }
        let again: Vec<NodePlace> = std::iter::from_fn(|| places.enter(node)).collect();
        assert_eq!(again.len(), MOST_IN_USE as usize);
        drop((again, entered));
        assert!(places.lock().is_empty());

        // So many drain, and no more.
        let mut draining = Vec::new();
        while let Some(mut place) = places.enter(node) {
            place.drain();
            draining.push(place);
        }
        assert_eq!(draining.len(), (MOST_DRAINING + MOST_IN_USE) as usize);
    }
}
