//! The recording of one attachment: what passes through the pump is recorded before anybody sees it.
//!
//! A recorder makes chunks of it; a task of its own stores them, in order, from a short queue. While the storage keeps up, the
//! pump never waits. When it does not, the queue is full and the pump waits, and with it the node and the program. When a chunk
//! could not be stored for [`STORE_WITHIN`], the attachment ends: nobody goes on unrecorded.
//!
//! The node gets an acknowledgement only for output that is stored, so that whatever happens to this gateway, the next one can
//! get the rest from the node, and record it.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use chrono::TimeDelta;
use kernel::{Ambient, Failure, policy::TerminalRecording};
use node_tunnel::frame::Frame;
use objects::ObjectError;
use recording::{Chunk, Limits, Recorder, Size};
use tokio::{
    sync::{Mutex, Notify, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{
    farewell::End,
    meter::{Wait, WaitsFor},
    queue::Queue,
    storing::{Progress, ResumeError, STORE_WITHIN, Storing},
};
use crate::{
    Terminals,
    service::{
        recording_storage::StorageError,
        recordings::{NewRecording, recording_open, recording_seal},
    },
};

/// A fourth of what a node holds, so that it can go on while chunks are stored.
const LIMITS: Limits = Limits { chunk_bytes: 256 * 1024, chunk_age: TimeDelta::seconds(5) };
/// Chunks that wait to be stored.
const QUEUED: usize = 2;
/// Watching windows are behind by so much: one message tells of all output of this time.
const ANNOUNCE_AFTER: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A node waits ten seconds for the first frame.
const RESUME_WITHIN: Duration = Duration::from_secs(8);

/// Why the recording cannot go on, and so neither can the attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// What was recorded cannot be stored now.
    NotStored,
    /// What is stored was changed by somebody else.
    Tampered,
}

pub const UNAVAILABLE: &str = "the recording of the session cannot be stored; attach again in a moment";
pub const TAMPERED: &str = "what is stored of the session's recording was changed by somebody else, and nothing more of the session is \
     shown; end it, open a new one, and tell the operator of the installation";

/// A recorder, and its chunks that were not queued yet: whoever queues them may be cut off at any time.
struct Recording {
    recorder: Recorder,
    unqueued: VecDeque<Chunk>,
}

pub struct Tape {
    ambient: Ambient,
    /// Held while chunks are queued, so that they are queued in order.
    recorder: Mutex<Recording>,
    chunks: mpsc::Sender<Chunk>,
    progress: watch::Receiver<Progress>,
    storing: JoinHandle<()>,
    seals: Storing,
    records_input: bool,
    /// What the client has.
    acknowledged: AtomicU64,
    /// The number of the byte that the node sends next.
    position: AtomicU64,
    /// What the node was told last.
    forwarded: AtomicU64,
    /// All output before this byte is recorded, or lost.
    recorded_until: AtomicU64,
    /// More was recorded.
    recorded: Notify,
}

impl Tape {
    /// Takes the recording over from whichever gateway had it. Nothing when it is sealed: then the session has ended.
    pub async fn open(terminals: &Terminals, new: &NewRecording) -> Result<Option<Storing>, Failure> {
        let opened = recording_open(terminals, new).await?;
        let Some(opened) = opened else { return Ok(None) };
        let folder = terminals.recordings.folder(new.org, new.session)?;
        Ok(Some(Storing::new(terminals.clone(), new.session, folder, opened, new.expires_at)))
    }

    /// Goes on after the last chunk that is stored, or stores the first one. The stream to the node is open: whoever wrote
    /// before is detached.
    pub async fn start(
        storing: Storing,
        client_has: u64,
        (columns, rows): (u16, u16),
    ) -> Result<Self, ResumeError> {
        let ambient = storing.ambient().clone();
        let records_input = storing.mode() == TerminalRecording::OutputAndInput;
        let now = ambient.now();
        let starting = async {
            let resumed = storing.tail_find().await?;
            let predecessor_may_store = !resumed.is_released;
            if let Some(tail) = resumed.tail {
                let mut recorder = Recorder::resume(tail).with_limits(LIMITS);
                let mut chunks = recorder.resized(now, columns, rows);
                if records_input && predecessor_may_store {
                    chunks.extend(recorder.resumed(now));
                }
                return Ok::<_, ResumeError>((recorder, chunks, predecessor_may_store));
            }
            let recorder = Recorder::new(storing.session(), Size { columns, rows }, now);
            let mut recorder = recorder.with_limits(LIMITS).with_expiry(storing.expires_at());
            // Nothing is shown of a session whose recording cannot even begin.
            if let Some(chunk) = recorder.flush() {
                storing.store_first(chunk, predecessor_may_store).await?;
            }
            Ok((recorder, Vec::new(), false))
        };
        let started = timeout(RESUME_WITHIN, starting).await;
        let timed_out = |_| ResumeError::from(StorageError::from(ObjectError::TimedOut));
        let (recorder, early, predecessor_may_store) = started.map_err(timed_out)??;
        let (progress, progressed) =
            watch::channel(Progress { stored: recorder.next_sequence(), failure: None });
        let (chunks, to_store) = mpsc::channel(QUEUED);
        let seals = storing.clone();
        Ok(Self {
            ambient,
            recorder: Mutex::new(Recording { recorder, unqueued: early.into() }),
            chunks,
            progress: progressed,
            storing: tokio::spawn(storing.run(to_store, progress, predecessor_may_store)),
            seals,
            records_input,
            acknowledged: AtomicU64::new(client_has),
            position: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            recorded_until: AtomicU64::new(0),
            recorded: Notify::new(),
        })
    }

    /// What the recording needs next of the node.
    pub async fn next_sequence(&self) -> u64 {
        self.recorder.lock().await.recorder.next_sequence()
    }

    /// The node goes on with this byte. What was before it is recorded, or the node does not have it any more: windows that watch
    /// wait for nothing of it.
    pub fn set_position(&self, sequence: u64) {
        self.position.store(sequence, Ordering::Relaxed);
        if self.recorded_until.fetch_max(sequence, Ordering::Relaxed) < sequence {
            self.recorded.notify_one();
        }
    }

    /// Records the output that the node sent next. Answers how many of its first bytes the client has already.
    pub async fn output(&self, bytes: &[u8]) -> Result<usize, Unavailable> {
        let length = bytes.len() as u64;
        // Nobody else moves it; a node that sends more than can be numbered was broken off before.
        let sequence = self.position.load(Ordering::Relaxed);
        let end = sequence.saturating_add(length);
        self.position.store(end, Ordering::Relaxed);
        let mut recording = self.recorder.lock().await;
        let chunks = recording.recorder.output(self.ambient.now(), sequence, bytes);
        self.queue(&mut recording, chunks).await?;
        self.recorded_until.store(end, Ordering::Relaxed);
        self.recorded.notify_one();
        let known = self.acknowledged.load(Ordering::Relaxed).saturating_sub(sequence).min(length);
        Ok(usize::try_from(known).unwrap_or(bytes.len()))
    }

    /// What the client has: it is not told of an earlier byte.
    pub fn client_has(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub async fn input(&self, bytes: &[u8]) -> Result<(), Unavailable> {
        if !self.records_input {
            return Ok(());
        }
        let mut recording = self.recorder.lock().await;
        let chunks = recording.recorder.input(self.ambient.now(), bytes);
        self.queue(&mut recording, chunks).await
    }

    pub async fn resized(&self, columns: u16, rows: u16) -> Result<(), Unavailable> {
        let mut recording = self.recorder.lock().await;
        let chunks = recording.recorder.resized(self.ambient.now(), columns, rows);
        self.queue(&mut recording, chunks).await
    }

    /// Why the task that stores chunks has ended.
    fn failure(&self) -> Unavailable {
        self.progress.borrow().failure.unwrap_or(Unavailable::NotStored)
    }

    /// Waits while the storage is behind.
    async fn queue(
        &self,
        recording: &mut Recording,
        chunks: impl IntoIterator<Item = Chunk>,
    ) -> Result<(), Unavailable> {
        recording.unqueued.extend(chunks);
        while !recording.unqueued.is_empty() {
            let _wait = Wait::begin(WaitsFor::Recording);
            // The task gives up after a bounded time, and with it the queue.
            let place = self.chunks.reserve().await.map_err(|_| self.failure())?;
            if let Some(chunk) = recording.unqueued.pop_front() {
                place.send(chunk);
            }
        }
        Ok(())
    }

    /// The client has all bytes before this one. The node is told of those that are stored.
    pub fn acknowledge(&self, sequence: u64, queue: &Queue) {
        self.acknowledged.fetch_max(sequence, Ordering::Relaxed);
        // Not more than the node has sent: it would take that for a broken protocol.
        queue.push(Frame::Received { sequence: sequence.min(self.position.load(Ordering::Relaxed)) });
        self.forward(queue);
    }

    /// Tells the node what is recorded, soon after it was: no watching window sees it before.
    pub async fn announce_recorded(&self, queue: &Queue) {
        loop {
            self.recorded.notified().await;
            tokio::time::sleep(ANNOUNCE_AFTER).await;
            queue.push(Frame::Recorded { sequence: self.recorded_until() });
        }
    }

    pub fn recorded_until(&self) -> u64 {
        self.recorded_until.load(Ordering::Relaxed)
    }

    fn forward(&self, queue: &Queue) {
        let (stored, client) = (self.progress.borrow().stored, self.acknowledged.load(Ordering::Relaxed));
        let sequence = stored.min(client).min(self.position.load(Ordering::Relaxed));
        if self.forwarded.fetch_max(sequence, Ordering::Relaxed) < sequence {
            queue.push(Frame::Ack { sequence });
        }
    }

    /// Stores chunks when they are old enough, and tells the node what is stored. Ends when the storage has failed.
    pub async fn keep_storing(&self, queue: &Queue) -> Unavailable {
        let mut progress = self.progress.clone();
        let mut tick = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    let mut recording = self.recorder.lock().await;
                    let due = recording.recorder.chunk_if_due(self.ambient.now());
                    if let Err(unavailable) = self.queue(&mut recording, due).await {
                        return unavailable;
                    }
                }
                changed = progress.changed() => {
                    let failure = progress.borrow_and_update().failure;
                    if changed.is_err() || failure.is_some() {
                        return self.failure();
                    }
                    self.forward(queue);
                }
            }
        }
    }

    /// Stores what is left, and the seal when the session has ended. Whoever takes over waits for it, because what was typed is
    /// nowhere else.
    pub async fn finish(self, end: &End) {
        let Self { ambient, recorder, chunks, mut storing, seals, position, .. } = self;
        let Recording { mut recorder, unqueued } = recorder.into_inner();
        let session = seals.session();
        let finishing = async {
            let (left, statement) = match end {
                End::Session { reason, .. } => {
                    let finished = recorder.finish(ambient.now(), Some(position.into_inner()), reason);
                    (finished.chunks, Some(finished.statement.with_tampering(seals.tampering())))
                }
                End::Attachment | End::TakenOver => (recorder.flush().into_iter().collect(), None),
            };
            for chunk in unqueued.into_iter().chain(left) {
                chunks.send(chunk).await.ok()?;
            }
            let count = statement.as_ref().map(|statement| statement.chunks);
            drop(chunks);
            (&mut storing).await.ok()?;
            // All chunks are stored, or it is left to the job that seals what is not complete.
            let statement = statement.filter(|_| Some(seals.stored_chunks()) == count)?;
            Some(recording_seal(seals.terminals(), seals.folder(), statement).await)
        };
        match timeout(STORE_WITHIN, finishing).await {
            Ok(Some(Err(failure))) => {
                tracing::warn!(session_id = %session, error = ?failure, "a recording could not be sealed");
            }
            Ok(_) => {}
            Err(_) => {
                storing.abort();
                tracing::warn!(session_id = %session, "the end of a recording could not be stored in time");
            }
        }
    }
}
