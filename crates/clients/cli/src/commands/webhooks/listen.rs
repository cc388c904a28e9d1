//! `gpuaas webhooks listen`: prints, verifies and forwards what a webhook would receive.
//!
//! The server cannot reach a laptop, so nothing is posted to this program: it creates a temporary webhook whose messages
//! the server streams, signed as a delivery is. It deletes the webhook when it ends; if it cannot, the server does so two
//! minutes after the stream broke off.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use aws_lc_rs::hmac;
use futures_util::StreamExt as _;
use sdk::{ByteStream, Client, reqwest, types};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::allocations::Frames;
use crate::{
    app::App,
    args::Format,
    failure::{Exit, Failure, Result, local},
    output::{note, printable, write_on},
};

const COME_AGAIN: Duration = Duration::from_secs(1);
/// Consecutive failed connections before giving up.
const MOST_FAILURES: u32 = 10;
const FORWARD_TIMEOUT: Duration = Duration::from_secs(30);
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages are streamed at least once; these many are remembered, so that each is printed once.
const REMEMBERED: usize = 1000;
/// What a receiver should accept at most, against messages that somebody recorded.
const TOLERANCE_SECONDS: i64 = 300;

pub struct Options {
    pub events: Vec<String>,
    pub forward_to: Option<String>,
    pub count: Option<u64>,
}

/// A message as the stream carries it.
#[derive(Deserialize)]
struct Message {
    id: String,
    event_type: String,
    created_at: chrono::DateTime<chrono::Utc>,
    headers: Vec<(String, String)>,
    body: String,
}

/// What a receiver finds when it checks a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Verified,
    /// The signature is right, and its time is too far from now.
    Stale,
    Invalid,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Stale => "stale",
            Self::Invalid => "NOT VERIFIED",
        }
    }
}

/// As any receiver does it: `t=<seconds>,v1=<hex>`, an HMAC-SHA256 with the secret over `<seconds>.<body>`. While a secret
/// is replaced there are several `v1`; one that is right is enough.
fn verify(secret: &str, signature: &str, body: &str, now: i64) -> Verdict {
    let parts = || signature.split(',').filter_map(|part| part.trim().split_once('='));
    let Some(seconds) = parts().find_map(|(name, value)| (name == "t").then_some(value)) else {
        return Verdict::Invalid;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let expected = kernel::hex::encode(hmac::sign(&key, format!("{seconds}.{body}").as_bytes()).as_ref());
    if !parts().any(|(name, value)| name == "v1" && value == expected) {
        return Verdict::Invalid;
    }
    match seconds.parse::<i64>() {
        Ok(at) if now.abs_diff(at) <= TOLERANCE_SECONDS.unsigned_abs() => Verdict::Verified,
        _ => Verdict::Stale,
    }
}

pub async fn run(app: &App, client: &Client, org: &str, options: Options) -> Result {
    let forward = options.forward_to.as_deref().map(Forward::new).transpose()?;
    let body: types::WebhookListenerCreate = serde_json::from_value(json!({ "event_types": options.events }))
        .map_err(local("the request is not valid"))?;
    let made = send!(client.webhook_listener_create(org, &body));
    let made: Value = serde_json::to_value(&made).map_err(local("the response cannot be read"))?;
    let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
    let (id, secret) = (text("id"), text("secret"));
    note(&format!("Listening as {}. Messages are signed with this secret: {secret}", text("name")));
    note("Press Ctrl-C to end; the temporary webhook is deleted then.");
    let listener = Listener { app, client, org, id: &id, secret: &secret, forward };
    let outcome = tokio::select! {
        outcome = listener.listen(options.count) => outcome,
        () = interrupted() => Ok(()),
    };
    let deleted = tokio::time::timeout(DELETE_TIMEOUT, Box::pin(client.webhook_delete(org, &id))).await;
    let is_gone = outcome.as_ref().is_err_and(|failure| failure.exit == Exit::NotFound);
    if !is_gone && !matches!(deleted, Ok(Ok(_))) {
        note("The temporary webhook could not be deleted; the server deletes it within some minutes.");
    }
    outcome
}

/// Ctrl-C, or the end that a service manager asks for.
async fn interrupted() {
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated => {}
    }
}

struct Listener<'a> {
    app: &'a App,
    client: &'a Client,
    org: &'a str,
    id: &'a str,
    secret: &'a str,
    forward: Option<Forward>,
}

