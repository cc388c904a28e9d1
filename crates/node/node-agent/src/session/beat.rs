//! Heartbeats and log lines.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use chrono::TimeDelta;
use node_proto::{
    contract::{FINDINGS_PER_HEARTBEAT, Finding, Heartbeat, HeartbeatAnswer, NodeMetrics},
    task::CLOCK_TOLERANCE,
};

use super::{Report, Session, lock, report::MOST_FINDINGS};
use crate::{
    client::CallError,
    executor::Executor,
    journal::Journal,
    transport::{Backoff, Connect, jittered},
};

const FIRST_INTERVAL: Duration = Duration::from_secs(10);
const INTERVALS: std::ops::RangeInclusive<u32> = 1..=300;
const SWEEP_EVERY: TimeDelta = TimeDelta::hours(1);
/// Lines are gathered for so long before they are sent.
const GATHER: Duration = Duration::from_secs(2);

/// What is carried from one heartbeat to the next.
#[derive(Default)]
struct Carried {
    /// Findings that the control plane has not received yet.
    findings: Vec<Finding>,
    applied_version: u64,
    clock_told: bool,
}

impl Carried {
    /// The latest word about each thing counts.
    fn carry(&mut self, finding: Finding) {
        self.findings.retain(|held| held.code != finding.code || held.subject != finding.subject);
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding);
        }
    }
}

