//! Writing to the local terminal, in a thread of its own: a terminal that does not take output blocks neither the
//! keyboard nor the connection.
//!
//! Output of the machine goes to standard output, byte by byte as it came. Lines of this program go to standard error,
//! through the same thread, so that both stand in their order on the screen.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Bytes;

use crate::output::printable;

enum Item {
    /// Output, and the number of the byte after it.
    Output(Bytes, u64),
    Line(String),
    /// Control sequences of our own for the terminal.
    Control(&'static [u8]),
}

#[derive(Clone, Copy, Default)]
struct Written {
    items: u64,
    output_bytes: u64,
    sequence: u64,
    failed: bool,
}

/// Output that waits for the terminal at most, about: beyond it, no more is read from the connection.
const WAITING_OUTPUT_BYTES: u64 = 512 * 1024;

/// The local terminal cannot be written any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone;

pub struct Screen {
    items: mpsc::Sender<Item>,
    pushed: AtomicU64,
    pushed_bytes: AtomicU64,
    written: watch::Receiver<Written>,
}

/// How far the output was written.
pub struct Progress(watch::Receiver<Written>);

impl Progress {
    /// The number of the byte after the written ones, when it has changed.
    pub async fn changed(&mut self) -> Result<u64, Gone> {
        self.0.changed().await.map_err(|_| Gone)?;
        let written = *self.0.borrow_and_update();
        if written.failed { Err(Gone) } else { Ok(written.sequence) }
    }
}

impl Screen {
    pub fn start(out: impl AsFd + Send + 'static, lines: impl AsFd + Send + 'static) -> Self {
        let (items, queue) = mpsc::channel();
        let (report, written) = watch::channel(Written::default());
        std::thread::spawn(move || {
            for item in queue {
                let outcome = match &item {
                    Item::Output(bytes, _) => write_whole(&out, bytes),
                    Item::Line(text) => write_whole(&lines, text.as_bytes()),
                    Item::Control(bytes) => write_whole(&out, bytes),
                };
                let failed = outcome.is_err();
                report.send_modify(|written| {
                    written.items += 1;
                    written.failed = failed;
                    if let Item::Output(bytes, sequence) = item {
                        written.output_bytes += bytes.len() as u64;
                        written.sequence = sequence;
                    }
                });
                if failed {
                    break;
                }
            }
        });
        Self { items, pushed: AtomicU64::new(0), pushed_bytes: AtomicU64::new(0), written }
    }

    fn push(&self, item: Item) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        // The thread ends when the terminal is gone; `Progress` and `drained` say so.
        let _ = self.items.send(item);
    }

    pub fn output(&self, bytes: Bytes, sequence: u64) {
        self.pushed_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.push(Item::Output(bytes, sequence));
    }

    /// Whether the terminal keeps up with the output.
    pub fn has_room(&self) -> bool {
        let pushed = self.pushed_bytes.load(Ordering::Relaxed);
        pushed - self.written.borrow().output_bytes < WAITING_OUTPUT_BYTES
    }

    /// A line of this program in brackets, on lines of its own whatever the modes of the terminal are.
    pub fn notice(&self, text: &str) {
        let text = printable(text).replace('\n', "\r\n ");
        self.push(Item::Line(format!("\r\n[{text}]\r\n")));
    }

    pub fn line_break(&self) {
        self.push(Item::Line("\r\n".to_owned()));
    }

    pub fn control(&self, bytes: &'static [u8]) {
        self.push(Item::Control(bytes));
    }

    pub fn progress(&self) -> Progress {
        Progress(self.written.clone())
    }

    /// Waits until everything is written.
    pub async fn drained(&self) -> Result<(), Gone> {
        let pushed = self.pushed.load(Ordering::Relaxed);
        let mut written = self.written.clone();
        let done = written.wait_for(|written| written.failed || written.items >= pushed).await;
        done.ok().filter(|written| !written.failed).map(drop).ok_or(Gone)
    }
}

/// Writes all of it. Another program that shares the terminal may have made it non-blocking.
fn write_whole(fd: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait_for(&fd, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Blocks until the terminal can be written or read.
pub fn wait_for(fd: impl AsFd, what: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(&fd, what)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::net::UnixStream};

    use super::*;

    #[tokio::test]
    async fn output_and_lines_are_written_in_their_order_and_counted_when_they_are() {
        let (mut terminal, out) = UnixStream::pair().unwrap();
        let lines = out.try_clone().unwrap();
        let screen = Screen::start(out, lines);
        let mut progress = screen.progress();
        screen.output(Bytes::from_static(b"a\xff\n"), 3);
        screen.notice("lost\x1b[2J\nagain");
        screen.output(Bytes::from_static(b"b"), 4);
        screen.drained().await.unwrap();
        assert_eq!(progress.changed().await, Ok(4));
        drop(screen);
        let mut shown = Vec::new();
        terminal.read_to_end(&mut shown).unwrap();
        assert_eq!(shown, b"a\xff\n\r\n[lost\xef\xbf\xbd[2J\r\n again]\r\nb");
    }

    #[tokio::test]
    async fn a_terminal_that_would_block_gets_all_of_it_and_one_that_is_gone_is_noticed() {
        let (mut terminal, out) = UnixStream::pair().unwrap();
        out.set_nonblocking(true).unwrap();
        let lines = out.try_clone().unwrap();
        let screen = Screen::start(out, lines);
        let much = vec![b'x'; 4 * 1024 * 1024];
        screen.output(Bytes::from(much.clone()), 1);
        let read = std::thread::spawn(move || {
            let mut shown = vec![0; 4 * 1024 * 1024];
            terminal.read_exact(&mut shown).unwrap();
            shown
        });
        screen.drained().await.unwrap();
        assert_eq!(read.join().unwrap(), much);
        // The other end was dropped with the thread.
        let mut progress = screen.progress();
        screen.output(Bytes::from_static(b"y"), 2);
        assert_eq!(screen.drained().await, Err(Gone));
        assert_eq!(progress.changed().await, Err(Gone));
    }
}
