//! The agent's log: to its own journal and, in batches, to the control plane.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use kernel::Ambient;
use node_proto::{
    contract::{LOG_LINE_BYTES, LOG_LINES_PER_BATCH, LogBatch, LogLevel, LogLine},
    log_stream::MOST_RECENT_LINES,
};
use tokio::sync::Notify;

use super::recent::Recent;

/// The target of events that are in the buffer already.
pub const TARGET: &str = "gpuaas_agent";
/// A batch must fit into a message of 256 KiB, with room for what JSON adds.
const BATCH_BYTES: usize = 160 * 1024;

/// Takes secrets out of text.
pub type Redact = fn(&str) -> String;

/// Lines on their way to the control plane; the oldest make room and are counted. Cheap to clone.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    ambient: Ambient,
    redact: Redact,
    most_lines: usize,
    buffer: Mutex<Buffer>,
    arrived: Notify,
    /// The last lines, shipped or not, for whoever follows.
    recent: Recent,
}

#[derive(Default)]
struct Buffer {
    lines: VecDeque<LogLine>,
    dropped: u64,
}

impl Log {
    pub fn new(ambient: Ambient, most_lines: usize, redact: Redact) -> Self {
        let (buffer, arrived) = (Mutex::default(), Notify::new());
        let recent = Recent::new(most_lines.min(MOST_RECENT_LINES));
        Self(Arc::new(Inner { ambient, redact, most_lines, buffer, arrived, recent }))
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.0.buffer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a line for the control plane: redacted and cut.
    pub fn take(&self, level: LogLevel, source: &str, message: &str) {
        if matches!(level, LogLevel::Debug) || self.0.most_lines == 0 {
            return;
        }
        let message = cut(&(self.0.redact)(message), LOG_LINE_BYTES);
        let source = cut(source, 64);
        let line = LogLine { at: self.0.ambient.now(), level, source, message };
        self.0.recent.push(line.clone());
        let mut buffer = self.lock();
        if buffer.lines.len() >= self.0.most_lines {
            buffer.lines.pop_front();
            buffer.dropped += 1;
        }
        buffer.lines.push_back(line);
        drop(buffer);
        self.0.arrived.notify_one();
    }

    pub(crate) fn info(&self, source: &str, message: &str) {
        tracing::info!(target: TARGET, source, "{message}");
        self.take(LogLevel::Info, source, message);
    }

    pub(crate) fn warn(&self, source: &str, message: &str) {
        tracing::warn!(target: TARGET, source, "{message}");
        self.take(LogLevel::Warn, source, message);
    }

    pub(crate) fn error(&self, source: &str, message: &str) {
        tracing::error!(target: TARGET, source, "{message}");
        self.take(LogLevel::Error, source, message);
    }

    pub(crate) fn redacted(&self, text: &str, most_bytes: usize) -> String {
        cut(&(self.0.redact)(text), most_bytes)
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.0.recent
    }

    pub(crate) async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    /// The next lines, as many as one message holds.
    pub(crate) fn batch(&self) -> Option<LogBatch> {
        let mut buffer = self.lock();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while let Some(line) = buffer.lines.front() {
            // Each byte of text may become several in JSON.
            bytes +=
                128 + line.source.len() + serde_json::to_string(&line.message).map_or(0, |text| text.len());
            if lines.len() >= LOG_LINES_PER_BATCH || bytes > BATCH_BYTES {
                break;
            }
            lines.extend(buffer.lines.pop_front());
        }
        if lines.is_empty() {
            return None;
        }
        Some(LogBatch { lines, dropped: std::mem::take(&mut buffer.dropped) })
    }

    /// Lines that could not be sent go back to the front.
    pub(crate) fn restore(&self, batch: LogBatch) {
        let mut buffer = self.lock();
        buffer.dropped += batch.dropped;
        for line in batch.lines.into_iter().rev() {
            if buffer.lines.len() >= self.0.most_lines {
                buffer.dropped += 1;
            } else {
                buffer.lines.push_front(line);
            }
        }
    }
}

pub(crate) fn cut(text: &str, most_bytes: usize) -> String {
    let mut end = text.len().min(most_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(most: usize) -> Log {
        Log::new(Ambient::system(), most, |text| text.replace("hunter2", "[redacted]"))
    }

    #[test]
    fn lines_are_redacted_cut_and_counted_when_they_are_dropped() {
        let log = log(3);
        for n in 0..5 {
            log.take(LogLevel::Info, "test", &format!("{n} hunter2 {}", "é".repeat(LOG_LINE_BYTES)));
        }
        log.take(LogLevel::Debug, "test", "not shipped");
        let batch = log.batch().unwrap();
        assert_eq!((batch.lines.len(), batch.dropped), (3, 2));
        assert!(
            batch.lines.iter().all(|l| l.message.len() <= LOG_LINE_BYTES && !l.message.contains("hunter2"))
        );
        assert!(log.batch().is_none());
        log.restore(batch);
        assert_eq!(log.batch().unwrap().dropped, 2);
    }

    #[test]
    fn a_batch_fits_into_one_message() {
        let log = log(4000);
        for _ in 0..1000 {
            log.take(LogLevel::Info, "test", &"\u{1}".repeat(LOG_LINE_BYTES));
        }
        let mut seen = 0;
        while let Some(batch) = log.batch() {
            assert!(serde_json::to_vec(&batch).unwrap().len() <= node_proto::contract::LOGS.body_limit);
            seen += batch.lines.len();
        }
        assert_eq!(seen, 1000);
    }
}
