//! The node contract: what a node and the control plane say to each other, in types that both sides share.
//!
//! - [`contract`]: the routes as data, and their requests and answers. `openapi/node.json` is made from it.
//! - [`catalog`]: every kind of work there is, with typed input and output. A kind that is not here cannot be
//!   signed, sent or run; a kind that is here has a handler on the node, or the agent does not compile.
//! - [`task`]: one piece of work as it is signed, and how it is checked. The bytes that were signed are the
//!   bytes that are read: nothing is believed that the signature does not cover.
//! - [`grant`]: the right to open one stream to a node, signed and checked as tasks are.
//! - [`log_stream`]: what a stream of log lines carries.
//! - [`keyset`]: which signers a node believes. The list is signed by a key that the node pinned when it
//!   enrolled, so that neither the database nor the gateway can add one.
//!
//! **Versions.** The path carries the major version, the header [`contract::CONTRACT_HEADER`] the minor one.
//! Within a major version fields are only added, each side ignores what it does not know, and one minor
//! version of difference works in both directions (the previous contract is kept and tested).

pub mod canonical;
pub mod catalog;
pub mod contract;
pub mod grant;
pub mod keyset;
pub mod log_stream;
pub mod task;
pub mod text;

pub use catalog::{TaskKind, TaskType, Work};
pub use keyset::{Keyset, KeysetError, SignedKeyset, SignerKey, SignerState};
pub use task::{SignedTask, Task, TaskError};
