//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

mod consumers;
mod invitation_mailer;
mod relay;

use tokio_util::sync::CancellationToken;

use crate::{Notify, Relay};

pub use relay::send_due;

/// Every consumer of this domain.
pub fn consumers(notify: &Notify) -> Vec<bus::Registration> {
    let mut all = consumers::consumers(notify);
    all.push(bus::Registration::for_consumer(invitation_mailer::InvitationMailer(notify.clone())));
    all
}

/// The lanes of messages and clean-up, until `stop`. What is being sent then has a few seconds to arrive; the rest is given
/// back for another process to send at once.
pub async fn run(relay: Relay, stop: CancellationToken) {
    relay::run(relay, stop).await;
}
