//! From an event to notifications and messages, in the transaction that consumes the event.

use std::collections::HashMap;

use identity::api::{
    Recipient, Where, member_recipient, org_recipients, permission_recipients, platform_recipients,
};
use kernel::{Failure, Permission, event::Envelope, ids::OrgId, policy::keys, text::Email};
use pg::WriteTx;
use uuid::Uuid;

use crate::{
    Notify,
    model::{
        delivery::MailContent,
        events::{self, Notable},
        notice::{Audience, Notice},
        preferences::Choices,
        webhook::{WebhookBody, org_of},
    },
    store::{self, deliveries::Mail},
};

/// Tells people and webhooks of an event.
pub async fn event_notify(
    notify: &Notify,
    tx: &mut WriteTx,
    event: &impl Notable,
    envelope: &Envelope,
) -> Result<(), Failure> {
    if let Some((notice, audience)) = event.notice(envelope)
        && wanted(notify, &notice).await?
    {
        let people = listeners(tx, &audience).await?;
        people_notify(notify, tx, (envelope.event_id, &envelope.event_type), &notice, people).await?;
    }
    match org_of(envelope) {
        Some(org) => webhooks_queue(notify, tx, envelope, org).await,
        None => Ok(()),
    }
}

/// Whether the organization's policy lets people be told of it.
async fn wanted(notify: &Notify, notice: &Notice) -> Result<bool, Failure> {
    let Some(key) = notice.kind.policy() else { return Ok(true) };
    let place = Where { org: notice.target.org_id, ..Where::default() };
    notify.policies.setting_at(key, place).await
}

async fn listeners(tx: &mut WriteTx, audience: &Audience) -> Result<Vec<Recipient>, Failure> {
    Ok(match audience {
        Audience::Org { org, creator } => org_recipients(tx.conn(), *org, creator.as_slice()).await?,
        Audience::Creator { org, creator: Some(creator) } => {
            match member_recipient(tx.conn(), *org, *creator).await? {
                Some(creator) => vec![creator],
                // They left; somebody should know all the same.
                None => org_recipients(tx.conn(), *org, &[]).await?,
            }
        }
        Audience::Creator { org, creator: None } => org_recipients(tx.conn(), *org, &[]).await?,
        Audience::Platform => platform_recipients(tx.conn()).await?,
        Audience::MoneyApprovers { proposed_by } => {
            let mut people = permission_recipients(tx.conn(), Permission::MoneyManage).await?;
            people.retain(|person| Some(person.user_id) != *proposed_by);
            people
        }
    })
}

/// Each as they prefer.
pub async fn people_notify(
    notify: &Notify,
    tx: &mut WriteTx,
    (event, event_type): (Uuid, &str),
    notice: &Notice,
    people: Vec<Recipient>,
) -> Result<(), Failure> {
    let ambient = tx.db().ambient().clone();
    let now = ambient.now();
    let ids: Vec<_> = people.iter().map(|person| person.user_id).collect();
    let chosen: HashMap<_, _> = store::preferences::of_many(tx.conn(), &ids).await?.into_iter().collect();
    let none = Choices::default();
    let (mut shown, mut mails) = (Vec::new(), Vec::new());
    for person in people {
        let choice = chosen.get(&person.user_id).unwrap_or(&none).choice_for(notice.kind);
        if choice.in_app {
            shown.push((ambient.id(), person.user_id));
        }
        if choice.email && notify.settings.smtp.is_some() {
            // An address that we would not have accepted is not written to.
            let Some(address) = person.email.and_then(|email| Email::parse(email).ok()) else { continue };
            let content = serde_json::to_string(&MailContent { name: person.name, notice: notice.clone() })?;
            mails.push(Mail {
                id: ambient.id(),
                person: person.user_id,
                address: address.into_string(),
                content,
            });
        }
    }
    if !shown.is_empty() {
        store::notices::insert(tx.conn(), event, notice, &shown, now).await?;
    }
    if !mails.is_empty() {
        let about = (event, event_type, notice.target.org_id);
        store::deliveries::insert_mails(tx.conn(), about, &mails, now).await?;
    }
    Ok(())
}

/// How many messages to the webhooks of an organization may wait, when so many do.
pub(super) async fn queue_full(
    notify: &Notify,
    tx: &mut WriteTx,
    org: OrgId,
) -> Result<Option<i64>, Failure> {
    // Read over this connection: whoever has one open must not wait for another.
    notify.policies.warm(tx.conn(), &[Some(org)]).await?;
    let place = Where { org: Some(org), ..Where::default() };
    let most = notify.policies.setting_at(keys::NOTIFY_QUEUED_WEBHOOK_MESSAGES, place).await?.get();
    Ok((store::webhooks::queued_count(tx.conn(), org, most).await? >= most).then_some(most))
}

async fn webhooks_queue(
    notify: &Notify,
    tx: &mut WriteTx,
    envelope: &Envelope,
    org: OrgId,
) -> Result<(), Failure> {
    if !events::of_organizations().any(|known| known == envelope.event_type) {
        return Ok(());
    }
    let ambient = tx.db().ambient().clone();
    let hooks = store::webhooks::wanting(tx.conn(), org, &envelope.event_type, ambient.now()).await?;
    if hooks.is_empty() {
        return Ok(());
    }
    if queue_full(notify, tx, org).await?.is_some() {
        metrics::counter!("notify_dropped_total").increment(1);
        return Ok(store::webhooks::count_dropped(tx.conn(), &hooks, ambient.now()).await?);
    }
    let hooks: Vec<_> = hooks.into_iter().map(|hook| (ambient.id(), hook)).collect();
    let body = WebhookBody::from_envelope(envelope, org);
    let content = serde_json::to_string(&body)?;
    store::deliveries::insert_hooks(tx.conn(), &body, &content, &hooks, ambient.now()).await?;
    Ok(())
}
