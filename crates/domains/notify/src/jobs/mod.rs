//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

mod consumers;
mod relay;

use tokio_util::sync::CancellationToken;

use crate::Relay;

pub use consumers::consumers;
pub use relay::send_due;

/// The lanes of messages and clean-up, until `stop`. What is being sent then has a few seconds to arrive; the rest is given
/// back for another process to send at once.
pub async fn run(relay: Relay, stop: CancellationToken) {
    relay::run(relay, stop).await;
}
