//! What each route does, once the caller is known.

use std::sync::Arc;

use axum::response::Response;
use kernel::{Failure, Problem, ids::TaskId, policy::keys};
use node_proto::contract::{
    self, EnrollRequest, FINDINGS_PER_HEARTBEAT, Heartbeat, HeartbeatAnswer, LogBatch, Progress,
    RenewRequest, Route, RouteId, TaskResult, WAIT_SECONDS, WAIT_TASKS, WaitQuery, Waited,
};
use pg::Origin;
use tokio::time::{Duration, Instant};
use trust::peer::PeerCertificate;

use super::{
    Shared,
    request::{Asked, is_refusal, json},
};
use crate::{
    install,
    model::{contract_version::ContractVersion, node::NodeState},
    service::{
        contacts::Contact,
        dispatch::{self, Ask},
        enrollment,
        node_trust::NodeTrust,
    },
};

/// How the audit trail calls it when a request is refused for what it asks. Reports change nothing that anybody else
/// relies on and are not in it.
pub fn audit_action(route: &Route) -> Option<&'static str> {
    match route.id {
        RouteId::Enroll => Some("node.enroll"),
        RouteId::Renew => Some("node.renew"),
        RouteId::Progress => Some("task.progress"),
        RouteId::Result => Some("task.result"),
        RouteId::Trust | RouteId::Wait | RouteId::Heartbeat | RouteId::Logs | RouteId::Program => None,
    }
}

/// Open to strangers: bounded, and every failure is counted.
pub async fn enroll(shared: &Shared, mut asked: Asked<'_>) -> Result<Response, Failure> {
    let source = asked.connection.source;
    // Whoever sends slowly takes nobody's turn.
    let request: EnrollRequest = asked.json().await?;
    let _turn = shared.enrolling.enter(source).await?;
    let is_audited = || shared.enrolling.is_audited();
    let outcome = enrollment::enroll_within(&shared.fleet, &request, &asked.origin, is_audited).await;
    if matches!(&outcome, Err(Failure::Problem(problem)) if is_refusal(problem.code)) {
        // The use case has audited it.
        shared.enrolling.failed(source);
        metrics::counter!("node_refusals_total", "reason" => "enroll").increment(1);
    }
    json(&outcome?)
}

/// Routes that need a certificate; the caller was admitted. Each has a box of its own, so that a wait, of which
/// there are thousands, does not take the room of the largest.
pub async fn run(
    shared: &Shared,
    mut asked: Asked<'_>,
    certificate: &PeerCertificate,
    trust: &NodeTrust,
) -> Result<Response, Failure> {
    let (fleet, node) = (&shared.fleet, certificate.node_id);
    match asked.route.id {
        RouteId::Wait => {
            Box::pin(wait(shared, &asked.parts.uri, &asked.origin, asked.contract, certificate)).await
        }
        RouteId::Heartbeat => Box::pin(heartbeat(shared, asked, certificate, trust)).await,
        RouteId::Progress => {
            let (task, told) = (asked.task()?, Box::pin(asked.json::<Progress>()).await?);
            json(&Box::pin(dispatch::progress(fleet, node, task, told)).await?)
        }
        RouteId::Result => {
            let (task, told) = (asked.task()?, Box::pin(asked.json::<TaskResult>()).await?);
            json(&Box::pin(dispatch::result(fleet, node, task, told, &asked.origin)).await?)
        }
        RouteId::Renew => {
            let request: RenewRequest = Box::pin(asked.json()).await?;
            let shown = &certificate.serial;
            json(&Box::pin(enrollment::renew(fleet, node, shown, &request, &asked.origin)).await?)
        }
        RouteId::Trust => json(&Box::pin(fleet.trust().for_nodes()).await?),
        RouteId::Logs => {
            let per_minute = fleet.policy(keys::FLEET_LOG_BATCHES_PER_MINUTE).await?;
            shared.log_batches.admit(node, per_minute)?;
            let batch: LogBatch = Box::pin(asked.json()).await?;
            json(&Box::pin(shared.logs.take(fleet, node, batch)).await?)
        }
        RouteId::Program => Box::pin(program(shared, asked.named("sha256"))).await,
        RouteId::Enroll => Err(Failure::bug("enrolment needs no certificate and is served before")),
    }
}

