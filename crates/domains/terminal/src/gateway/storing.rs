//! Chunks on their way to the object storage, in order, one at a time.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use kernel::{Ambient, Failure, ids::TerminalSessionId, policy::TerminalRecording};
use objects::ObjectError;
use recording::{Chunk, Fault, Tail};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout_at},
};

use super::tape::Unavailable;
use crate::{
    Terminals,
    service::{
        recording_storage::{RecordingFolder, StorageError},
        recordings::{Opened, Stored, Writes, recording_note, recording_stored, tampering_note},
    },
};

/// A chunk is stored within this time, or the attachment ends.
pub const STORE_WITHIN: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The database is told of what is stored within this time, which is also how soon a gateway notices that it was replaced.
const NOTE_EVERY: Duration = Duration::from_secs(5);
/// How long whoever takes over waits for the one before to store what it has: that one may be dead. Nodes keep output, so that
/// only what was typed is worth a longer wait.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);
const RELEASED_WITHIN_TYPED: Duration = Duration::from_secs(3);
/// Nobody wrote before.
const FIRST_EPOCH: i64 = 1;
/// How often it is looked, at first and at last.
const RELEASED_LOOK_FIRST: Duration = Duration::from_millis(20);
const RELEASED_LOOK_LAST: Duration = Duration::from_millis(250);

/// The pause after the next look at whether the one before has released the recording.
fn release_look_next(pause: Duration) -> Duration {
    (pause * 2).min(RELEASED_LOOK_LAST)
}

/// How far the storage has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// All output before this byte is stored.
    pub stored: u64,
    /// Nothing more is stored.
    pub failure: Option<Unavailable>,
}

/// What became of a note in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    /// It is noted, and this gateway is the one that writes.
    Writer,
    /// Another gateway writes, or the recording is sealed.
    Replaced,
    /// The database could not be told.
    Failed,
}

/// Why a recording does not go on.
#[derive(Debug)]
pub enum ResumeError {
    /// It is closed: its session has ended.
    Closed,
    /// What is stored is not what was stored.
    Tampered(Fault),
    Unavailable(Failure),
}

impl From<StorageError> for ResumeError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Fault(fault) => Self::Tampered(fault),
            other => Self::Unavailable(other.into()),
        }
    }
}

/// Where a recording goes on.
pub struct Resumed {
    /// The last chunk that is stored, whoever stored it; nothing when there is none.
    pub tail: Option<Tail>,
    /// Whether the one before stored everything that it had, and stores no more.
    pub is_released: bool,
}

/// The recording that this gateway writes.
#[derive(Clone)]
pub struct Storing {
    terminals: Terminals,
    session: TerminalSessionId,
    folder: RecordingFolder,
    opened: Opened,
    /// The first chunk says so.
    expires_at: DateTime<Utc>,
    stored: Arc<Mutex<Stored>>,
}

