//! What other domains may use.

pub use crate::{
    Fleet,
    service::{
        completion::{CompletedTask, Completion, TaskEnding},
        tasks::{TaskRequest, Waiting},
    },
};