async fn program(shared: &Shared, sha256: &str) -> Result<Response, Failure> {
    let is_digest = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !is_digest {
        return Err(Problem::not_found("program").into());
    }
    let response = install::serve_program(shared.fleet.programs(), sha256).await;
    if response.status().is_success() { Ok(response) } else { Err(Problem::not_found("program").into()) }
}

/// More than a node can have under way.
const MOST_HELD: usize = 256;

fn holding(text: Option<&str>) -> Result<Option<Vec<TaskId>>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let ids = text.split(',').filter(|id| !id.is_empty()).take(MOST_HELD + 1).map(str::parse);
    let ids: Vec<TaskId> = ids.collect::<Result<_, _>>().map_err(|error| Problem::field("holding", error))?;
    if ids.len() > MOST_HELD {
        return Err(Problem::field("holding", format!("at most {MOST_HELD} tasks")));
    }
    Ok(Some(ids))
}

async fn wait(
    shared: &Shared,
    uri: &http::Uri,
    origin: &Origin,
    contract: ContractVersion,
    certificate: &PeerCertificate,
) -> Result<Response, Failure> {
    let node = certificate.node_id;
    let query = axum::extract::Query::<WaitQuery>::try_from_uri(uri)
        .map_err(|error| Problem::field("query", error))?
        .0;
    let holding = holding(query.holding.as_deref())?;
    let seconds = query.seconds.unwrap_or(WAIT_SECONDS).min(WAIT_SECONDS);
    // A node without room waits to be told to dial a gateway, or to make a new key.
    let room = query.room.unwrap_or(WAIT_TASKS).min(WAIT_TASKS);
    let ask = Ask { node, room: i32::try_from(room).unwrap_or(1), holding };
    let deadline = Instant::now() + Duration::from_secs(u64::from(seconds));
    let nothing = || json(&Waited { tasks: Vec::new(), renew_now: None, dial: None });

    // Entered before the first look: whatever is queued from here on rings.
    let ticket = shared.hub.enter(node, ask.holding.as_deref().map(Arc::from));
    loop {
        let leased = shared.task_leases.ask(ask.clone()).await?;
        if ticket.is_superseded() {
            if !leased.is_empty() {
                Box::pin(dispatch::put_back(&shared.fleet, &leased)).await?;
            }
            return nothing();
        }
        let looked_in_vain = leased.is_empty();
        let tasks = Box::pin(dispatch::checked(&shared.fleet, node, leased)).await?;
        if !tasks.is_empty() {
            return json(&Waited { tasks, renew_now: None, dial: None });
        }
        if !looked_in_vain {
            continue;
        }
        tokio::select! {
            () = ticket.rung() => {}
            () = tokio::time::sleep_until(deadline) => return nothing(),
            () = shared.stop.cancelled() => return nothing(),
        }
        // It may have been rung because the node was revoked, or is to make a new key.
        match Box::pin(shared.trust(certificate, &contract::WAIT, origin)).await? {
            // The node has renewed while it waited, and comes again with the new one.
            Err(refusal) if refusal.is_replaced() => return nothing(),
            Err(refusal) => return Err(refusal.problem.into()),
            Ok(trust) if trust.renew_now(&certificate.serial) => {
                return json(&Waited { tasks: Vec::new(), renew_now: Some(true), dial: None });
            }
            Ok(_) => {}
        }
        if let Some(dial) = ticket.dial().filter(|_| contract.dials()) {
            return json(&Waited { tasks: Vec::new(), renew_now: None, dial: Some(dial) });
        }
    }
}

