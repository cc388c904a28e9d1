//! Taking in messages of the provider: believed, then kept, then answered.

use kernel::{Code, Failure, Problem};

use crate::{
    Payments,
    model::{webhook, wire::Label},
    store::webhooks,
};

/// The longest message that is taken.
pub const MOST_BYTES: usize = 256 * 1024;
const LONGEST_LABEL: usize = 200;

/// Keeps a message whose signature is good; it is safe when this returns. One that is not believed leaves nothing but
/// a count. One that came before is kept once.
pub async fn take(payments: &Payments, signature: Option<&str>, body: &[u8]) -> Result<(), Failure> {
    let now = payments.db.ambient().now();
    let checked = match signature {
        Some(header) => webhook::verify(header, body, &payments.settings.webhook_secrets, now),
        None => Err(webhook::Fault::Malformed),
    };
    if let Err(fault) = checked {
        metrics::counter!("payment_messages_refused_total", "why" => fault.name()).increment(1);
        let text = match fault {
            webhook::Fault::Malformed => "The message has no valid signature header.",
            webhook::Fault::Stale => "The timestamp of the signature is too old or in the future.",
            webhook::Fault::Unsigned => "The signature of the message is not valid.",
        };
        return Err(Problem::new(Code::InvalidRequest, text)
            .suggest("Check the signing secret of the webhook endpoint, and the clocks of both sides.")
            .into());
    }
    let label = serde_json::from_slice::<Label>(body).ok();
    let fits = |text: &str| (1..=LONGEST_LABEL).contains(&text.len()) && !text.contains('\0');
    let Some(label) = label.filter(|label| fits(&label.id) && fits(&label.kind)) else {
        metrics::counter!("payment_messages_refused_total", "why" => "unreadable").increment(1);
        return Err(Problem::new(Code::InvalidRequest, "The message has no id and type.").into());
    };
    // Bookkeeping of the machinery: what it means is done, and audited, when it is processed.
    let mut upkeep = payments.db.upkeep("keep a message of the payment provider").await?;
    let (id, provider) = (payments.db.ambient().id(), payments.provider.name());
    let new =
        webhooks::message_insert(upkeep.conn(), id, provider, (&label.id, &label.kind), body, now).await?;
    let how = if new { "new" } else { "again" };
    metrics::counter!("payment_messages_received_total", "how" => how).increment(1);
    Ok(())
}
