//! `gpuaas ops status`: one screen for whoever operates the platform.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args as ClapArgs;
use sdk::{Client, types};
use serde::Serialize;

use crate::{
    app::App,
    args::Watch,
    failure::{Exit, Result},
    output::span,
};

/// Certificates are renewed long before; one that is not deserves a look.
const CERTIFICATE_DAYS: i64 = 7;
/// Not more are counted of a kind that should be empty.
const COUNTED: usize = 500;

#[derive(ClapArgs)]
pub struct Command {
    #[command(flatten)]
    watch: Watch,
}

#[derive(Default, Serialize)]
struct Status {
    /// `normal`, or `restore`.
    mode: String,
    nodes: BTreeMap<String, usize>,
    slots_free: i64,
    slots_total: i64,
    nodes_cordoned: usize,
    certificates_expiring: Vec<String>,
    findings_open: usize,
    events_pending: u64,
    events_failing: u64,
    oldest_event_seconds: u64,
    dead_letters: usize,
    workflows_stuck: usize,
    workflows_overdue: usize,
    discrepancies_open: usize,
    billing_findings_open: Option<usize>,
    deliveries_failed: usize,
}

pub async fn run(app: &App, command: Command) -> Result {
    let Command { watch: _ } = command;
    let client = &app.client().await?;
    let now = app.ambient.now();
    let mut status =
        Status { mode: send!(client.restore_status_get()).mode.to_string(), ..Status::default() };
    fleet(client, &mut status, now).await?;
    queues(client, &mut status).await?;
    let lines = lines(&status);
    let next = next(&status);
    let below: String = next.iter().map(|line| format!("  {line}\n")).collect();
    let below = if below.is_empty() { below } else { format!("\nNext:\n{below}") };
    app.out.page(&status, &lines, &below)
}

async fn fleet(client: &Client, status: &mut Status, now: DateTime<Utc>) -> Result {
    let (hostname, label, pool_id, region, simulated, state) = (None, None, None, None, None, None);
    let nodes: Vec<types::NodeSummary> = pages!(None, |page| client.node_list(
        page.cursor(),
        hostname,
        label,
        page.size(),
        pool_id,
        region,
        simulated,
        state
    ))?;
    for node in &nodes {
        *status.nodes.entry(node.state.to_string()).or_default() += 1;
        status.slots_free += node.slots_available;
        status.slots_total += node.slots_total;
        status.nodes_cordoned += usize::from(node.cordon_reason.is_some());
        let soon = node.certificate_expires_at.is_some_and(|at| at - now < TimeDelta::days(CERTIFICATE_DAYS));
        // A certificate of a simulated node lives for a day.
        if soon && !node.simulated {
            status.certificates_expiring.push(node.hostname.clone());
        }
    }
    let (action, code, node_id, state) = (None, None, None, Some(types::HealthFindingState::Open));
    let findings: Vec<types::HealthFinding> = pages!(Some(COUNTED), |page| client.finding_list(
        action,
        code,
        page.cursor(),
        node_id,
        page.size(),
        state
    ))?;
    status.findings_open = findings.len();
    Ok(())
}

async fn queues(client: &Client, status: &mut Status) -> Result {
    let (cursor, size, state) = (None, None, None);
    let outbox = send!(client.outbox_list(cursor, size, state));
    status.events_pending = outbox.pending;
    status.events_failing = outbox.failing;
    status.oldest_event_seconds = outbox.oldest_age_seconds;
    let (consumer, state) = (None, Some(types::DeadLetterState::Dead));
    let letters: Vec<types::DeadLetter> =
        pages!(Some(COUNTED), |page| client.dead_letter_list(consumer, page.cursor(), page.size(), state))?;
    status.dead_letters = letters.len();
    for (state, stuck) in [(types::SagaRunState::Stuck, true), (types::SagaRunState::Running, false)] {
        let (name, subject) = (None, None);
        let runs: Vec<types::SagaRun> = pages!(Some(COUNTED), |page| client.saga_list(
            page.cursor(),
            name,
            page.size(),
            Some(state),
            subject
        ))?;
        if stuck {
            status.workflows_stuck = runs.len();
        } else {
            status.workflows_overdue = runs.iter().filter(|run| run.overdue).count();
        }
    }
    let (kind, state) = (None, Some(types::DiscrepancyState::Open));
    let found: Vec<types::Discrepancy> =
        pages!(Some(COUNTED), |page| client.discrepancy_list(page.cursor(), kind, page.size(), state))?;
    status.discrepancies_open = found.len();
    let (channel, state) = (None, Some(types::DeliveryState::Failed));
    let failed: Vec<types::Delivery> =
        pages!(Some(COUNTED), |page| client.delivery_list(channel, page.cursor(), page.size(), state))?;
    status.deliveries_failed = failed.len();
    status.billing_findings_open = billing_findings(client).await?;
    Ok(())
}

