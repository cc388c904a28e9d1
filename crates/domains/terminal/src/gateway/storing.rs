//! Chunks on their way to the object storage, in order, one at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use kernel::{Ambient, ids::TerminalSessionId, policy::TerminalRecording};
use objects::ObjectError;
use recording::{Chunk, Tail};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    Terminals,
    service::{
        recording_storage::{RecordingFolder, StorageError},
        recordings::{Opened, Stored, recording_note},
    },
};

/// A chunk is stored within this time, or the attachment ends.
pub const STORE_WITHIN: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The database is told of what is stored so often, which is also how soon a gateway notices that it was replaced.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// How far the storage has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// All output before this byte is stored.
    pub stored: u64,
    pub failed: bool,
}

/// The recording that this gateway writes.
#[derive(Clone)]
pub struct Storing {
    terminals: Terminals,
    session: TerminalSessionId,
    folder: RecordingFolder,
    opened: Opened,
    /// The number of chunks that are stored.
    chunks: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Storing {
    pub fn new(
        terminals: Terminals,
        session: TerminalSessionId,
        folder: RecordingFolder,
        opened: Opened,
    ) -> Self {
        let (chunks, bytes) = (opened.chunks.unsigned_abs(), opened.bytes.unsigned_abs());
        let (chunks, bytes) = (Arc::new(chunks.into()), Arc::new(bytes.into()));
        Self { terminals, session, folder, opened, chunks, bytes }
    }

    pub fn ambient(&self) -> &Ambient {
        self.terminals.db.ambient()
    }

    pub fn terminals(&self) -> &Terminals {
        &self.terminals
    }

    pub fn folder(&self) -> &RecordingFolder {
        &self.folder
    }

    pub fn session(&self) -> TerminalSessionId {
        self.session
    }

    pub fn mode(&self) -> TerminalRecording {
        self.opened.mode
    }

    pub fn stored_chunks(&self) -> Option<u64> {
        Some(self.chunks.load(Ordering::Relaxed))
    }

    /// The last chunk that is stored, whoever stored it.
    pub async fn tail_find(&mut self) -> Result<Option<Tail>, StorageError> {
        let tail = self.folder.tail_find(self.opened.chunks.unsigned_abs()).await?;
        let count = tail.as_ref().map_or(0, |tail| tail.header.index + 1);
        self.chunks.store(count, Ordering::Relaxed);
        Ok(tail)
    }

    pub async fn store(&self, chunk: Chunk) -> Result<(), StorageError> {
        let (index, content) = (chunk.index, Bytes::from(chunk.bytes));
        let length = content.len() as u64;
        let deadline = Instant::now() + STORE_WITHIN;
        loop {
            let put = self.folder.chunk_put(index, content.clone());
            let error = match tokio::time::timeout_at(deadline, put).await {
                Ok(Ok(())) => break,
                // Another gateway wrote it: this one must not go on.
                Ok(Err(error @ StorageError::Object(ObjectError::AlreadyExists))) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => return Err(ObjectError::TimedOut.into()),
            };
            if Instant::now() + RETRY_AFTER >= deadline {
                return Err(error);
            }
            tracing::debug!(session_id = %self.session, error = ?error, "a chunk could not be stored; trying again");
            tokio::time::sleep(RETRY_AFTER).await;
        }
        self.chunks.store(index + 1, Ordering::Relaxed);
        self.bytes.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Stores what comes until nothing more can come, or something could not be stored.
    pub async fn run(self, mut chunks: mpsc::Receiver<Chunk>, progress: watch::Sender<Progress>) {
        let mut noted = None::<Instant>;
        let mut is_noted = true;
        while let Some(chunk) = chunks.recv().await {
            let end_sequence = chunk.end_sequence;
            if let Err(error) = self.store(chunk).await {
                let reason = if matches!(error, StorageError::Object(ObjectError::AlreadyExists)) {
                    "conflict"
                } else {
                    "store"
                };
                metrics::counter!("terminal_recording_failures_total", "reason" => reason).increment(1);
                tracing::warn!(session_id = %self.session, error = ?error, "a recording could not be stored; its terminal is cut off");
                progress.send_modify(|progress| progress.failed = true);
                return;
            }
            progress.send_modify(|progress| progress.stored = end_sequence);
            is_noted = noted.is_none_or(|noted| noted.elapsed() >= NOTE_EVERY);
            if is_noted {
                noted = Some(Instant::now());
                if !self.note(end_sequence).await {
                    progress.send_modify(|progress| progress.failed = true);
                    return;
                }
            }
        }
        if !is_noted {
            let end_sequence = progress.borrow().stored;
            self.note(end_sequence).await;
        }
    }

    /// False when another gateway writes. What cannot be noted now is noted later: the object storage knows better.
    async fn note(&self, end_sequence: u64) -> bool {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let stored = Stored {
            chunks: number(self.chunks.load(Ordering::Relaxed)),
            end_sequence: number(end_sequence),
            bytes: number(self.bytes.load(Ordering::Relaxed)),
        };
        match recording_note(&self.terminals, self.session, self.opened.epoch, stored).await {
            Ok(is_writer) => is_writer,
            Err(failure) => {
                tracing::debug!(session_id = %self.session, error = ?failure, "what is stored could not be noted");
                true
            }
        }
    }
}
