//! SQL: the only writer of this domain's tables.

pub mod days;
pub mod disputes;
pub mod payments;
pub mod refunds;
pub mod topups;
pub mod webhooks;
