//! The log of the machine's kernel, followed.
//!
//! The device keeps its lines itself, and numbers them: a reader that is too slow finds a gap, which is how many lines it
//! missed, and one that comes again knows by the numbers what it has. It is open only while somebody follows it.

use std::{collections::VecDeque, io, os::fd::OwnedFd, path::PathBuf, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::Ambient;
use node_proto::{
    contract::{LOG_LINE_BYTES, LogLevel, LogLine},
    log_stream::{LinePosition, LogItem, StreamLine},
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{
    config::Roots,
    drivers::gpu::kernel_log::{boot_id_read, parse_line, uptime_read},
    session::{Redact, cut},
};

/// How often the device is looked at while somebody follows it.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The largest record of the device; what is longer is no line of it.
const RECORD_BYTES: usize = 16 * 1024;
/// Read at most at once.
const BATCH_RECORDS: usize = 32;
/// What comes before the recent lines is read too: the device can only be read from its beginning.
const MOST_RECORDS: usize = 200_000;
/// All recent lines together.
const RECENT_BYTES: usize = 256 * 1024;

/// Where the log is.
pub struct KernelLog {
    log: PathBuf,
    proc: PathBuf,
    ambient: Ambient,
    redact: Redact,
}

/// A reader's place.
pub struct KernelLines {
    /// None only while it is read elsewhere.
    reader: Option<Reader>,
    /// Lines that were there before the reader came, until they are taken.
    recent: Option<Vec<LogItem>>,
}

struct Reader {
    device: OwnedFd,
    proc: PathBuf,
    ambient: Ambient,
    redact: Redact,
    /// Without it a number says nothing.
    boot: Option<String>,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// The number of the last line.
    last: Option<u64>,
}

/// A line as it was read.
struct Record {
    /// So many lines before it were not.
    missed: u64,
    number: u64,
    by_kernel: bool,
    severity: u32,
    since_boot_micros: i64,
    text: String,
}

impl KernelLog {
    pub fn new(roots: &Roots, ambient: Ambient, redact: Redact) -> Self {
        Self { log: roots.dev.join("kmsg"), proc: roots.proc.clone(), ambient, redact }
    }

    /// At most so many lines that are there already, then new ones.
    pub async fn open(&self, lines: usize) -> io::Result<KernelLines> {
        let (log, proc) = (self.log.clone(), self.proc.clone());
        let (ambient, redact) = (self.ambient.clone(), self.redact);
        let opened = tokio::task::spawn_blocking(move || {
            let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            let device = rustix::fs::open(&log, flags, Mode::empty())?;
            let boot = boot_id_read(&proc).filter(|boot| !boot.is_empty());
            let mut reader = Reader { device, proc, ambient, redact, boot, begun: Vec::new(), last: None };
            let recent = reader.recent(lines)?;
            Ok::<_, io::Error>((reader, recent))
        });
        let (reader, recent) = opened.await.map_err(io::Error::other)??;
        Ok(KernelLines { reader: Some(reader), recent: Some(recent) })
    }
}

impl KernelLines {
    pub async fn take(&mut self) -> io::Result<Vec<LogItem>> {
        if let Some(recent) = self.recent.take() {
            return Ok(recent);
        }
        let Some(mut reader) = self.reader.take() else { return Err(io::Error::other("it is not open")) };
        let read = tokio::task::spawn_blocking(move || {
            let items = reader.read(BATCH_RECORDS);
            (reader, items)
        });
        let (reader, items) = read.await.map_err(io::Error::other)?;
        self.reader = Some(reader);
        items
    }

    pub async fn changed(&mut self) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Reader {
    /// The last lines that are there, and that they are all. Only those are redacted.
    fn recent(&mut self, most: usize) -> io::Result<Vec<LogItem>> {
        let (mut recent, mut bytes) = (VecDeque::new(), 0);
        for _ in 0..MOST_RECORDS / BATCH_RECORDS {
            let records = self.records(BATCH_RECORDS)?;
            if records.is_empty() {
                break;
            }
            for record in records {
                bytes += record.text.len();
                recent.push_back(record);
                while recent.len() > most || bytes > RECENT_BYTES {
                    bytes -= recent.pop_front().map_or(0, |oldest| oldest.text.len());
                }
            }
        }
        let times = self.times();
        let lines = recent.iter().map(|record| LogItem::Line(self.line(record, times)));
        Ok(lines.chain([LogItem::Live]).collect())
    }

    /// What is there, up to so many reads.
    fn read(&mut self, most: usize) -> io::Result<Vec<LogItem>> {
        let records = self.records(most)?;
        let (mut items, times) = (Vec::new(), self.times());
        for record in &records {
            if record.missed > 0 {
                items.push(LogItem::Dropped { lines: record.missed });
            }
            items.push(LogItem::Line(self.line(record, times)));
        }
        Ok(items)
    }

    /// The device gives one record with each read, and says that it would wait when there are no more.
    fn records(&mut self, most: usize) -> io::Result<Vec<Record>> {
        let (mut records, mut buffer) = (Vec::new(), vec![0; RECORD_BYTES]);
        for _ in 0..most {
            match rustix::io::read(&self.device, buffer.as_mut_slice()) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(read) => self.push(buffer.get(..read).unwrap_or_default(), &mut records),
                // Lines were overwritten before they were read, or a signal came.
                Err(Errno::PIPE | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(records)
    }

    fn push(&mut self, bytes: &[u8], records: &mut Vec<Record>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.begun.len() + piece.len() <= RECORD_BYTES {
                self.begun.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let begun = std::mem::take(&mut self.begun);
                let text = String::from_utf8_lossy(&begun);
                // What belongs to the line before begins with a space.
                let Some(line) = parse_line(text.trim_end()).filter(|_| !text.starts_with(' ')) else {
                    continue;
                };
                let missed = self.last.map_or(0, |last| line.number.saturating_sub(last.saturating_add(1)));
                self.last = Some(line.number);
                records.push(Record {
                    missed,
                    number: line.number,
                    by_kernel: line.by_kernel,
                    severity: line.severity,
                    since_boot_micros: line.since_boot_micros,
                    text: line.text.to_owned(),
                });
            }
        }
    }

    /// Now, and how long the machine has been up.
    fn times(&self) -> (DateTime<Utc>, Option<i64>) {
        (self.ambient.now(), uptime_read(&self.proc))
    }

    fn line(&self, record: &Record, (now, uptime): (DateTime<Utc>, Option<i64>)) -> StreamLine {
        let age = uptime.map_or(0, |uptime| uptime.saturating_sub(record.since_boot_micros)).max(0);
        let level = match record.severity {
            0..=3 => LogLevel::Error,
            4 => LogLevel::Warn,
            5 | 6 => LogLevel::Info,
            _ => LogLevel::Debug,
        };
        let line = LogLine {
            at: now.checked_sub_signed(TimeDelta::microseconds(age)).unwrap_or(now),
            level,
            // What programs write into the log is marked as theirs.
            source: if record.by_kernel { "kernel" } else { "program" }.to_owned(),
            message: cut(&(self.redact)(&record.text), LOG_LINE_BYTES),
        };
        let position = self.boot.clone().map(|boot| LinePosition { boot, number: record.number });
        StreamLine { line, position }
    }
}
