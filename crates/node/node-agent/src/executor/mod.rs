//! Who does the work that the session hands over.
//!
//! The session decides what may run and how many at once; an executor only does it and says how it ended. On a
//! real node that is a thread per task ([`ThreadExecutor`]); a simulated node brings its own. A handler that
//! runs out of time is not waited for, but its place stays taken until it has really ended, so that no more of
//! a kind run than the catalog allows, and nothing else is done about the same owner meanwhile.

mod thread;
mod track;

use std::{any::Any, path::Path, sync::Arc};

use node_proto::{Task, Work};
use serde_json::Value;
use tokio::sync::oneshot;

pub use thread::ThreadExecutor;
pub use track::{Stop, Track};

use crate::drivers::Done;

/// Where a task that replaces the agent gets the program. Blocking.
pub trait ProgramSource: Send + Sync {
    /// Writes the program with this digest to `to`, at most `size_bytes`; the caller checks what came.
    fn fetch(&self, sha256: &str, size_bytes: u64, to: &Path) -> Done<()>;
}

/// A task that is to be done now: it was checked, and the journal says that it was started.
pub struct Job {
    pub task: Task,
    pub work: Work,
    /// The phases that the work comes to, and whether it should stop.
    pub steps: Arc<Track>,
    pub programs: Arc<dyn ProgramSource>,
}

/// How an executor says that a job has ended. Dropping it means that the handler broke down.
pub struct Finish {
    tell: oneshot::Sender<Done<Value>>,
    place: Box<dyn Any + Send>,
}

impl Finish {
    /// `place` is dropped when the job has really ended.
    pub fn new(place: impl Any + Send) -> (Self, oneshot::Receiver<Done<Value>>) {
        let (tell, told) = oneshot::channel();
        (Self { tell, place: Box::new(place) }, told)
    }

    pub fn end(self, outcome: Done<Value>) {
        // Nobody listens any more when the time was up.
        let _ = self.tell.send(outcome);
        drop(self.place);
    }
}

pub trait Executor: Send + Sync + 'static {
    /// Begins the job and returns at once.
    fn start(&self, job: Job, finish: Finish);
}
