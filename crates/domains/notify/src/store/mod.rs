//! SQL: the only writer of this domain's tables.

pub mod deliveries;
pub mod notices;
pub mod preferences;
pub mod relay;
pub mod webhooks;
