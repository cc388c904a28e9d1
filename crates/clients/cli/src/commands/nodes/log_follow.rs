//! Following a log of a node: through its tunnel, and meanwhile by what the agent ships.
//!
//! While there is no connection to the node (it is being made, or was lost), lines that the agent ships to the control plane
//! are shown as they arrive. When the connection is there, the node sends the lines that it has kept; those after the last one
//! that was shown are shown, so no line is shown twice, and when none of them was shown before, lines may be missing and
//! the command says so. Lines of the kernel are known by their numbers, of which it says how many are missing; others by their
//! time and text.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroU64,
    time::Duration,
};

use sdk::Client;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};

use super::{
    log_stream::{LiveLog, LogServer, Said},
    logs::{Line, Position, Source, print},
};
use crate::{
    app::App,
    failure::{Exit, Failure, Result, local},
    output::note,
    terminal::{Refusal, Retries},
};

/// The longest long poll that the server allows.
const WAIT: &str = "20s";
/// After an error of the control plane.
const POLL_PAUSE: Duration = Duration::from_secs(2);
/// As many as nodes keep, and the control plane gives at once.
const MOST_RECENT: u64 = 1000;
/// Lines that are remembered, more than come at once.
const MOST_SHOWN: usize = 2000;

pub struct Wanted {
    pub node: String,
    pub source: Source,
    pub lines: u64,
}

/// Which lines were shown last.
#[derive(Default)]
struct Shown(VecDeque<Key>);

/// What tells a line from others.
#[derive(PartialEq, Eq)]
enum Key {
    Position(Position),
    /// Its time and text: the control plane keeps microseconds.
    Content(i64, u64),
}

fn key(line: &Line) -> Key {
    if let Some(position) = &line.position {
        return Key::Position(position.clone());
    }
    let mut hasher = DefaultHasher::new();
    (&line.source, &line.message).hash(&mut hasher);
    Key::Content(line.at.timestamp_micros(), hasher.finish())
}

impl Shown {
    fn add(&mut self, lines: &[Line]) {
        self.0.extend(lines.iter().map(key));
        let over = self.0.len().saturating_sub(MOST_SHOWN);
        self.0.drain(..over);
    }

    /// Those after the last one that was shown, and whether one was.
    fn unseen<'a>(&self, lines: &'a [Line]) -> (&'a [Line], bool) {
        match lines.iter().rposition(|line| self.0.contains(&key(line))) {
            Some(last) => (lines.get(last + 1..).unwrap_or_default(), true),
            None => (lines, false),
        }
    }

    /// How many lines are missing between the last one that was shown and this one, where lines have numbers.
    fn missing_before(&self, line: &Line) -> Option<u64> {
        let (Some(Key::Position(last)), Some(next)) = (self.0.back(), &line.position) else { return None };
        (last.boot == next.boot).then(|| next.number.saturating_sub(last.number.saturating_add(1)))
    }
}

/// Why the command ends without an error.
enum Stop {
    Interrupted,
    NobodyReads,
}

/// What goes on until it is stopped.
type Going<T> = Result<std::result::Result<T, Stop>>;

struct Follow<'a> {
    app: &'a App,
    client: &'a Client,
    wanted: Wanted,
    shown: Shown,
    /// Of the lines that the control plane has.
    after: Option<i64>,
    interrupts: Signal,
}

pub async fn run(app: &App, client: &Client, wanted: Wanted) -> Result {
    let interrupts = signal(SignalKind::interrupt()).map_err(local("signals cannot be received"))?;
    let server = LogServer::new(app, wanted.node.clone(), wanted.source)?;
    let (shown, after) = (Shown::default(), None);
    let mut follow = Follow { app, client, wanted, shown, after, interrupts };
    match follow.follow(&server).await? {
        Ok(()) | Err(Stop::Interrupted | Stop::NobodyReads) => Ok(()),
    }
}

