//! One after the other: tasks about the same owner wait for each other, in the order in which they came.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;

use super::lock;

#[derive(Default)]
pub(super) struct Turns {
    lines: Mutex<Lines>,
    moved: Notify,
}

/// Queues by owner; the first has its turn. The limit of leased tasks bounds their length.
#[derive(Default)]
struct Lines {
    next: u64,
    by_owner: BTreeMap<String, VecDeque<u64>>,
}

/// A position in the queue, removed when this is dropped.
pub(super) struct Turn {
    turns: Arc<Turns>,
    owner: String,
    number: u64,
}

impl Turns {
    /// Appends to the owner's queue.
    pub(super) fn queue_for(self: &Arc<Self>, owner: &str) -> Turn {
        let mut lines = lock(&self.lines);
        lines.next += 1;
        let number = lines.next;
        lines.by_owner.entry(owner.to_owned()).or_default().push_back(number);
        Turn { turns: self.clone(), owner: owner.to_owned(), number }
    }
}

impl Turn {
    fn is_first(&self) -> bool {
        lock(&self.turns.lines).by_owner.get(&self.owner).and_then(VecDeque::front) == Some(&self.number)
    }

    /// Waits until this is the first in its queue.
    pub(super) async fn wait_for_turn(&self) {
        loop {
            let mut moved = std::pin::pin!(self.turns.moved.notified());
            moved.as_mut().enable();
            if self.is_first() {
                return;
            }
            moved.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = lock(&self.turns.lines);
        if let Some(line) = lines.by_owner.get_mut(&self.owner) {
            line.retain(|number| *number != self.number);
            if line.is_empty() {
                lines.by_owner.remove(&self.owner);
            }
        }
        drop(lines);
        self.turns.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_first(turn: &Turn) -> bool {
        tokio::time::timeout(Duration::from_secs(1), turn.wait_for_turn()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_has_one_turn_at_a_time_in_the_order_of_arrival() {
        let turns = Arc::new(Turns::default());
        let [first, gives_up, third] = [(); 3].map(|()| turns.queue_for("a"));
        let other = turns.queue_for("b");
        assert!(is_first(&first).await && is_first(&other).await);
        assert!(!is_first(&gives_up).await && !is_first(&third).await);
        drop(gives_up);
        assert!(!is_first(&third).await, "the first is not done");
        let waits = tokio::spawn(async move { third.wait_for_turn().await });
        drop(first);
        tokio::time::timeout(Duration::from_secs(1), waits).await.unwrap().unwrap();
        drop(other);
        assert!(lock(&turns.lines).by_owner.is_empty());
    }
}
