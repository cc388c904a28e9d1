//! Logs that somebody follows through a tunnel.

use std::{io::Write as _, sync::Arc, time::Duration};

use kernel::Ambient;
use node_agent::{
    config::Roots,
    logs::{LogStreams, kernel::KernelLog},
    redact::redact,
    session::Log,
};
use node_proto::{
    contract::{LogLevel, LogLine},
    grant::{Grant, Owner, Target},
    log_stream::{AGENT, KERNEL, LinePosition, LogItem, LogItems},
};
use node_tunnel::{OpenError, Stream, Tunnel};

use super::terminal_kit::{grant_of, sign, tunnel};

const SOON: Duration = Duration::from_secs(20);

fn grant(source: &str, lines: u32) -> Grant {
    Grant { target: Target::Log { source: source.to_owned(), lines }, ..grant_of(Owner::Node) }
}

struct Node {
    log: Log,
    streams: Arc<LogStreams>,
    tunnel: Tunnel,
    dir: tempfile::TempDir,
}

impl Node {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["dev", "proc"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let log = Log::new(Ambient::system(), 1000, redact);
        let kernel = KernelLog::new(&Roots::below(dir.path()), Ambient::system(), redact);
        let streams = Arc::new(LogStreams::new(log.clone(), Some(kernel)));
        let tunnel = tunnel(grant(AGENT, 0).node_id, streams.clone()).await;
        Self { log, streams, tunnel, dir }
    }

    fn kernel_says(&self, text: &str) {
        let path = self.dir.path().join("dev/kmsg");
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    async fn follow(&self, grant: &Grant) -> Follower {
        self.try_follow(grant).await.unwrap()
    }

    /// An error is the code of the refusal.
    async fn try_follow(&self, grant: &Grant) -> Result<Follower, String> {
        match self.tunnel.open(&sign(grant)).await {
            Ok(stream) => Ok(Follower { stream, items: LogItems::default(), got: Vec::new() }),
            Err(OpenError::Refused(code)) => Err(code),
            Err(other) => panic!("{other}"),
        }
    }

    async fn refused(&self, grant: &Grant) -> String {
        self.try_follow(grant).await.map(drop).unwrap_err()
    }
}

struct Follower {
    stream: Stream,
    items: LogItems,
    got: Vec<LogItem>,
}

impl Follower {
    /// The next item; none at the end.
    async fn next(&mut self) -> Option<LogItem> {
        while self.got.is_empty() {
            let next =
                tokio::time::timeout(SOON, self.stream.receiver.next()).await.expect("an item in time");
            let bytes = next.ok().flatten()?;
            self.stream.receiver.consumed(bytes.len()).unwrap();
            self.got = self.items.push(&bytes).unwrap();
        }
        Some(self.got.remove(0))
    }

    async fn line(&mut self) -> LogLine {
        match self.next().await {
            Some(LogItem::Line(line)) => line.line,
            other => panic!("{other:?} instead of a line"),
        }
    }

    /// Of the next line.
    async fn position(&mut self) -> Option<LinePosition> {
        match self.next().await {
            Some(LogItem::Line(line)) => line.position,
            other => panic!("{other:?} instead of a line"),
        }
    }

