//! Who waits for work, and how they are woken.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kernel::ids::{NodeId, TaskId};
use node_proto::contract::Dial;
use pg::{Db, Notice};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Fleet,
    service::{
        dispatch,
        tunnels::{DIAL_CHANNEL, DialNotice},
    },
};

/// What a missed notification costs at most.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Gateways that one wait of a node can be told of.
const MOST_DIALS: usize = 8;
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

/// Rung when there may be work, or when somebody else took the place. A ring that comes before anybody listens is
/// kept.
#[derive(Default)]
struct Bell {
    notify: Notify,
    superseded: AtomicBool,
    /// Gateways that need the node.
    dials: Mutex<VecDeque<Dial>>,
}

impl Bell {
    fn dials(&self) -> MutexGuard<'_, VecDeque<Dial>> {
        self.dials.lock().unwrap_or_else(|e| e.into_inner())
    }
}

struct Waiter {
    number: u64,
    bell: Arc<Bell>,
    holding: Option<Arc<[TaskId]>>,
}

#[derive(Default)]
pub struct Hub {
    waiting: Mutex<HashMap<NodeId, Waiter>>,
    next: AtomicU64,
}

/// A place among those who wait; dropping it leaves.
pub struct Ticket {
    hub: Arc<Hub>,
    node: NodeId,
    number: u64,
    bell: Arc<Bell>,
}

impl Ticket {
    pub async fn rung(&self) {
        self.bell.notify.notified().await;
    }

    /// The same node waits elsewhere since.
    pub fn is_superseded(&self) -> bool {
        self.bell.superseded.load(Ordering::Acquire)
    }

    /// A gateway that needs the node, once each.
    pub fn dial(&self) -> Option<Dial> {
        let mut dials = self.bell.dials();
        let next = dials.pop_front();
        if !dials.is_empty() {
            self.bell.notify.notify_one();
        }
        next
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = self.hub.lock();
        if waiting.get(&self.node).is_some_and(|waiter| waiter.number == self.number) {
            waiting.remove(&self.node);
        }
    }
}