/// None for an operator without the right to see money.
async fn billing_findings(client: &Client) -> Result<Option<usize>> {
    let (kind, state) = (None, Some(types::BillingFindingState::Open));
    let found: std::result::Result<Vec<types::BillingFinding>, sdk::Error> =
        pages!(Some(COUNTED), |page| client.billing_finding_list(page.cursor(), kind, page.size(), state));
    match found.map_err(crate::failure::Failure::from) {
        Ok(found) => Ok(Some(found.len())),
        Err(failure) if failure.exit == Exit::Auth => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn lines(status: &Status) -> Vec<(&'static str, String)> {
    let nodes: Vec<String> = status.nodes.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let cordoned = if status.nodes_cordoned == 0 {
        String::new()
    } else {
        format!(", {} cordoned", status.nodes_cordoned)
    };
    let pending = match (status.events_pending, status.events_failing) {
        (0, _) => "none waiting".to_owned(),
        (pending, 0) => format!("{pending} waiting"),
        (pending, failing) => format!("{pending} waiting, {failing} failing"),
    };
    let oldest = i64::try_from(status.oldest_event_seconds).unwrap_or(i64::MAX);
    let lag = if status.events_pending == 0 { String::new() } else { format!(", oldest {}", span(oldest)) };
    let workflows = match (status.workflows_stuck, status.workflows_overdue) {
        (0, 0) => "none stuck".to_owned(),
        (stuck, overdue) => format!("{stuck} stuck, {overdue} overdue"),
    };
    let certificates = match status.certificates_expiring.as_slice() {
        [] => "none expires within a week".to_owned(),
        names => format!("expire within a week: {}", names.join(", ")),
    };
    vec![
        ("mode", status.mode.clone()),
        (
            "nodes",
            if nodes.is_empty() { "none".to_owned() } else { format!("{}{cordoned}", nodes.join(", ")) },
        ),
        ("slots", format!("{} of {} free", status.slots_free, status.slots_total)),
        ("findings", format!("{} open", status.findings_open)),
        ("certificates", certificates),
        ("events", format!("{pending}{lag}")),
        ("dead letters", status.dead_letters.to_string()),
        ("workflows", workflows),
        ("discrepancies", format!("{} open", status.discrepancies_open)),
        ("deliveries", format!("{} failed", status.deliveries_failed)),
        (
            "billing",
            status.billing_findings_open.map(|count| format!("{count} findings open")).unwrap_or_default(),
        ),
    ]
}

/// What to type about what is not as it should be.
fn next(status: &Status) -> Vec<&'static str> {
    let offline = status.nodes.keys().any(|state| matches!(state.as_str(), "offline" | "quarantined"));
    [
        (status.mode != "normal", "gpuaas ops restore status"),
        (offline, "gpuaas nodes list"),
        (status.findings_open > 0, "gpuaas findings list --state open"),
        (status.events_failing > 0, "gpuaas ops outbox --failing"),
        (status.dead_letters > 0, "gpuaas ops dlq list --state dead"),
        (status.workflows_stuck > 0, "gpuaas ops sagas list --state stuck"),
        (status.discrepancies_open > 0, "gpuaas ops discrepancies list"),
        (status.deliveries_failed > 0, "gpuaas platform deliveries list --state failed"),
        (status.billing_findings_open.unwrap_or(0) > 0, "gpuaas platform billing findings list"),
        (status.nodes.is_empty(), "gpuaas nodes create HOSTNAME --region REGION"),
    ]
    .into_iter()
    .filter_map(|(is, command)| is.then_some(command))
    .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_next_step_is_a_command_and_a_quiet_platform_has_none() {
        let quiet = Status {
            mode: "normal".to_owned(),
            nodes: BTreeMap::from([("active".to_owned(), 2)]),
            ..Status::default()
        };
        assert_eq!(next(&quiet), Vec::<&str>::new());
        let loud = Status {
            mode: "restore".to_owned(),
            nodes: BTreeMap::from([("offline".to_owned(), 1)]),
            findings_open: 1,
            events_failing: 1,
            dead_letters: 1,
            workflows_stuck: 1,
            discrepancies_open: 1,
            billing_findings_open: Some(1),
            deliveries_failed: 1,
            ..Status::default()
        };
        for line in next(&loud).into_iter().chain(next(&Status::default())) {
            assert!(crate::args::Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
