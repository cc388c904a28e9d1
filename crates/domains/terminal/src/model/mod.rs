//! Tokens, sessions, and the messages of a terminal.

pub mod log;
pub mod message;
pub mod recording;
pub mod session;
pub mod ssh;
pub mod token;
