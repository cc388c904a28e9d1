//! Telling the webhook what happened: signed, at least once, again and again until it is taken.
//!
//! A delivery is in the state until the webhook answered with 2xx; a restart goes on where the last one stopped. Each
//! attempt is signed anew with the secrets that are in the file then, so that they can be replaced while this runs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    checkout, secrets, signature,
    sim::Sim,
    state::{Delivery, Kind, State, number},
};

const AT_ONCE: usize = 16;
const ATTEMPT: Duration = Duration::from_secs(10);
/// The longest time between two attempts, and between two looks at what is due.
const LONGEST_WAIT_MS: i64 = 10_000;

/// Delivers until told to stop. What was not taken by then stays for the next start.
pub async fn run(sim: Arc<Sim>, stop: CancellationToken) -> anyhow::Result<()> {
    // The second call finds it installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let http =
        reqwest::Client::builder().timeout(ATTEMPT).redirect(reqwest::redirect::Policy::none()).build()?;
    let mut attempts: JoinSet<u64> = JoinSet::new();
    let mut under_way = BTreeSet::new();
    loop {
        end_sessions(&sim);
        let now_ms = sim.ambient.now().timestamp_millis();
        let (due, next_ms) = choose(&sim.state(), &under_way, now_ms);
        for delivery in due {
            under_way.insert(delivery.number);
            attempts.spawn(attempt(sim.clone(), http.clone(), delivery));
        }
        let wait = u64::try_from((next_ms - now_ms).clamp(1, LONGEST_WAIT_MS)).unwrap_or(1);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(ended) = attempts.join_next() => match ended {
                Ok(number) => { under_way.remove(&number); }
                Err(error) => return Err(error.into()),
            },
            // Nothing more is started while all hands are busy.
            _ = timeout(Duration::from_millis(wait), sim.wake.notified()), if under_way.len() < AT_ONCE => {}
        }
    }
}

fn end_sessions(sim: &Sim) {
    let now = sim.ambient.now().timestamp();
    // Looked at first: most of the time there is nothing to write.
    let any = !checkout::due(&sim.state(), now).is_empty();
    if any && let Err(fault) = sim.change(None, checkout::expire_due) {
        tracing::warn!(fault = fault.message, "sessions could not be ended; tried again soon");
    }
}

/// What to send now, and when to look again.
fn choose(state: &State, under_way: &BTreeSet<u64>, now_ms: i64) -> (Vec<Delivery>, i64) {
    let waiting = || state.deliveries.iter().filter(|d| !d.given_up && !under_way.contains(&d.number));
    let mut due: Vec<Delivery> = waiting().filter(|delivery| delivery.due_ms <= now_ms).cloned().collect();
    due.sort_by_key(|delivery| (delivery.due_ms, delivery.number));
    due.truncate(AT_ONCE.saturating_sub(under_way.len()));
    let next = waiting().map(|delivery| delivery.due_ms).filter(|due| *due > now_ms).min();
    (due, next.unwrap_or(now_ms + LONGEST_WAIT_MS))
}

/// One attempt, and what became of it. Gives the number of the delivery.
async fn attempt(sim: Arc<Sim>, http: reqwest::Client, delivery: Delivery) -> u64 {
    let sent = if sim.options.drop_first && delivery.attempts == 0 {
        Err("lost on the way, as asked for".to_owned())
    } else {
        send(&sim, &http, &delivery).await.map_err(|error| format!("{error:#}"))
    };
    if let Err(error) = &sent {
        tracing::info!(event = delivery.event, attempt = delivery.attempts + 1, error, "not delivered");
    }
    let now_ms = sim.ambient.now().timestamp_millis();
    let (retry_ms, most) = (i64::from(sim.options.retry_ms), sim.options.max_attempts);
    let noted = sim.change(None, |state, _| {
        match sent {
            Ok(()) => {
                state.deliveries.retain(|other| other.number != delivery.number);
                state.delivered += 1;
                if let Ok(event) = state.find_mut(Kind::Event, &delivery.event) {
                    let left = (number(event, "pending_webhooks") - 1).max(0);
                    event.insert("pending_webhooks".to_owned(), left.into());
                }
            }
            Err(error) => {
                if let Some(kept) = state.deliveries.iter_mut().find(|other| other.number == delivery.number)
                {
                    kept.attempts += 1;
                    kept.given_up = kept.attempts >= most;
                    kept.due_ms = now_ms + (retry_ms << kept.attempts.min(10)).min(LONGEST_WAIT_MS) / 2;
                    kept.last_error = Some(error);
                }
            }
        }
        Ok(())
    });
    if let Err(fault) = noted {
        tracing::warn!(fault = fault.message, "a delivery could not be noted; it will be repeated");
    }
    delivery.number
}

async fn send(sim: &Sim, http: &reqwest::Client, delivery: &Delivery) -> anyhow::Result<()> {
    let url = sim.options.webhook_url.as_deref().unwrap_or_default();
    let event = sim.state().find(Kind::Event, &delivery.event).cloned();
    let event = event.map_err(|fault| anyhow::anyhow!(fault.message))?;
    // With line breaks, as the real one writes it: what is signed are these bytes.
    let body = serde_json::to_vec_pretty(&Value::Object(event))?;
    let secrets = secrets::read(&sim.options.webhook_secret_file)?;
    let signature = signature::header(&secrets, sim.ambient.now().timestamp(), &body);
    let response = http
        .post(url)
        .header("content-type", "application/json; charset=utf-8")
        .header("stripe-signature", signature)
        .header("user-agent", concat!("gpuaas-pay-sim/", env!("CARGO_PKG_VERSION")))
        .body(body)
        .send()
        .await?;
    let status = response.status();
    anyhow::ensure!(status.is_success(), "the webhook answered {status}");
    Ok(())
}
