//! The last lines of a log, numbered, for whoever follows it.
//!
//! A reader has a place in the log and no buffer: whoever logs never waits for a reader, and a reader that comes too late for
//! lines learns how many they were.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use node_proto::contract::LogLine;
use tokio::sync::watch;

/// All lines together, however many there are.
const MOST_BYTES: usize = 256 * 1024;
/// What a line costs besides its text.
const LINE_COST: usize = 96;

pub struct Recent {
    most_lines: usize,
    ring: Mutex<Ring>,
    /// The number of the line that comes next.
    next: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// The number of the line that comes next.
    next: u64,
}

impl Ring {
    fn first(&self) -> u64 {
        self.next - self.lines.len() as u64
    }
}

/// A place in the log.
pub struct Place {
    /// The line that is read next.
    next: u64,
    changes: watch::Receiver<u64>,
}

/// What was read: so many lines are missing before the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub dropped: u64,
    pub lines: Vec<LogLine>,
}

fn cost(line: &LogLine) -> usize {
    LINE_COST + line.source.len() + line.message.len()
}

impl Recent {
    pub fn new(most_lines: usize) -> Self {
        Self { most_lines, ring: Mutex::default(), next: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn push(&self, line: LogLine) {
        let mut ring = self.lock();
        ring.bytes += cost(&line);
        ring.lines.push_back(line);
        ring.next += 1;
        while ring.lines.len() > self.most_lines || ring.bytes > MOST_BYTES {
            let Some(oldest) = ring.lines.pop_front() else { break };
            ring.bytes -= cost(&oldest);
        }
        // Within the lock: of two that log at once, the later number is told last.
        self.next.send_replace(ring.next);
    }

    /// At most so many lines before the next one.
    pub fn follow(&self, lines: u64) -> Place {
        let changes = self.next.subscribe();
        let ring = self.lock();
        Place { next: ring.next.saturating_sub(lines).max(ring.first()), changes }
    }

    /// The number of the line that comes next.
    pub fn next(&self) -> u64 {
        self.lock().next
    }

    /// What there is to read at this place now, up to so many bytes; at least one line, if there is one.
    pub fn read(&self, place: &mut Place, most_bytes: usize) -> Read {
        let ring = self.lock();
        let first = ring.first();
        let dropped = first.saturating_sub(place.next);
        place.next += dropped;
        let from = usize::try_from(place.next - first).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let fits = |line: &&LogLine| {
            let is_first = bytes == 0;
            bytes += cost(line);
            is_first || bytes <= most_bytes
        };
        let lines: Vec<LogLine> = ring.lines.iter().skip(from).take_while(fits).cloned().collect();
        place.next += lines.len() as u64;
        Read { dropped, lines }
    }
}

impl Place {
    /// The number of the line that is read next.
    pub fn number(&self) -> u64 {
        self.next
    }

    /// Ends when there is something to read. Never ends when nothing more is logged.
    pub async fn changed(&mut self) {
        let next = self.next;
        if self.changes.wait_for(|newest| *newest > next).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use node_proto::contract::LogLevel;

    use super::*;

    fn line(number: u64) -> LogLine {
        let (at, source) = (chrono::DateTime::UNIX_EPOCH, "test".to_owned());
        LogLine { at, level: LogLevel::Info, source, message: number.to_string() }
    }

    fn numbers(read: &Read) -> Vec<u64> {
        read.lines.iter().map(|line| line.message.parse().unwrap()).collect()
    }

    fn filled(most: usize, lines: u64) -> Recent {
        let recent = Recent::new(most);
        (0..lines).for_each(|number| recent.push(line(number)));
        recent
    }

    #[test]
    fn a_reader_begins_with_as_many_recent_lines_as_it_wants_and_misses_none() {
        let recent = filled(10, 25);
        assert_eq!(numbers(&recent.read(&mut recent.follow(3), 10_000)), [22, 23, 24]);
        assert_eq!(numbers(&recent.read(&mut recent.follow(100), 10_000)).len(), 10);
        let mut place = recent.follow(0);
        assert_eq!(recent.read(&mut place, 10_000), Read::default());
        (25..30).for_each(|number| recent.push(line(number)));
        let read = recent.read(&mut place, 10_000);
        assert_eq!((read.dropped, numbers(&read)), (0, vec![25, 26, 27, 28, 29]));
        assert_eq!(place.number(), recent.next());
    }

    #[test]
    fn a_reader_that_comes_too_late_learns_how_many_lines_it_missed() {
        let recent = filled(10, 0);
        let mut place = recent.follow(0);
        (0..1000).for_each(|number| recent.push(line(number)));
        let read = recent.read(&mut place, 10_000);
        assert_eq!((read.dropped, numbers(&read)), (990, (990..1000).collect()));
        assert_eq!(recent.read(&mut place, 10_000), Read::default());
    }

    #[test]
    fn what_is_read_at_once_is_bounded_and_never_nothing() {
        let recent = filled(10, 10);
        let mut place = recent.follow(10);
        assert_eq!(numbers(&recent.read(&mut place, 1)), [0]);
        assert_eq!(numbers(&recent.read(&mut place, 3 * (LINE_COST + 5))), [1, 2, 3]);
    }

    #[test]
    fn the_memory_of_long_lines_is_bounded_too() {
        let recent = Recent::new(1000);
        for number in 0..1000 {
            recent.push(LogLine { message: "x".repeat(2048), ..line(number) });
        }
        let ring = recent.lock();
        assert!(ring.bytes <= MOST_BYTES && ring.lines.len() > 100, "{}", ring.lines.len());
        assert_eq!(ring.bytes, ring.lines.iter().map(cost).sum::<usize>());
    }

    #[tokio::test]
    async fn a_reader_is_woken_by_the_next_line() {
        let recent = filled(10, 1);
        let mut place = recent.follow(1);
        place.changed().await;
        recent.read(&mut place, 10_000);
        let next = async {
            place.changed().await;
            recent.read(&mut place, 10_000)
        };
        let (read, ()) = tokio::join!(next, async { recent.push(line(1)) });
        assert_eq!(numbers(&read), [1]);
    }
}
