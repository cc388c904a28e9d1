//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

mod consumers;
mod relay;

use crate::Relay;

pub use consumers::consumers;
pub use relay::send_due;

/// The lanes of messages and clean-up, until the task is aborted.
pub async fn run(relay: Relay) {
    relay::run(relay).await;
}
