//! What a message means, once: its effect and the mark that it was processed are one transaction.

use chrono::TimeDelta;
use kernel::Failure;
use pg::WriteTx;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{MessageResult, disputes, later, refunds, settle, write};
use crate::{
    Payments,
    model::{
        topup::TopupState,
        webhook::MessageState,
        wire::{CheckoutSession, Dispute, Message, Refund},
    },
    store::webhooks::{self, LeasedMessage},
};

/// After so many tries, about a day later, a message waits for somebody to look at it.
const MOST_ATTEMPTS: i32 = 150;
const FIRST_SECONDS: i64 = 1;
const LONGEST_SECONDS: i64 = 600;

/// Processes the next message that is due. Whether there was one.
pub async fn process_next(payments: &Payments) -> Result<bool, Failure> {
    let now = payments.db.ambient().now();
    let reason = "process a message of the payment provider";
    let mut tx = write(payments, reason, "payment_message.process", None).await?;
    let Some(message) = webhooks::take_due(tx.conn(), payments.provider.name(), now).await? else {
        tx.roll_back().await;
        return Ok(false);
    };
    let (id, attempts) = (message.id, message.attempts + 1);
    let result = message_apply(payments, &mut tx, &message).await;
    let (state, why) = match result {
        Ok(MessageResult::Done(why)) => (MessageState::Processed, why.to_owned()),
        Ok(MessageResult::Ignored(why)) => (MessageState::Ignored, why.to_owned()),
        Ok(MessageResult::Failed(why)) => (MessageState::Failed, why),
        Ok(MessageResult::Waits { intent }) => {
            tx.roll_back().await;
            let why = "the payment that it is about is not known yet";
            return postpone(payments, &message, why, Some(&intent)).await;
        }
        Err(failure) => {
            tx.roll_back().await;
            tracing::warn!(%id, attempts, error = ?failure, "a message of the payment provider was not processed");
            let why = match failure {
                Failure::Problem(problem) => problem.message.into_owned(),
                Failure::Internal(_) | Failure::Bug(_) => {
                    "it could not be processed; the log says why".to_owned()
                }
            };
            return postpone(payments, &message, &why, None).await;
        }
    };
    let state_name = lifecycle::Named::name(state);
    if let Err(failure) = finish(tx, &message, state, &why).await {
        // Of a commit whose answer was lost nobody knows; if it was done, there is nothing to postpone.
        tracing::warn!(%id, attempts, error = ?failure, "a message of the payment provider was not processed");
        return postpone(payments, &message, "it could not be written; the log says why", None).await;
    }
    metrics::counter!("payment_messages_processed_total", "state" => state_name).increment(1);
    if state == MessageState::Failed {
        tracing::error!(%id, kind = message.event_type, why, "a message of the payment provider needs a person");
    }
    Ok(true)
}

async fn finish(
    mut tx: WriteTx,
    message: &LeasedMessage,
    state: MessageState,
    why: &str,
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    webhooks::finish(tx.conn(), message.id, state, why, now).await?;
    tx.commit(None).await?;
    Ok(())
}

async fn postpone(
    payments: &Payments,
    message: &LeasedMessage,
    why: &str,
    waits_for: Option<&str>,
) -> Result<bool, Failure> {
    let attempts = message.attempts + 1;
    let now = payments.db.ambient().now();
    let until = later(now, attempts, FIRST_SECONDS, LONGEST_SECONDS);
    let give_up = attempts >= MOST_ATTEMPTS;
    let mut upkeep = payments.db.upkeep("postpone a message of the payment provider").await?;
    webhooks::postpone(upkeep.conn(), message.id, why, waits_for, until, give_up).await?;
    Ok(true)
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, MessageResult> {
    serde_json::from_value(object)
        .map_err(|error| MessageResult::Failed(format!("its object cannot be read: {error}")))
}

async fn message_apply(
    payments: &Payments,
    tx: &mut WriteTx,
    message: &LeasedMessage,
) -> Result<MessageResult, Failure> {
    let object = match serde_json::from_slice::<Message>(&message.body) {
        Ok(message) => message.data.object,
        Err(error) => return Ok(MessageResult::Failed(format!("it cannot be read: {error}"))),
    };
    let kind = message.event_type.as_str();
    tx.record("payment_message", message.id, None::<&()>, Some(&message.event_type))?;
    Ok(match kind {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
            match read::<CheckoutSession>(object) {
                Ok(session) => settle::paid(payments, tx, &session).await?,
                Err(result) => result,
            }
        }
        "checkout.session.expired" => match read::<CheckoutSession>(object) {
            Ok(session) => settle::ended(tx, &session, TopupState::Expired, "nobody paid in time").await?,
            Err(result) => result,
        },
        "checkout.session.async_payment_failed" => match read::<CheckoutSession>(object) {
            Ok(session) => settle::ended(tx, &session, TopupState::Failed, "the payment failed").await?,
            Err(result) => result,
        },
        "refund.created" | "refund.updated" | "refund.failed" | "charge.refund.updated" => {
            match read::<Refund>(object) {
                Ok(refund) => refunds::refund_update(payments, tx, &refund).await?,
                Err(result) => result,
            }
        }
        _ if kind.starts_with("charge.dispute.") => match read::<Dispute>(object) {
            Ok(dispute) => disputes::dispute_update(payments, tx, &dispute).await?,
            Err(result) => result,
        },
        _ => MessageResult::Ignored("messages of this type mean nothing to us"),
    })
}

/// How much waits, for whoever watches.
pub async fn measure(payments: &Payments) -> Result<(), Failure> {
    let now = payments.db.ambient().now();
    let mut upkeep = payments.db.upkeep("count messages that wait").await?;
    let (waiting, oldest, failed) = webhooks::backlog(upkeep.conn(), now).await?;
    metrics::gauge!("payment_messages_waiting").set(waiting as f64);
    metrics::gauge!("payment_messages_oldest_seconds").set(oldest);
    metrics::gauge!("payment_messages_failed").set(failed as f64);
    Ok(())
}

/// How long whoever takes work to the provider keeps it from others.
pub(crate) const LEASE: TimeDelta = TimeDelta::seconds(90);
