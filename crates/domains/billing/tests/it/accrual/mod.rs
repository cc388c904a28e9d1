//! What is used becomes what is owed: exactly, once, whoever crashes, races or steps the clock.

mod budgets;
mod crashes;
mod formula;
mod funds;
mod kit;
mod property;
mod races;
mod restart;
mod skew;
mod spend_caps;
mod starts;
mod states;
mod time;
mod worker;