/// Bounds on what is kept of a report.
const WORD: usize = 64;
const MOST_GPUS: usize = 64;
const MOST_USED: usize = 4096;
const FINDING_TEXT: usize = 1024;

fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}

async fn heartbeat(
    shared: &Shared,
    mut asked: Asked<'_>,
    certificate: &PeerCertificate,
    trust: &NodeTrust,
) -> Result<Response, Failure> {
    let (fleet, node) = (&shared.fleet, certificate.node_id);
    let renew_now = trust.renew_now(&certificate.serial);
    shared.heartbeats.admit(node, fleet.policy(keys::FLEET_HEARTBEATS_PER_MINUTE).await?)?;
    let mut report: Heartbeat = asked.json().await?;
    report.metrics.gpus.truncate(MOST_GPUS);
    for gpu in &mut report.metrics.gpus {
        cut(&mut gpu.pci_address, WORD);
    }
    for list in [&mut report.inventory.users, &mut report.inventory.machines] {
        list.truncate(MOST_USED);
        list.iter_mut().for_each(|name| cut(name, WORD));
    }
    // Of a list that is cut, nobody could say what is missing.
    let is_short = |sessions: &Vec<_>| sessions.len() <= MOST_USED;
    report.inventory.terminal_sessions = report.inventory.terminal_sessions.filter(is_short);
    report.findings.truncate(FINDINGS_PER_HEARTBEAT);
    for finding in &mut report.findings {
        cut(&mut finding.code, WORD);
        cut(&mut finding.subject, WORD);
        cut(&mut finding.message, FINDING_TEXT);
    }
    cut(&mut report.agent_version, WORD);
    cut(&mut report.boot_id, WORD);

    let contact = Contact {
        node,
        seen_at: fleet.db().ambient().now(),
        agent_version: report.agent_version,
        contract: asked.contract.to_string(),
        certificate_expires_at: report.certificate_expires_at,
        applied_version: i64::try_from(report.applied_version).unwrap_or(i64::MAX),
        keyset_serial: report.keyset_serial.and_then(|serial| i64::try_from(serial).ok()).unwrap_or(0),
        authority_ids: report.authority_ids.unwrap_or_default().into_iter().take(16).collect(),
        clock_offset_ms: report.clock_offset_ms.unwrap_or(0),
        boot_id: report.boot_id,
        metrics: serde_json::to_value(&report.metrics)?,
        inventory: serde_json::to_value(&report.inventory)?,
    };
    let was_offline = trust.state == NodeState::Offline;
    shared.contacts.accept(fleet, contact, was_offline, &report.findings, &asked.origin).await?;

    let every = fleet.policy(keys::FLEET_HEARTBEAT_SECONDS).await?.get();
    let desired = shared.contacts.desired_version(fleet, node).await?;
    let verifier = fleet.trust().verifier().await?;
    json(&HeartbeatAnswer {
        heartbeat_seconds: u32::try_from(every).unwrap_or(10),
        desired_version: u64::try_from(desired).unwrap_or(0),
        renew_now: renew_now.then_some(true),
        keyset_serial: Some(fleet.trust().keyset().await?.0.serial),
        authority_ids: Some(verifier.authorities().to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_holds_is_read_whole_or_refused() {
        let id = |n| TaskId::from(uuid::Uuid::from_u128(n));
        assert_eq!(holding(None).unwrap(), None);
        assert_eq!(holding(Some("")).unwrap(), Some(Vec::new()));
        assert_eq!(holding(Some(&WaitQuery::holding(&[id(1), id(2)]))).unwrap(), Some(vec![id(1), id(2)]));
        assert!(holding(Some("task_1")).is_err());
        let many: Vec<TaskId> = (0..=MOST_HELD as u128).map(id).collect();
        assert!(holding(Some(&WaitQuery::holding(&many))).is_err());
    }

    #[test]
    fn long_words_are_cut() {
        let mut text = "ä".repeat(100);
        cut(&mut text, WORD);
        assert_eq!(text.chars().count(), WORD);
    }
}