impl Follow<'_> {
    async fn follow(&mut self, server: &LogServer<'_>) -> Going<()> {
        if let Err(stop) = self.show_shipped(self.wanted.lines).await? {
            return Ok(Err(stop));
        }
        let mut retries = Retries::default();
        let mut was_live = false;
        loop {
            // What the control plane has shown is among the node's recent lines, and no more is needed.
            let wants_all = was_live || self.wanted.source == Source::Agent;
            let lines = if wants_all { MOST_RECENT } else { self.wanted.lines };
            let connected = match self.while_shipped(server.connect(lines)).await? {
                Ok(connected) => connected,
                Err(stop) => return Ok(Err(stop)),
            };
            let mut ready_at = None;
            let refusal = match connected {
                Ok(log) => {
                    ready_at = Some(Instant::now());
                    match self.stream(log, was_live).await? {
                        Ok(refusal) => refusal,
                        Err(stop) => return Ok(Err(stop)),
                    }
                }
                Err(refusal) => refusal,
            };
            was_live |= ready_at.is_some();
            let now = Instant::now();
            let is_news = retries.lost(ready_at, now);
            let jitter = f64::from(self.app.ambient.bytes::<1>()[0]) / 255.0;
            let pause = retries.pause(refusal.retry, jitter, now);
            if pause.is_none() && !self.goes_on_without(&refusal) {
                return Err(refusal.failure);
            }
            if is_news || pause.is_none() {
                self.note_lost(&refusal, pause.is_some());
            }
            if ready_at.is_some() {
                // Lines that were logged since the node was heard of.
                self.after = None;
                if let Err(stop) = self.show_shipped(MOST_RECENT).await? {
                    return Ok(Err(stop));
                }
            }
            let waiting = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            if let Err(stop) = self.while_shipped(waiting).await? {
                return Ok(Err(stop));
            }
        }
    }

    /// Whether what the agent ships is worth following without the node: unless nobody may read it.
    fn goes_on_without(&self, refusal: &Refusal) -> bool {
        self.wanted.source == Source::Agent && refusal.failure.exit != Exit::Auth
    }

    fn note_lost(&self, refusal: &Refusal, is_retried: bool) {
        let why = &refusal.failure.message;
        let meanwhile = match self.wanted.source {
            Source::Agent => "; showing what it sends to the control plane",
            Source::Kernel => "",
        };
        let again = if is_retried { ", and trying again" } else { "" };
        note(&format!("The node is not connected ({why}){meanwhile}{again}."));
    }

    /// New lines from the node, until the connection is lost; gives why.
    async fn stream(&mut self, mut log: LiveLog, was_live: bool) -> Going<Refusal> {
        let recent = std::mem::take(&mut log.recent);
        note_dropped(log.dropped);
        let (new, is_found) = self.shown.unseen(&recent);
        let new = match (self.wanted.source, was_live) {
            // The node keeps more than was asked for.
            (Source::Agent, false) if !is_found => last(new, self.wanted.lines),
            _ => new,
        };
        if let Some(first) = recent.first().filter(|_| was_live && !is_found) {
            match self.shown.missing_before(first) {
                Some(0) => {}
                Some(lines) => note(&format!("{lines} lines are missing here: the node did not send them.")),
                None => {
                    note("Lines before the next one may be missing: the node does not have them any more.")
                }
            }
        }
        if !self.show(new)? {
            return Ok(Err(Stop::NobodyReads));
        }
        loop {
            let said = tokio::select! {
                said = log.next() => said,
                _ = self.interrupts.recv() => {
                    log.close().await;
                    return Ok(Err(Stop::Interrupted));
                }
            };
            match said {
                Ok(Said::Lines { lines }) => {
                    if !self.show(&lines)? {
                        return Ok(Err(Stop::NobodyReads));
                    }
                }
                Ok(Said::Dropped { lines }) => note_dropped(lines),
                Ok(Said::Live | Said::Unknown | Said::LogError { .. }) => {}
                Err(refusal) => return Ok(Ok(refusal)),
            }
        }
    }

    fn show(&mut self, lines: &[Line]) -> Result<bool> {
        self.shown.add(lines);
        print(self.app, lines)
    }

    /// Recent lines that the control plane has and that were not shown.
    async fn show_shipped(&mut self, most: u64) -> Going<()> {
        if self.wanted.source == Source::Kernel {
            return Ok(Ok(()));
        }
        let (after, wait) = (None, None);
        let request = self.client.node_log_tail(&self.wanted.node, after, NonZeroU64::new(most), wait);
        let tail = tokio::select! {
            tail = Box::pin(request) => tail.map_err(sdk::Error::from).map_err(Failure::from),
            _ = self.interrupts.recv() => return Ok(Err(Stop::Interrupted)),
        };
        let tail = match tail {
            Ok(tail) => tail.into_inner(),
            // Lines that were shown before show that it works; it is asked for again.
            Err(failure) if failure.exit == Exit::Server && !self.shown.0.is_empty() => return Ok(Ok(())),
            Err(failure) => return Err(failure),
        };
        self.after = Some(tail.next_after);
        let lines: Vec<Line> = tail.items.into_iter().map(Line::from).collect();
        let new = self.shown.unseen(&lines).0.to_vec();
        Ok(if self.show(&new)? { Ok(()) } else { Err(Stop::NobodyReads) })
    }

    /// What `work` gives; meanwhile lines that the agent ships are shown.
    async fn while_shipped<T>(&mut self, work: impl Future<Output = T>) -> Going<T> {
        tokio::pin!(work);
        loop {
            let Self { client, wanted, after, interrupts, .. } = self;
            let shipped = async {
                match (wanted.source, *after) {
                    (Source::Kernel, _) => std::future::pending().await,
                    (Source::Agent, after) => {
                        let limit = NonZeroU64::new(MOST_RECENT);
                        let tail = client.node_log_tail(&wanted.node, after, limit, Some(WAIT));
                        Box::pin(tail).await.map_err(sdk::Error::from).map_err(Failure::from)
                    }
                }
            };
            let tail = tokio::select! {
                done = &mut work => return Ok(Ok(done)),
                tail = shipped => tail,
                _ = interrupts.recv() => return Ok(Err(Stop::Interrupted)),
            };
            match tail {
                Ok(tail) => {
                    let tail = tail.into_inner();
                    self.after = Some(tail.next_after);
                    let lines: Vec<Line> = tail.items.into_iter().map(Line::from).collect();
                    let new = self.shown.unseen(&lines).0.to_vec();
                    if !self.show(&new)? {
                        return Ok(Err(Stop::NobodyReads));
                    }
                }
                Err(failure) if failure.exit == Exit::Server => tokio::select! {
                    done = &mut work => return Ok(Ok(done)),
                    () = sleep(POLL_PAUSE) => {}
                    _ = self.interrupts.recv() => return Ok(Err(Stop::Interrupted)),
                },
                Err(failure) => return Err(failure),
            }
        }
    }
}

