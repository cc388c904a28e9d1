//! Mails invitations to the addresses that they are for.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer, decode};
use identity::api::events::InvitationCreated;
use kernel::{Event as _, Stream, event::Envelope};
use pg::WriteTx;

use crate::{Notify, service::invitations::invitation_queue};

pub struct InvitationMailer(pub Notify);

#[async_trait]
impl Consumer for InvitationMailer {
    const NAME: &'static str = "notify-invitations";
    const STREAM: Stream = Stream::Identity;
    const EVENT_TYPES: &'static [&'static str] = &[InvitationCreated::TYPE];
    const AUDIT_ACTION: &'static str = "notification.tell";
    const REASON: &'static str = "mail an invitation to its address";

    async fn handle(&self, tx: &mut WriteTx, envelope: &Envelope) -> Result<(), ConsumeError> {
        let created: InvitationCreated = decode(envelope)?;
        Ok(invitation_queue(&self.0, tx, envelope.event_id, &created).await?)
    }
}
