//! The ledger on a real database: what it refuses, what is found when somebody gets past that, and what is signed.

mod canonical;
mod checkpoints;
mod endpoints;
mod kit;
mod months;
mod reading;
mod refusals;
mod tampering;

use super::reports::kit as web;
