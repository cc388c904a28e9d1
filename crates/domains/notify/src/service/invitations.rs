//! Mails that invite. What is queued names the invitation; the mail is put together when it is sent, from the invitation as
//! it is then, so that the link is stored nowhere and an invitation that was withdrawn meanwhile is not mailed.

use events::identity::InvitationCreated;
use identity::api::invitation_find_open;
use kernel::{Event as _, Failure, text::Email};
use pg::WriteTx;
use uuid::Uuid;

use super::sending::UPKEEP;
use crate::{
    Notify, Relay,
    model::{
        delivery::{InvitationContent, LeasedDelivery, Outcome},
        mail::render_invitation,
    },
    store,
};

/// Queues the mail, in the transaction that consumes the event. Nothing where no mail is sent, and for an invitation that
/// is not open any more.
pub async fn invitation_queue(
    notify: &Notify,
    tx: &mut WriteTx,
    event: Uuid,
    created: &InvitationCreated,
) -> Result<(), Failure> {
    if notify.settings.smtp.is_none() {
        return Ok(());
    }
    let ambient = tx.db().ambient().clone();
    let now = ambient.now();
    let Some(open) = invitation_find_open(tx.conn(), created.invitation_id, now).await? else {
        return Ok(());
    };
    let Ok(address) = Email::parse(open.email) else { return Ok(()) };
    let content = serde_json::to_string(&InvitationContent { invitation_id: open.id })?;
    let about = (event, InvitationCreated::TYPE, open.org_id);
    let mail = (ambient.id(), address.as_str(), content.as_str());
    Ok(store::deliveries::insert_invitation(tx.conn(), about, mail, now).await?)
}

/// One attempt to send a mail that invites.
pub async fn send(relay: &Relay, taken: &LeasedDelivery) -> Result<Outcome, Failure> {
    let settings = &relay.notify.settings;
    let content: InvitationContent = match serde_json::from_str(&taken.content) {
        Ok(content) => content,
        Err(_) => return Ok(Outcome::Never("the content of the message cannot be read".to_owned())),
    };
    let now = relay.notify.db.ambient().now();
    let mut upkeep = relay.notify.db.upkeep(UPKEEP).await?;
    let found = invitation_find_open(upkeep.conn(), content.invitation_id, now).await?;
    // Before the mail server is spoken to: it may take its time.
    drop(upkeep);
    let Some(open) = found else {
        return Ok(Outcome::Never("the invitation was accepted, revoked, or has expired".to_owned()));
    };
    let link = settings.invitation_links.link(open.id, &open.email);
    Ok(relay.mailer.send_rendered(settings, taken, render_invitation(&open, &link)).await)
}