fn last(lines: &[Line], most: u64) -> &[Line] {
    let skip = lines.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
    lines.get(skip..).unwrap_or_default()
}

fn note_dropped(lines: u64) {
    if lines > 0 {
        note(&format!("{lines} lines are missing here: they came faster than they could be read."));
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn line(number: i64) -> Line {
        let (level, source) = ("info".to_owned(), "test".to_owned());
        Line {
            seq: None,
            at: DateTime::from_timestamp_nanos(number * 1000 + 7),
            level,
            source,
            message: number.to_string(),
            position: None,
        }
    }

    fn lines(numbers: std::ops::Range<i64>) -> Vec<Line> {
        numbers.map(line).collect()
    }

    #[test]
    fn lines_after_the_last_one_that_was_shown_are_new() {
        let mut shown = Shown::default();
        assert_eq!(shown.unseen(&lines(0..3)), (&lines(0..3)[..], false));
        // As the control plane keeps them: with a number, in microseconds.
        let kept: Vec<Line> = (0..5)
            .map(|n| Line { seq: Some(n), at: DateTime::from_timestamp_micros(n).unwrap(), ..line(n) })
            .collect();
        shown.add(&kept);
        assert_eq!(shown.unseen(&lines(2..8)), (&lines(5..8)[..], true));
        assert_eq!(shown.unseen(&lines(2..5)), (&[][..], true));
        assert_eq!(shown.unseen(&lines(7..9)), (&lines(7..9)[..], false), "a gap");
    }

    #[test]
    fn lines_with_numbers_are_known_by_them_whatever_their_time_says() {
        let numbered = |boot: &str, number: u64, at: i64| Line {
            message: "the same text".to_owned(),
            position: Some(Position { boot: boot.to_owned(), number }),
            ..line(at)
        };
        let mut shown = Shown::default();
        shown.add(&[numbered("a", 7, 1), numbered("a", 8, 2)]);
        let again = [numbered("a", 7, 101), numbered("a", 8, 102), numbered("a", 9, 103)];
        assert_eq!(shown.unseen(&again), (&again[2..], true));
        // Also where time and text are the same.
        assert!(!shown.unseen(&[numbered("a", 9, 2)]).1);
        assert_eq!(shown.missing_before(&numbered("a", 9, 0)), Some(0));
        assert_eq!(shown.missing_before(&numbered("a", 12, 0)), Some(3));
        // After another boot nobody knows.
        assert_eq!(
            (shown.unseen(&[numbered("b", 8, 2)]).1, shown.missing_before(&numbered("b", 9, 0))),
            (false, None)
        );
        assert_eq!(shown.missing_before(&line(3)), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut shown = Shown::default();
        shown.add(&lines(0..5000));
        assert_eq!(shown.0.len(), MOST_SHOWN);
        assert!(shown.unseen(&lines(4990..5000)).1);
    }

    #[test]
    fn the_last_lines_are_as_many_as_were_asked_for() {
        assert_eq!(last(&lines(0..10), 3), &lines(7..10)[..]);
        assert_eq!(last(&lines(0..2), 3), &lines(0..2)[..]);
    }
}
