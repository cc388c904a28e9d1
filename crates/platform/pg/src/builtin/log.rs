//! The server's own log: passed on to ours, with the last lines kept for error messages. Bounded in both.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

const KEPT_LINES: usize = 12;
const LINE_MAX_BYTES: usize = 2048;
/// How long to wait for the rest of the log after the server has ended. Its orphans may hold the pipe open.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// Reads the server's standard error until it closes.
#[derive(Debug)]
pub(super) struct ServerLog {
    tail: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl ServerLog {
    pub(super) fn follow<R: AsyncRead + Unpin + Send + 'static>(stream: Option<R>) -> ServerLog {
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&tail);
        let reader =
            stream.map(|stream| tokio::spawn(read_lines(stream, move |line| tail_push(&kept, line))));
        ServerLog { tail, reader }
    }

    /// The last lines so far.
    pub(super) fn tail(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.iter().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }

    /// The last lines of a server that has ended.
    pub(super) async fn last_words(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            // Late or failed, what has been read by then is what there is to say.
            let _ = tokio::time::timeout(DRAIN_LIMIT, reader).await;
        }
        self.tail()
    }
}

fn tail_push(tail: &Mutex<VecDeque<String>>, line: String) {
    if line.contains("PANIC:") || line.contains("was terminated by signal") {
        tracing::warn!(line, "built-in PostgreSQL");
    } else {
        tracing::debug!(line, "built-in PostgreSQL");
    }
    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    if tail.len() == KEPT_LINES {
        tail.pop_front();
    }
    tail.push_back(line);
}

/// Cuts a stream into lines. What goes beyond the longest line is dropped, so memory stays bounded.
async fn read_lines<R: AsyncRead + Unpin>(mut stream: R, mut on_line: impl FnMut(String)) {
    let mut chunk = vec![0_u8; 4096];
    let mut line = Vec::new();
    while let Ok(count) = stream.read(&mut chunk).await {
        for byte in chunk.iter().take(count) {
            if *byte == b'\n' {
                on_line(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            } else if line.len() < LINE_MAX_BYTES {
                line.push(*byte);
            }
        }
        if count == 0 {
            break;
        }
    }
    if !line.is_empty() {
        on_line(String::from_utf8_lossy(&line).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endless_line_and_missing_newline_are_bounded_and_kept() {
        let text = format!("first\n{}\nlast", "x".repeat(100_000));
        let mut lines = Vec::new();
        read_lines(text.as_bytes(), |line| lines.push(line)).await;
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], "first");
        assert_eq!(lines[1].len(), LINE_MAX_BYTES);
        assert_eq!(lines[2], "last");
    }

    #[tokio::test]
    async fn only_the_last_lines_are_kept() {
        let text: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let mut log = ServerLog::follow(Some(std::io::Cursor::new(text)));
        let words = log.last_words().await;
        assert!(words.contains("line 99") && !words.contains("line 80 "), "{words}");
        assert_eq!(words.split(" | ").count(), KEPT_LINES);
    }
}
