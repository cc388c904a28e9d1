//! Withdraws the open invitation of somebody who joined by another one.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer};
use events::{ConsumerName, identity::MemberAdded};
use kernel::event::Envelope;
use pg::WriteTx;

use crate::service::invitations::invitation_close_for_member;

pub struct InvitationCloser;

#[async_trait]
impl Consumer for InvitationCloser {
    const NAME: &'static str = ConsumerName::InvitationCloser.name();
    type Events = MemberAdded;
    // Most newcomers have no open invitation left, and then nothing is closed.
    const AUDIT_ACTION: &'static str = "event.handle";
    const REASON: &'static str = "withdraw the invitation of somebody who joined";

    async fn handle(&self, tx: &mut WriteTx, joined: &MemberAdded, _: &Envelope) -> Result<(), ConsumeError> {
        Ok(invitation_close_for_member(tx, joined.org_id, joined.user_id).await?)
    }
}