    async fn message(&mut self) -> String {
        self.line().await.message
    }
}

#[tokio::test]
async fn whoever_follows_gets_recent_lines_then_new_ones_without_secrets() {
    let node = Node::new().await;
    for number in 0..5 {
        node.log.take(LogLevel::Info, "test", &format!("line {number}"));
    }
    let mut follower = node.follow(&grant(AGENT, 2)).await;
    assert_eq!(follower.message().await, "line 3");
    assert_eq!(follower.message().await, "line 4");
    assert_eq!(follower.next().await, Some(LogItem::Live));
    node.log.take(LogLevel::Error, "disk", "password=hunter2 is wrong");
    let line = follower.line().await;
    assert_eq!((line.level, line.source.as_str()), (LogLevel::Error, "disk"));
    assert_eq!(line.message, "password=[redacted] is wrong");
    let mut second = node.follow(&grant(AGENT, 0)).await;
    assert_eq!(second.next().await, Some(LogItem::Live));
    node.log.take(LogLevel::Warn, "test", "for both");
    assert_eq!(follower.message().await, "for both");
    assert_eq!(second.message().await, "for both");
    // The agent stops: nobody waits for more.
    node.streams.stop();
    assert_eq!((follower.next().await, second.next().await), (None, None));
}

#[tokio::test]
async fn a_reader_that_stalls_leaves_logging_alone_and_learns_how_many_lines_it_missed() {
    const LINES: u64 = 50_000;
    let node = Node::new().await;
    let mut stalled = node.follow(&grant(AGENT, 0)).await;
    let mut other = node.follow(&grant(AGENT, 0)).await;
    assert_eq!(other.next().await, Some(LogItem::Live));
    let text = "x".repeat(100);
    for number in 0..LINES {
        // Nothing here waits for a reader.
        node.log.take(LogLevel::Info, "test", &format!("{number} {text}"));
        if number % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    node.log.take(LogLevel::Info, "test", "last");
    for (name, follower) in [("stalled", &mut stalled), ("other", &mut other)] {
        let (mut seen, mut dropped, mut next) = (0, 0, 0);
        loop {
            match follower.next().await.expect("an item") {
                LogItem::Line(line) if line.line.message == "last" => break,
                LogItem::Line(line) => {
                    let number: u64 = line.line.message.split(' ').next().unwrap().parse().unwrap();
                    assert_eq!(number, next, "{name}: every line that is missing is counted");
                    seen += 1;
                    next = number + 1;
                }
                LogItem::Dropped { lines } => {
                    dropped += lines;
                    next += lines;
                }
                _ => {}
            }
        }
        assert_eq!(seen + dropped, LINES, "{name}");
        assert!(dropped > LINES / 2, "{name}: {dropped} lines were dropped");
    }
    node.log.take(LogLevel::Info, "test", "and on");
    assert_eq!(stalled.message().await, "and on");
}

#[tokio::test]
async fn the_kernels_log_is_followed_with_its_levels_and_gaps() {
    let node = Node::new().await;
    assert_eq!(node.refused(&grant(KERNEL, 10)).await, "log_unavailable");
    node.kernel_says("6,100,1,-;old\n6,101,2,-;booting\n SUBSYSTEM=pci\n3,102,3,-;token=hunter2 burns\n");
    let mut follower = node.follow(&grant(KERNEL, 2)).await;
    let line = follower.line().await;
    assert_eq!(
        (line.level, line.source.as_str(), line.message.as_str()),
        (LogLevel::Info, "kernel", "booting")
    );
    let line = follower.line().await;
    assert_eq!((line.level, line.message.as_str()), (LogLevel::Error, "token=[redacted] burns"));
    assert_eq!(follower.next().await, Some(LogItem::Live));
    // In pieces, with lines that were overwritten, and one of a program.
    node.kernel_says("4,103,4,-;war");
    node.kernel_says("ning\n12,110,5,-;hello\n");
    let line = follower.line().await;
    assert_eq!((line.level, line.message.as_str()), (LogLevel::Warn, "warning"));
    assert_eq!(follower.next().await, Some(LogItem::Dropped { lines: 6 }));
    let line = follower.line().await;
    assert_eq!((line.source.as_str(), line.message.as_str()), ("program", "hello"));
}

#[tokio::test]
async fn a_line_of_the_kernel_has_the_same_position_whoever_reads_it_and_when() {
    let node = Node::new().await;
    node.kernel_says("6,100,1,-;one\n6,101,2,-;two\n");
    let mut unknown_boot = node.follow(&grant(KERNEL, 1)).await;
    assert_eq!(unknown_boot.position().await, None, "a number without its boot says nothing");
    let random = node.dir.path().join("proc/sys/kernel/random");
    std::fs::create_dir_all(&random).unwrap();
    std::fs::write(random.join("boot_id"), "5f1d\n").unwrap();
    let position = |number| Some(LinePosition { boot: "5f1d".to_owned(), number });
    let mut first = node.follow(&grant(KERNEL, 2)).await;
    assert_eq!([first.position().await, first.position().await], [position(100), position(101)]);
    let mut second = node.follow(&grant(KERNEL, 1)).await;
    assert_eq!(second.position().await, position(101));
    assert_eq!([first.next().await, second.next().await], [Some(LogItem::Live), Some(LogItem::Live)]);
    node.kernel_says("6,102,3,-;three\n");
    assert_eq!([first.position().await, second.position().await], [position(102), position(102)]);
    // What the agent logs has no numbers that outlive it: its time tells lines apart.
    node.log.take(LogLevel::Info, "test", "agent");
    assert_eq!(node.follow(&grant(AGENT, 1)).await.position().await, None);
}

#[tokio::test]
async fn what_is_no_log_of_the_node_or_not_granted_is_refused() {
    let node = Node::new().await;
    for source in ["", "Agent", "/var/log/auth.log", "../kernel"] {
        assert_eq!(node.refused(&grant(source, 10)).await, "no_such_log", "{source}");
    }
    let allocation_id = uuid::Uuid::from_u128(1).into();
    let of_tenant = Grant { owner: Owner::Allocation { allocation_id }, ..grant(AGENT, 10) };
    assert_eq!(node.refused(&of_tenant).await, "no_such_log");
    assert_eq!(node.refused(&grant_of(Owner::Node)).await, "no_such_log", "a terminal");
    let elsewhere = Grant { node_id: uuid::Uuid::from_u128(8).into(), ..grant(AGENT, 10) };
    assert_eq!(node.refused(&elsewhere).await, "wrong_node");
    let good = grant(AGENT, 10);
    let mut forged = sign(&good);
    forged.payload = sign(&grant(KERNEL, 10)).payload;
    let Err(OpenError::Refused(code)) = node.tunnel.open(&forged).await else { panic!("a forged grant") };
    assert_eq!(code, "bad_signature");
    node.follow(&good).await;
    assert_eq!(node.refused(&good).await, "replayed");
}

#[tokio::test]
async fn so_many_follow_at_once_and_a_place_is_free_when_one_leaves() {
    let node = Node::new().await;
    let mut followers = Vec::new();
    let refused = loop {
        match node.try_follow(&grant(AGENT, 0)).await {
            Ok(follower) => followers.push(follower),
            Err(code) => break code,
        }
        assert!(followers.len() < 100);
    };
    assert_eq!((followers.len(), refused.as_str()), (8, "too_many_readers"));
    followers.pop();
    let deadline = tokio::time::Instant::now() + SOON;
    while node.try_follow(&grant(AGENT, 0)).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the place is not given back");
        tokio::task::yield_now().await;
    }
}
