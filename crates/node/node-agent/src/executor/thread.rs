//! A thread for each task: what hangs holds up nothing else, and what panics is caught.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use super::{Executor, Finish, Job};
use crate::{drivers::DriverError, handlers::Handlers};

pub struct ThreadExecutor {
    handlers: Arc<Handlers>,
}

impl ThreadExecutor {
    pub const fn new(handlers: Arc<Handlers>) -> Self {
        Self { handlers }
    }
}

impl Executor for ThreadExecutor {
    fn start(&self, job: Job, finish: Finish) {
        let handlers = self.handlers.clone();
        let name = job.task.task_type.clone();
        // The session bounds how many there are. Without a thread, `finish` is dropped, which says so.
        let _ = thread::Builder::new().name(name).spawn(move || {
            // Every line that the work writes can be found by what the control plane knows it as.
            let (task_id, correlation_id) = (job.task.task_id, job.task.correlation_id);
            let traceparent = job.task.traceparent.as_deref().unwrap_or_default();
            let span = tracing::info_span!("task", %task_id, %correlation_id, traceparent);
            let outcome = span.in_scope(|| catch_unwind(AssertUnwindSafe(|| handlers.run(&job))));
            finish.end(outcome.unwrap_or_else(|panic| {
                Err(DriverError::failed(format!("the handler panicked: {}", message(&*panic))))
            }));
        });
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
