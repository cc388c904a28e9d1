//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

pub mod consumers;
pub mod relay;
