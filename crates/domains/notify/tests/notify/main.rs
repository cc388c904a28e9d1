//! Events in, notifications, mail and webhooks out: on a real database, over the real bus, with a real mail server and
//! real receivers. The clock is ours, so that a day passes in no time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod golden;
mod invitations;
mod lifecycles;
mod listeners;
mod mail;
mod notifying;
mod preferences;
mod receiver;
mod refusals;
mod streams;
mod webhooks;
mod world;
