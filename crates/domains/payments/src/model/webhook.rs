//! Signed messages: what a signature must be, and what becomes of a message.

use aws_lc_rs::hmac;
use chrono::{DateTime, Utc};
use kernel::{Secret, ids::EventId};
use schemars::JsonSchema;
use serde::Serialize;
use subtle::ConstantTimeEq as _;

lifecycle::lifecycle! {
    /// A message that could not be processed can be tried again.
    MessageLifecycle = "payment_message", initial Received;
    states MessageState as "PaymentMessageState" { Received = "received", Processed = "processed", Ignored = "ignored", Failed = "failed" }
    events MessageEvent { Process = "process", Ignore = "ignore", Fail = "fail", Requeue = "requeue" }
    Received on Process => Processed;
    Received on Ignore => Ignored;
    Received on Fail => Failed;
    Failed on Requeue => Received;
}

/// A message as operators see it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PaymentMessage {
    pub id: EventId,
    pub provider: String,
    /// The provider's own id of it.
    pub event_id: String,
    pub event_type: String,
    pub state: MessageState,
    pub state_reason: String,
    pub attempts: i32,
    /// The payment that it waits for.
    pub waits_for: Option<String>,
    pub received_at: DateTime<Utc>,
    pub next_attempt_at: DateTime<Utc>,
    pub processed_at: Option<DateTime<Utc>>,
}

/// Why a message is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no signature, or nothing that looks like one.
    Malformed,
    /// It was signed too long ago, or in the future.
    Stale,
    /// None of the signatures is made with one of our secrets over these bytes.
    Unsigned,
}

impl Fault {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Stale => "stale",
            Self::Unsigned => "unsigned",
        }
    }
}

/// How far the time of a signature may be from ours, in either direction.
pub const TOLERANCE_SECONDS: i64 = 300;
/// While secrets are replaced a message carries a few; more are not looked at.
const MOST_SIGNATURES: usize = 16;

/// Whether `body` was signed with one of `secrets`, recently. The header is `t=<seconds>,v1=<hex>[,v1=<hex>…]`; other
/// schemes in it are passed over. Comparing takes the same time wherever the first difference is.
pub fn verify(
    header: &str,
    body: &[u8],
    secrets: &[Secret<String>],
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let (mut time, mut signatures) = (None, Vec::new());
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", text)) if time.is_none() => time = Some(text),
            // Two times: which one was signed?
            Some(("t", _)) => return Err(Fault::Malformed),
            Some(("v1", hex)) if signatures.len() < MOST_SIGNATURES => signatures.extend(digest(hex)),
            _ => {}
        }
    }
    let time = time.filter(|text| !text.is_empty() && text.len() <= 12).ok_or(Fault::Malformed)?;
    if !time.bytes().all(|byte| byte.is_ascii_digit()) || signatures.is_empty() {
        return Err(Fault::Malformed);
    }
    let seconds: i64 = time.parse().map_err(|_| Fault::Malformed)?;
    let mut signed = false;
    for secret in secrets.iter().filter(|secret| !secret.expose().is_empty()) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
        let mut context = hmac::Context::with_key(&key);
        context.update(time.as_bytes());
        context.update(b".");
        context.update(body);
        let tag = context.sign();
        for signature in &signatures {
            signed |= bool::from(signature.as_slice().ct_eq(tag.as_ref()));
        }
    }
    if !signed {
        return Err(Fault::Unsigned);
    }
    if (now.timestamp() - seconds).abs() > TOLERANCE_SECONDS {
        return Err(Fault::Stale);
    }
    Ok(())
}

/// The bytes of a SHA-256 in hexadecimal; nothing when it is not one.
fn digest(hex: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        hex.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    if digits.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(out)
}

/// The header for a body, as the provider makes it.
pub fn sign(secret: &str, seconds: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, &[format!("{seconds}.").as_bytes(), body].concat());
    format!("t={seconds},v1={}", kernel::hex::encode(tag.as_ref()))
}
