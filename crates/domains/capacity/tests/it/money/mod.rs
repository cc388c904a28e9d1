//! Allocations with real money: what a launch sets aside, what ends when it is used up, and what sick hardware gives
//! back. On a real database; the workflows are the real ones, and time is made by hand.

mod bank;
mod budgets;
mod credits;
mod depletion;
mod explained;
mod failed_launches;
mod fault_reviews;
mod fault_times;
mod funds;
mod races;
mod spend_caps;

use super::{
    launch::world,
    workflow::{kit, node},
};