impl<C: Connect, J: Journal, E: Executor> Session<C, J, E> {
    /// Never ends.
    pub(super) async fn beat(self: &Arc<Self>) {
        let mut interval = FIRST_INTERVAL;
        let mut carried = Carried::default();
        let mut swept_at = self.ambient.now();
        loop {
            let asked_as = self.identity();
            let beaten = Box::pin(self.beat_once(&mut carried)).await;
            // It may have renewed meanwhile, and then the answer is not about the pair in use.
            let as_now = Arc::ptr_eq(&asked_as, &self.identity());
            match beaten {
                Ok(answer) => {
                    if as_now && answer.renew_now == Some(true) {
                        self.renew_asked.notify_one();
                    }
                    let seconds = answer.heartbeat_seconds.clamp(*INTERVALS.start(), *INTERVALS.end());
                    interval = Duration::from_secs(seconds.into());
                    self.answer_apply(&answer, as_now, &mut carried).await;
                }
                Err(error) if error.is_about_identity() && !as_now => continue,
                Err(error) => {
                    if error.is_about_identity() {
                        self.new_pair_refused().await;
                    }
                    self.note_error("a heartbeat", &error);
                }
            }
            if self.ambient.now() - swept_at > SWEEP_EVERY {
                swept_at = self.ambient.now();
                if let Err(error) = self.ledger.sweep(swept_at).await {
                    self.log.warn("journal", &error.to_string());
                }
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(&self.ambient, interval)) => {}
                () = self.beat_now.notified() => {}
            }
        }
    }

    async fn beat_once(&self, carried: &mut Carried) -> Result<HeartbeatAnswer, CallError> {
        let Report { mut inventory, findings, metrics } = self.reports.report().await;
        for finding in findings {
            carried.carry(finding);
        }
        inventory.terminal_sessions = Some(self.streams.terminal_sessions());
        let identity = self.identity();
        let told = carried.findings.len().min(FINDINGS_PER_HEARTBEAT);
        let heartbeat = Heartbeat {
            agent_version: self.facts.agent_version.clone(),
            certificate_expires_at: identity.expires_at(),
            applied_version: carried.applied_version,
            boot_id: self.facts.boot_id.clone(),
            inventory,
            findings: carried.findings.iter().take(told).cloned().collect(),
            metrics: NodeMetrics {
                tasks_running: u32::try_from(lock(&self.leased).len()).unwrap_or(u32::MAX),
                ..metrics
            },
            keyset_serial: Some(identity.trust.keyset.serial),
            authority_ids: Some(identity.trust.authority_ids()),
            clock_offset_ms: self.client.clock_offset_ms(),
        };
        let answer = match self.client.heartbeat(&heartbeat).await {
            // Findings with too much evidence must not silence the node.
            Err(CallError::TooLarge { .. }) => {
                let short = |mut finding: Finding| {
                    finding.evidence = serde_json::Value::Null;
                    finding
                };
                let findings = heartbeat.findings.iter().cloned().map(short).collect();
                self.client.heartbeat(&Heartbeat { findings, ..heartbeat }).await?
            }
            other => other?,
        };
        carried.findings.drain(..told);
        Ok(answer)
    }

    async fn answer_apply(&self, answer: &HeartbeatAnswer, as_now: bool, carried: &mut Carried) {
        if !self.in_contact.swap(true, Ordering::Relaxed) {
            self.log.info("session", &format!("{} is in contact with the control plane", self.node));
            // The next error is a new one, and is logged immediately.
            *lock(&self.complained) = None;
        }
        if as_now {
            self.new_pair_works();
        }
        self.updates.confirm();
        self.proved.notify_one();
        self.note_clock(carried);
        let identity = self.identity();
        let mut told = answer.authority_ids.clone();
        if let Some(ids) = &mut told {
            ids.sort_unstable();
        }
        let as_told = answer.keyset_serial.is_none_or(|serial| serial == identity.trust.keyset.serial)
            && told.is_none_or(|ids| ids == identity.trust.authority_ids());
        if as_told || self.refresh_trust().await {
            carried.applied_version = answer.desired_version;
        }
    }

    fn note_clock(&self, carried: &mut Carried) {
        let offset = TimeDelta::milliseconds(self.client.clock_offset_ms().unwrap_or(0));
        let off = offset.abs() > CLOCK_TOLERANCE / 2;
        if off && !carried.clock_told {
            let text = format!("the clock is off by {} s; set up time synchronisation", offset.num_seconds());
            self.log.warn("clock", &text);
        }
        carried.clock_told = off;
        if off {
            carried.carry(Finding {
                code: "node.clock_skew".to_owned(),
                subject: "node".to_owned(),
                // The same words each time: what changes is in the evidence.
                message:
                    "The clock differs from the control plane's by minutes; set up time synchronisation."
                        .to_owned(),
                observed_at: self.client.server_now(),
                evidence: serde_json::json!({ "offset_ms": offset.num_milliseconds() }),
            });
        }
    }

    /// Says that something does not work; once, until it has worked again.
    pub(super) fn note_error(&self, what: &str, error: &CallError) {
        if error.is_about_identity() {
            // A request in progress while the key pair changed is refused; this is not an error.
            if lock(&self.who).before.is_some() {
                tracing::debug!(target: super::TARGET, node_id = %self.node, %error, "{what} was under way with the pair before");
                return;
            }
            self.not_believed.notify_one();
        }
        if self.in_contact.swap(false, Ordering::Relaxed) {
            self.log.warn("session", &format!("contact is lost ({what}): {error}"));
        } else {
            tracing::debug!(target: super::TARGET, node_id = %self.node, %error, "{what} failed");
        }
    }

    /// Hands over log lines. Never ends.
    pub(super) async fn ship(&self) {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
        loop {
            self.log.arrived().await;
            tokio::time::sleep(GATHER).await;
            while !self.ship_once().await {
                tokio::time::sleep(backoff.failed(&self.ambient)).await;
            }
            backoff.succeeded();
        }
    }

    /// False when there are lines left for later.
    pub(super) async fn ship_once(&self) -> bool {
        while let Some(batch) = self.log.batch() {
            match self.client.logs(&batch).await {
                Ok(_) => self.log_refused.store(false, Ordering::Relaxed),
                Err(error) if error.is_transient() => {
                    self.log.restore(batch);
                    return false;
                }
                // An older control plane does not accept them: log this once, not for every batch.
                Err(error) if !self.log_refused.swap(true, Ordering::Relaxed) => {
                    tracing::warn!(target: super::TARGET, %error, lines = batch.lines.len(), "log lines are not taken");
                }
                Err(_) => {}
            }
        }
        true
    }
}