impl Listener<'_> {
    /// Until so many messages came, or nobody reads the output. A stream that ends is opened again.
    async fn listen(&self, count: Option<u64>) -> Result {
        let (mut left, mut failures) = (count, 0);
        let mut seen: VecDeque<String> = VecDeque::new();
        loop {
            let opened: Result<ByteStream> =
                async { Ok(send!(self.client.webhook_listener_stream(self.org, self.id))) }.await;
            match opened {
                Ok(mut stream) => {
                    failures = 0;
                    let mut frames = Frames::default();
                    while let Some(Ok(piece)) = stream.next().await {
                        for frame in frames.feed(&piece)? {
                            let message: Message = serde_json::from_str(&frame.data)
                                .map_err(local("the server sent an invalid message"))?;
                            if seen.contains(&message.id) {
                                continue;
                            }
                            seen.push_back(message.id.clone());
                            if seen.len() > REMEMBERED {
                                seen.pop_front();
                            }
                            if !self.handle(&message).await? {
                                return Ok(());
                            }
                            left = left.map(|left| left.saturating_sub(1));
                            if left == Some(0) {
                                return Ok(());
                            }
                        }
                    }
                }
                Err(failure) => {
                    if failure.exit == Exit::NotFound {
                        let text = "the temporary webhook has expired: nobody listened to it for two minutes";
                        return Err(Failure::new(Exit::NotFound, text)
                            .suggest("Start `gpuaas webhooks listen` again."));
                    }
                    failures += 1;
                    if failure.exit != Exit::Server || failures >= MOST_FAILURES {
                        return Err(failure);
                    }
                }
            }
            tokio::time::sleep(COME_AGAIN).await;
        }
    }

    /// Forwards and prints one message; whether anybody reads the output.
    async fn handle(&self, message: &Message) -> Result<bool> {
        let name = "GPUaaS-Signature";
        let signature = message.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        let signature = signature.map(|(_, value)| value.as_str()).unwrap_or_default();
        let verdict = verify(self.secret, signature, &message.body, self.app.ambient.now().timestamp());
        let forwarded = match &self.forward {
            Some(forward) => Some(forward.post(message).await),
            None => None,
        };
        let line = if matches!(self.app.out.format, Format::Json | Format::Yaml) {
            let body: Value =
                serde_json::from_str(&message.body).unwrap_or_else(|_| message.body.clone().into());
            let headers: serde_json::Map<String, Value> =
                message.headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
            json!({
                "id": message.id, "event_type": message.event_type, "created_at": message.created_at,
                "verified": verdict == Verdict::Verified, "headers": headers, "body": body,
                "forwarded": forwarded.as_ref().map(Forwarded::json),
            })
            .to_string()
        } else {
            let at = message.created_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            let to = forwarded.map(|forwarded| format!("  {}", forwarded.line())).unwrap_or_default();
            printable(&format!("{at}  {}  {}  {}{to}", verdict.name(), message.event_type, message.id))
        };
        write_on(format!("{line}\n").as_bytes())
    }
}

/// Where messages are posted, with the headers that a delivery has.
struct Forward {
    http: reqwest::Client,
    url: reqwest::Url,
}

/// What became of a message that was posted: a status, or why there is none; and how long it took.
struct Forwarded {
    outcome: std::result::Result<u16, String>,
    took: Duration,
}

impl Forwarded {
    fn line(&self) -> String {
        match &self.outcome {
            Ok(status) => format!("-> {status} ({} ms)", self.took.as_millis()),
            Err(error) => format!("-> {error}"),
        }
    }

    fn json(&self) -> Value {
        let took = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        match &self.outcome {
            Ok(status) => json!({ "status": status, "duration_ms": took }),
            Err(error) => json!({ "error": error, "duration_ms": took }),
        }
    }
}

impl Forward {
    fn new(address: &str) -> Result<Self> {
        let wrong = |reason: &str| {
            Failure::client(format!("--forward-to {address:?}: {reason}"))
                .suggest("Give a URL such as http://localhost:3000/hook.")
        };
        let url = reqwest::Url::parse(address).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("must begin with http:// or https://"));
        }
        Ok(Self { http: sdk::http_client(concat!("gpuaas-cli/", env!("CARGO_PKG_VERSION")))?, url })
    }

    async fn post(&self, message: &Message) -> Forwarded {
        let began = Instant::now();
        let mut request =
            self.http.post(self.url.clone()).timeout(FORWARD_TIMEOUT).body(message.body.clone());
        for (name, value) in &message.headers {
            request = request.header(name, value);
        }
        let outcome = match request.send().await {
            Ok(answer) => Ok(answer.status().as_u16()),
            Err(error) if error.is_connect() => Err("nothing listens there".to_owned()),
            Err(error) if error.is_timeout() => Err("no answer in time".to_owned()),
            Err(error) => Err(error.without_url().to_string()),
        };
        Forwarded { outcome, took: began.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac whsec_test
    const TAG: &str = "38877139021993b830af32feea6e18a8da83eb2f6e49ee50bd9e4cf4ca4d3789";
    const AT: i64 = 1_700_000_000;

    #[test]
    fn a_message_is_verified_as_another_program_would() {
        let good = format!("t={AT},v1={TAG}");
        let check = |signature: &str, body: &str, now| verify("whsec_test", signature, body, now);
        assert_eq!(check(&good, r#"{"a":1}"#, AT), Verdict::Verified);
        assert_eq!(check(&format!("t={AT},v1=00,v1={TAG}"), r#"{"a":1}"#, AT + 300), Verdict::Verified);
        assert_eq!(check(&good, r#"{"a":1}"#, AT + 301), Verdict::Stale);
        assert_eq!(check(&good, r#"{"a":1}"#, AT - 301), Verdict::Stale);
        for (signature, body) in [
            (good.as_str(), r#"{"a":2}"#),
            (&format!("t={},v1={TAG}", AT + 1), r#"{"a":1}"#),
            (&format!("v1={TAG}"), r#"{"a":1}"#),
            (&format!("t={AT}"), r#"{"a":1}"#),
            ("", r#"{"a":1}"#),
            ("t=1,v1=zz", r#"{"a":1}"#),
        ] {
            assert_eq!(check(signature, body, AT), Verdict::Invalid, "{signature} {body}");
        }
        assert_eq!(verify("other", &good, r#"{"a":1}"#, AT), Verdict::Invalid);
    }

    #[test]
    fn only_http_is_forwarded_to() {
        for wrong in ["localhost:3000", "ftp://localhost/", "/hook", "file:///etc/passwd", ""] {
            assert!(Forward::new(wrong).is_err(), "{wrong}");
        }
        assert!(Forward::new("http://localhost:3000/hook").is_ok());
    }
}
