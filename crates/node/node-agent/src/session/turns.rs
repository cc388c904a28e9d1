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

/// By owner, who stands in line; the first has its turn. What the session holds bounds how many there are.
#[derive(Default)]
struct Lines {
    next: u64,
    by_owner: BTreeMap<String, VecDeque<u64>>,
}

/// A place in line. It is given up when this is dropped, whether its turn has come or not.
pub(super) struct Turn {
    turns: Arc<Turns>,
    owner: String,
    number: u64,
}

impl Turns {
    /// At the end of the owner's line.
    pub(super) fn line_up(self: &Arc<Self>, owner: &str) -> Turn {
        let mut lines = lock(&self.lines);
        lines.next += 1;
        let number = lines.next;
        lines.by_owner.entry(owner.to_owned()).or_default().push_back(number);
        Turn { turns: self.clone(), owner: owner.to_owned(), number }
    }
}

impl Turn {
    fn has_come(&self) -> bool {
        lock(&self.turns.lines).by_owner.get(&self.owner).and_then(VecDeque::front) == Some(&self.number)
    }

    /// Until it is this one's turn.
    pub(super) async fn comes(&self) {
        loop {
            let mut moved = std::pin::pin!(self.turns.moved.notified());
            moved.as_mut().enable();
            if self.has_come() {
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

    async fn has_come(turn: &Turn) -> bool {
        tokio::time::timeout(Duration::from_secs(1), turn.comes()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_has_one_turn_at_a_time_in_the_order_of_arrival() {
        let turns = Arc::new(Turns::default());
        let [first, gives_up, third] = [(); 3].map(|()| turns.line_up("a"));
        let other = turns.line_up("b");
        assert!(has_come(&first).await && has_come(&other).await);
        assert!(!has_come(&gives_up).await && !has_come(&third).await);
        drop(gives_up);
        assert!(!has_come(&third).await, "the first is not done");
        let waits = tokio::spawn(async move { third.comes().await });
        drop(first);
        tokio::time::timeout(Duration::from_secs(1), waits).await.unwrap().unwrap();
        drop(other);
        assert!(lock(&turns.lines).by_owner.is_empty());
    }
}
