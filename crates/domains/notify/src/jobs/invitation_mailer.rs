//! Mails invitations to the addresses that they are for.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer};
use events::{ConsumerName, identity::InvitationCreated};
use kernel::event::Envelope;
use pg::WriteTx;

use crate::{Notify, service::invitations::invitation_queue};

pub struct InvitationMailer(pub Notify);

#[async_trait]
impl Consumer for InvitationMailer {
    const NAME: &'static str = ConsumerName::InvitationMails.name();
    type Events = InvitationCreated;
    const AUDIT_ACTION: &'static str = "notification.tell";
    const REASON: &'static str = "mail an invitation to its address";

    async fn handle(
        &self,
        tx: &mut WriteTx,
        created: &InvitationCreated,
        envelope: &Envelope,
    ) -> Result<(), ConsumeError> {
        Ok(invitation_queue(&self.0, tx, envelope.event_id, created).await?)
    }
}
