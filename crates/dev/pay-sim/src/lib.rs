//! A payment provider that does not exist, for machines where no real money shall move.
//!
//! **What it is for.** `make up` and the tests take payments through it: it speaks the public wire format of Stripe, so
//! that the client which talks to it is the client which talks to Stripe. Its checkout page says that it is simulated.
//!
//! **How it works.** One small HTTP server (`router`) keeps everything in one [`state`] that is written to a file before
//! a request is answered. What happens is told by signed webhooks ([`delivery`]), each repeated until it is taken or
//! the attempts are used up. `/sim/` is what a real provider does not offer: cards that are disputed, refunds that
//! fail, payments that are missing from a list or that nobody made.
//!
//! **What it promises.** What was answered is not forgotten by a restart, and neither is a message that was not taken.
//! Messages come at least once and in no order, as the real ones do; chaos flags make that worse. It listens on this
//! machine only unless it is told otherwise.

mod api;
mod checkout;
pub mod delivery;
mod disputes;
mod fault;
mod form;
mod invented;
mod lists;
mod page;
mod payments;
mod refunds;
mod router;
pub mod secrets;
pub mod signature;
pub mod sim;
mod state;

pub use router::router;
pub use sim::{Options, Sim};
