//! `gpuaas terminal`: a window on a shell that runs on a machine.
//!
//! The shell belongs to a session on the node and outlives its windows. This program is one window: `run` mints a token for
//! each connection, connects (`socket`), and attaches (`attach`); when the connection is lost it does so again, with pauses
//! (`retry`), and says to the server how many bytes of output it has, so that no byte of output is lost or shown twice.
//! `report` says how it ended.
//!
//! - Output counts when it is written to the local terminal (`screen`), which is what is acknowledged (`flow`).
//! - Input is sent within the window of the server and never sent again: when the connection is cut, keys that were typed
//!   shortly before may be lost, and what is typed before the connection is back is dropped. No key arrives twice: a
//!   command that ran twice would be worse than one that is typed again.
//! - The terminal is in raw mode (`raw`) from the first attachment to the end, and keys are read all the time (`local`), so
//!   that the escapes (`escape`) work without a connection too.
//! - The token is a header of one request. It is never printed, logged, stored, or part of an address.

mod attach;
#[cfg(test)]
mod attach_tests;
mod escape;
mod flow;
mod local;
mod mint;
mod protocol;
mod raw;
mod report;
mod retry;
mod run;
mod screen;
mod socket;

pub use escape::EscapeKey;
pub use local::{Leave, Local, require_terminal};
pub use mint::{ApiMint, Refusal, Retry};
pub use protocol::Access;
pub use report::{CommandLine, Outcome};
pub use retry::Retries;
pub use run::Run;
pub use screen::Screen;
pub use socket::{Socket, Ticket, connect_to, http_client};