impl Hub {
    /// Also woken when what is known of a node changes, so that a revoked one does not wait on.
    pub fn new(db: &Db) -> Arc<Self> {
        let hub = Arc::new(Self::default());
        let weak = Arc::downgrade(&hub);
        db.on_invalidate(move |key| {
            let Some(hub) = weak.upgrade() else { return };
            match key.strip_prefix("node:").and_then(|id| Uuid::try_parse(id).ok()) {
                Some(id) => hub.ring(NodeId::from(id)),
                None if key == "*" => hub.ring_all(),
                None => {}
            }
        });
        hub
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Waiter>> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Must come before the first look for work. Whoever waited for the same node is sent away.
    pub fn enter(self: &Arc<Self>, node: NodeId, holding: Option<Arc<[TaskId]>>) -> Ticket {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let bell = Arc::new(Bell::default());
        let before = self.lock().insert(node, Waiter { number, bell: bell.clone(), holding });
        if let Some(before) = before {
            before.bell.superseded.store(true, Ordering::Release);
            before.bell.notify.notify_one();
        }
        Ticket { hub: self.clone(), node, number, bell }
    }

    pub fn ring(&self, node: NodeId) {
        if let Some(waiter) = self.lock().get(&node) {
            waiter.bell.notify.notify_one();
        }
    }

    /// Tells a node that waits here that a gateway needs it. Beyond a few at once the gateway asks again.
    fn dial(&self, node: NodeId, dial: Dial) {
        let waiting = self.lock();
        let Some(waiter) = waiting.get(&node) else { return };
        let mut dials = waiter.bell.dials();
        if dials.len() < MOST_DIALS && !dials.contains(&dial) {
            dials.push_back(dial);
        }
        waiter.bell.notify.notify_one();
    }

    fn ring_all(&self) {
        for waiter in self.lock().values() {
            waiter.bell.notify.notify_one();
        }
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.lock().keys().copied().collect()
    }

    /// Rings for work that lies ready: anything queued, and what was handed out to a node that does not hold it.
    fn ring_for(&self, ready: &[dispatch::Ready]) {
        let waiting = self.lock();
        for ready in ready {
            let Some(waiter) = waiting.get(&ready.node) else { continue };
            let wanted = match (ready.lapsed, &waiter.holding) {
                (None, _) => true,
                (Some(task), Some(holding)) => !holding.contains(&task),
                (Some(_), None) => false,
            };
            if wanted {
                waiter.bell.notify.notify_one();
            }
        }
    }
}

/// Wakes by notification, and by looking now and then.
pub async fn run(
    hub: Arc<Hub>,
    fleet: Fleet,
    mut notices: broadcast::Receiver<Notice>,
    stop: CancellationToken,
) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            notice = notices.recv() => match notice {
                Ok(notice) if notice.channel == "gpuaas_tasks" => {
                    if let Ok(node) = Uuid::try_parse(&notice.payload) {
                        hub.ring(NodeId::from(node));
                    }
                }
                Ok(notice) if notice.channel == DIAL_CHANNEL => {
                    if let Ok(DialNotice { node, dial }) = serde_json::from_str(&notice.payload) {
                        hub.dial(node, dial);
                    }
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => hub.ring_all(),
                // Nobody notifies any more; looking goes on.
                Err(broadcast::error::RecvError::Closed) => tokio::time::sleep(LOOK_EVERY).await,
            },
            _ = look.tick() => {
                let nodes = hub.nodes();
                metrics::gauge!("node_waiting").set(nodes.len() as f64);
                if nodes.is_empty() {
                    continue;
                }
                match tokio::time::timeout(LOOK_PATIENCE, dispatch::ready(&fleet, &nodes)).await {
                    Ok(Ok(ready)) => hub.ring_for(&ready),
                    Ok(Err(failure)) => {
                        tracing::warn!(error = ?failure, "could not look for tasks; trying again");
                    }
                    Err(_) => tracing::warn!("looking for tasks took too long; trying again"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn node(n: u128) -> NodeId {
        NodeId::from(Uuid::from_u128(n))
    }

    #[tokio::test]
    async fn a_ring_before_listening_is_heard() {
        let hub = Arc::new(Hub::default());
        let ticket = hub.enter(node(1), None);
        hub.ring(node(1));
        hub.ring(node(2));
        assert!(ticket.rung().now_or_never().is_some());
        assert!(ticket.rung().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_node_that_waits_is_told_of_every_gateway_that_needs_it_and_of_few_at_once() {
        use node_proto::contract::TunnelClass;
        let hub = Arc::new(Hub::default());
        let ticket = hub.enter(node(1), None);
        let dial = |n: usize| Dial { url: format!("https://gateway-{n}:1"), class: TunnelClass::Interactive };
        hub.dial(node(2), dial(0));
        for n in [0, 1, 0] {
            hub.dial(node(1), dial(n));
        }
        for n in [0, 1] {
            assert!(ticket.rung().now_or_never().is_some());
            assert_eq!(ticket.dial(), Some(dial(n)));
        }
        assert_eq!(ticket.dial(), None);
        for n in 0..MOST_DIALS + 3 {
            hub.dial(node(1), dial(n));
        }
        assert_eq!(std::iter::from_fn(|| ticket.dial()).count(), MOST_DIALS);
    }

    #[tokio::test]
    async fn a_second_wait_sends_the_first_away_and_keeps_its_place() {
        let hub = Arc::new(Hub::default());
        let first = hub.enter(node(1), None);
        let second = hub.enter(node(1), None);
        assert!(first.rung().now_or_never().is_some() && first.is_superseded());
        drop(first);
        assert_eq!(hub.nodes(), [node(1)]);
        hub.ring(node(1));
        assert!(second.rung().now_or_never().is_some() && !second.is_superseded());
        drop(second);
        assert!(hub.nodes().is_empty());
    }

    #[tokio::test]
    async fn a_lapsed_lease_wakes_only_a_node_that_says_it_does_not_hold_the_task() {
        let hub = Arc::new(Hub::default());
        let task = TaskId::from(Uuid::from_u128(9));
        let (silent, holds) = (hub.enter(node(1), None), hub.enter(node(2), Some(Arc::new([task]))));
        let free = hub.enter(node(3), Some(Arc::new([])));
        let lapsed = |n| dispatch::Ready { node: node(n), lapsed: Some(task) };
        hub.ring_for(&[lapsed(1), lapsed(2), lapsed(3)]);
        let rung = [&silent, &holds, &free].map(|ticket| ticket.rung().now_or_never().is_some());
        assert_eq!(rung, [false, false, true]);
    }
}