impl Storing {
    pub fn new(
        terminals: Terminals,
        session: TerminalSessionId,
        folder: RecordingFolder,
        opened: Opened,
        expires_at: DateTime<Utc>,
    ) -> Self {
        Self { terminals, session, folder, opened, expires_at, stored: Arc::default() }
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(|e| e.into_inner())
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

    pub fn expires_at(&self) -> DateTime<Utc> {
        self.expires_at
    }

    /// What was found changed before this gateway took over.
    pub fn tampering(&self) -> Option<String> {
        self.opened.tampering.clone()
    }

    pub fn stored_chunks(&self) -> u64 {
        self.stored().chunks.unsigned_abs()
    }

    /// Where to go on, when the one before writes no more, or has had its time.
    pub async fn tail_find(&self) -> Result<Resumed, ResumeError> {
        let (mut stored, is_released) = self.wait_until_released().await.map_err(ResumeError::Unavailable)?;
        let tail = loop {
            let walked = self.folder.tail_walk(stored, self.opened.tampering.as_deref()).await?;
            stored = walked.stored.clone();
            *self.stored() = walked.stored;
            if walked.is_end {
                break walked.tail;
            }
            // Whoever tries again when this takes too long begins here.
            self.note(Writes::More).await;
        };
        if tail.as_ref().is_some_and(|tail| tail.is_closed) {
            return Err(ResumeError::Closed);
        }
        Ok(Resumed { tail, is_released })
    }

    async fn wait_until_released(&self) -> Result<(Stored, bool), Failure> {
        if self.opened.epoch == FIRST_EPOCH {
            return Ok((Stored::default(), true));
        }
        let within = match self.mode() {
            TerminalRecording::OutputAndInput => RELEASED_WITHIN_TYPED,
            TerminalRecording::Output | TerminalRecording::Off => RELEASED_WITHIN,
        };
        let deadline = Instant::now() + within;
        let mut look_after = RELEASED_LOOK_FIRST;
        loop {
            let found = recording_stored(&self.terminals, self.session, self.opened.epoch - 1).await?;
            if found.1 || Instant::now() >= deadline {
                return Ok(found);
            }
            tokio::time::sleep_until((Instant::now() + look_after).min(deadline)).await;
            look_after = release_look_next(look_after);
        }
    }

    /// Stores the first chunk. Nobody goes on before it is noted: until then, whoever can write to the object storage could
    /// put another one in its place.
    pub async fn store_first(&self, chunk: Chunk, predecessor_may_store: bool) -> Result<(), ResumeError> {
        self.store(chunk, predecessor_may_store).await?;
        let stored = self.stored().clone();
        let noted = recording_note(&self.terminals, self.session, self.opened.epoch, &stored, Writes::More);
        noted.await.map(drop).map_err(ResumeError::Unavailable)
    }

    /// When there is another chunk in its place, a gateway stored that one, or somebody else did. While this gateway is the one
    /// that writes, no other stores anything but the one before, until it finds the first chunk of this one in its way.
    async fn store(&self, chunk: Chunk, predecessor_may_store: bool) -> Result<(), StorageError> {
        let index = chunk.index;
        match self.put(chunk).await {
            Err(StorageError::Object(ObjectError::AlreadyExists))
                if !predecessor_may_store && self.is_writer().await =>
            {
                Err(Fault::NotStoredByGateway { index }.into())
            }
            other => other,
        }
    }

    /// Notes where the chunks of this gateway end, and with that asks whether it is the one that writes. False when the
    /// database does not say so in time.
    async fn is_writer(&self) -> bool {
        let deadline = Instant::now() + STORE_WITHIN;
        loop {
            match self.note(Writes::More).await {
                Noted::Writer => return true,
                Noted::Replaced => return false,
                Noted::Failed if Instant::now() + RETRY_AFTER >= deadline => return false,
                Noted::Failed => tokio::time::sleep(RETRY_AFTER).await,
            }
        }
    }

    async fn put(&self, chunk: Chunk) -> Result<(), StorageError> {
        let (index, content) = (chunk.index, Bytes::from(chunk.bytes));
        let length = content.len() as u64;
        let deadline = Instant::now() + STORE_WITHIN;
        loop {
            let put = self.folder.chunk_put(index, content.clone());
            let error = match timeout_at(deadline, put).await {
                Ok(Ok(())) => break,
                // Whoever stored another one: this gateway must not go on.
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
        metrics::counter!("terminal_recording_stored_bytes_total").increment(length);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut stored = self.stored();
        *stored = Stored {
            chunks: number(index + 1),
            end_sequence: number(chunk.end_sequence),
            bytes: stored.bytes.saturating_add(number(length)),
            head: Some(chunk.digest.0),
        };
        Ok(())
    }

    /// Stores what comes until nothing more can come, or something could not be stored. A gateway that was replaced stores what
    /// it still gets: the next one waits for that. `predecessor_may_store`: the one before did not say that it stores no more.
    /// Until a chunk of this one is in its way, nobody may believe that everything is there.
    pub async fn run(
        self,
        mut chunks: mpsc::Receiver<Chunk>,
        progress: watch::Sender<Progress>,
        mut predecessor_may_store: bool,
    ) {
        // When the database is to be told of chunks that it does not know.
        let mut note_at = None::<Instant>;
        let mut noted_at = None::<Instant>;
        loop {
            let next = match note_at {
                Some(note_at) => timeout_at(note_at, chunks.recv()).await,
                None => Ok(chunks.recv().await),
            };
            match next {
                Ok(None) => break,
                Ok(Some(chunk)) => {
                    let end_sequence = chunk.end_sequence;
                    if let Err(error) = self.store(chunk, predecessor_may_store).await {
                        let failure = self.report_unstored(error).await;
                        progress.send_modify(|progress| progress.failure = Some(failure));
                        return;
                    }
                    progress.send_modify(|progress| progress.stored = end_sequence);
                    predecessor_may_store = false;
                    let due = noted_at.map_or_else(Instant::now, |noted_at| noted_at + NOTE_EVERY);
                    note_at.get_or_insert(due);
                }
                // Nothing more came.
                Err(_) => {}
            }
            if note_at.is_some_and(|note_at| note_at <= Instant::now()) {
                noted_at = Some(Instant::now());
                let noted = self.note(Writes::More).await;
                note_at = (noted == Noted::Failed).then(|| Instant::now() + NOTE_EVERY);
                if noted == Noted::Replaced {
                    progress.send_modify(|progress| progress.failure = Some(Unavailable::NotStored));
                }
            }
        }
        self.note(if predecessor_may_store { Writes::More } else { Writes::Released }).await;
    }

    /// Whoever attaches next is told that the recording was changed, if it was: that is noted before this attachment ends, which is
    /// told the same.
    async fn report_unstored(&self, error: StorageError) -> Unavailable {
        let reason = match &error {
            StorageError::Fault(_) => "tampering",
            StorageError::Object(ObjectError::AlreadyExists) => "conflict",
            StorageError::Object(_) | StorageError::Key(_) => "store",
        };
        metrics::counter!("terminal_recording_failures_total", "reason" => reason).increment(1);
        tracing::warn!(session_id = %self.session, error = ?error, "a recording could not be stored; its terminal is cut off");
        let StorageError::Fault(fault) = error else { return Unavailable::NotStored };
        if let Err(failure) = tampering_note(&self.terminals, self.session, &fault).await {
            tracing::warn!(session_id = %self.session, error = ?failure, "what was found changed could not be noted");
        }
        Unavailable::Tampered
    }

    /// What cannot be noted now is noted later: the object storage knows better.
    async fn note(&self, writes: Writes) -> Noted {
        let stored = self.stored().clone();
        match recording_note(&self.terminals, self.session, self.opened.epoch, &stored, writes).await {
            Ok(true) => Noted::Writer,
            Ok(false) => Noted::Replaced,
            Err(failure) => {
                tracing::debug!(session_id = %self.session, error = ?failure, "what is stored could not be noted");
                Noted::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_looks_at_a_release_are_soon_and_all_of_them_are_few() {
        let pauses =
            std::iter::successors(Some(RELEASED_LOOK_FIRST), |pause| Some(release_look_next(*pause)));
        let waited = pauses.scan(Duration::ZERO, |sum, pause| {
            *sum += pause;
            Some(*sum)
        });
        let looks: Vec<Duration> = waited.take_while(|waited| *waited < RELEASED_WITHIN_TYPED).collect();
        assert!(looks[1] < Duration::from_millis(100), "{looks:?}");
        assert!(looks.len() < 20, "{looks:?}");
    }
}
