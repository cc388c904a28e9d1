//! Thousands of simulated nodes in one process, on the real protocol.
//!
//! **How it works.** Each node is the real agent (`node-agent`): real keys and certificates, real signatures,
//! journals and long polls over real TLS. What is simulated lies behind the seams that the agent has anyway: the
//! machine (`node_agent::drivers::simulated`), the network ([`wire`]), the disk of its journal ([`journal`]), the
//! clock ([`clock`]) and the hands that do the work ([`executor`]). Faults happen there, never in the agent.
//! [`plan`] says how often, [`dice`] when: from the seed and the node's place in the list alone. What must go wrong
//! at a certain step of a certain task is in the [`script`]. Terminals into a node are real shells, confined
//! ([`terminals`]).
//!
//! **What it promises.** It proves nothing about hardware. It counts what happened ([`report`]): above all how
//! often each task was begun, which must never be more than once. A node costs little memory: descriptions are
//! made when somebody asks, identities and journals lie in files. Nodes that have enrolled come back without a
//! token when the process does.

pub mod clock;
pub mod create;
pub mod dice;
pub mod executor;
pub mod join;
pub mod journal;
pub mod limits;
pub mod node;
pub mod plan;
pub mod report;
pub mod run;
pub mod script;
pub mod state;
pub mod terminals;
pub mod wire;
