//! Withdraws the open invitation of somebody who joined by another one.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer, decode};
use kernel::{Event as _, Stream, event::Envelope};
use pg::WriteTx;

use crate::{model::events::MemberAdded, service::invitations::invitation_close_for_member};

pub struct InvitationCloser;

#[async_trait]
impl Consumer for InvitationCloser {
    const NAME: &'static str = "identity-invitation-closer";
    const STREAM: Stream = Stream::Identity;
    const EVENT_TYPES: &'static [&'static str] = &[MemberAdded::TYPE];
    // Most newcomers have no open invitation left, and then nothing is closed.
    const AUDIT_ACTION: &'static str = "event.handle";
    const REASON: &'static str = "withdraw the invitation of somebody who joined";

    async fn handle(&self, tx: &mut WriteTx, envelope: &Envelope) -> Result<(), ConsumeError> {
        let joined: MemberAdded = decode(envelope)?;
        Ok(invitation_close_for_member(tx, joined.org_id, joined.user_id).await?)
    }
}
