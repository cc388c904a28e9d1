//! Health findings: reported by nodes, acted on by the table, closed by people.
//!
//! A finding is opened once and acted on once; as long as it is not resolved, hearing of it again only counts. What
//! is done stops new placement at most: nobody's running work is touched.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Failure, Page, PageQuery, Problem,
    ids::{FindingId, NodeId},
    policy::keys,
    text::Reason,
};
use node_proto::contract;
use pg::{Origin, Permit, ReadTx, WriteTx};

use super::{
    changed, found,
    nodes::{cordon_once, transition},
};
use crate::{
    Fleet,
    model::{
        events::{CreditDue, CreditEnded, FindingOpened},
        finding::{Finding, FindingEvent, Report, ReportWindow, readable},
        health_rule::{HealthAction, decide},
        node::NodeEvent,
        slot::{Slot, SlotEvent, SlotHealth, SlotState},
    },
    store::{self, findings::NewFinding, slots::Along},
};

pub use crate::store::findings::Filter as FindingFilter;

/// A node cannot fill the table: beyond this, only what is known is counted.
const MOST_OPEN: i64 = 500;

/// Takes in what a heartbeat says about the node's health. `last_accepted_at` is when the report before it was accepted.
pub async fn report(
    fleet: &Fleet,
    node: NodeId,
    findings: &[contract::Finding],
    last_accepted_at: Option<DateTime<Utc>>,
    origin: &Origin,
) -> Result<(), Failure> {
    let slack = TimeDelta::seconds(fleet.policy(keys::FLEET_FINDING_BACKDATE_SECONDS).await?.get());
    let reports = readable(findings, ReportWindow::new(fleet.db.ambient().now(), last_accepted_at, slack));
    if reports.is_empty() {
        return Ok(());
    }
    let known = {
        let mut upkeep = fleet.db.upkeep("count findings that are known").await?;
        store::findings::seen_again(upkeep.conn(), node, &reports).await?
    };
    let is_known = |report: &Report| {
        known.iter().any(|(code, subject)| *code == report.code && *subject == report.subject)
    };
    let new: Vec<Report> = reports.into_iter().filter(|report| !is_known(report)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let permit = Permit::node("a node reports findings about its health", node, origin.clone());
    let mut tx = fleet.db.write(permit, "finding.report").await?;
    match open_all(&mut tx, node, &new).await {
        Ok(opened) if opened.is_empty() => {
            tx.roll_back().await;
            Ok(())
        }
        Ok(opened) => {
            tx.record("node", node, None::<&()>, Some(&opened))?;
            tx.commit(None).await?;
            for finding in &opened {
                let (code, action) = (finding.code.as_str(), finding.action.name());
                metrics::counter!("node_findings_total", "action" => action).increment(1);
                tracing::warn!(node_id = %node, code, subject = finding.subject, action, "a health finding was opened");
            }
            Ok(())
        }
        Err(failure) => {
            tx.roll_back().await;
            Err(failure)
        }
    }
}

async fn open_all(tx: &mut WriteTx, node: NodeId, reports: &[Report]) -> Result<Vec<Finding>, Failure> {
    found(store::nodes::lock(tx.conn(), node).await?, "node")?;
    // All slots at once: what is counted of them is locked by the first that changes.
    store::slots::lock_of_node(tx.conn(), node).await?;
    let rules = store::health_rules::all(tx.conn()).await?;
    let mut room = MOST_OPEN - store::findings::open_count(tx.conn(), node).await?;
    let mut opened = Vec::new();
    for report in reports {
        if room <= 0 {
            tracing::warn!(node_id = %node, code = report.code, "the node has too many open findings; this one is dropped");
            continue;
        }
        let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<FindingId>());
        let slot = store::slots::lock_by_device(tx.conn(), node, &report.subject).await?;
        let action = decide(&rules, &report.code);
        let new = NewFinding { id, node, slot: slot.as_ref().map(|slot| slot.id), report, action, now };
        // Nothing when another gateway opened it meanwhile.
        let Some(finding) = store::findings::open(tx.conn(), &new).await? else { continue };
        act(tx, &finding, slot).await?;
        tx.emit(&FindingOpened {
            finding_id: finding.id,
            node_id: node,
            slot_id: finding.slot_id,
            code: finding.code.clone(),
            subject: finding.subject.clone(),
            action: finding.action,
            message: finding.message.clone(),
        })?;
        room -= 1;
        opened.push(finding);
    }
    Ok(opened)
}

/// What the table says, once.
async fn act(tx: &mut WriteTx, finding: &Finding, slot: Option<Slot>) -> Result<(), Failure> {
    let reason = format!("finding {} on {}", finding.code, finding.subject);
    match finding.action {
        HealthAction::Observe | HealthAction::Warn => Ok(()),
        HealthAction::Cordon => cordon_once(tx, finding.node_id, &reason).await,
        HealthAction::Quarantine => quarantine(tx, finding, slot, &reason).await,
        HealthAction::Credit => {
            if let Some(slot) = slot {
                mark_failed(tx, &slot, None).await?;
            }
            cordon_once(tx, finding.node_id, &reason).await?;
            tx.emit(&CreditDue {
                finding_id: finding.id,
                node_id: finding.node_id,
                slot_id: finding.slot_id,
                code: finding.code.clone(),
                subject: finding.subject.clone(),
                evidence: finding.evidence.clone(),
                since: finding.first_seen_at,
            })?;
            Ok(())
        }
    }
}

/// The slot alone, when it is a free slot's device; otherwise the node, which stops new placement there.
async fn quarantine(
    tx: &mut WriteTx,
    finding: &Finding,
    slot: Option<Slot>,
    reason: &str,
) -> Result<(), Failure> {
    if let Some(slot) = slot {
        let step =
            Some(SlotEvent::Quarantine).filter(|event| !slot.is_occupied() && slot.after(*event).is_ok());
        let occupied = slot.is_occupied();
        mark_failed(tx, &slot, step).await?;
        if !occupied {
            return Ok(());
        }
    }
    let node = found(store::nodes::lock(tx.conn(), finding.node_id).await?, "node")?;
    if node.after(NodeEvent::Quarantine).is_ok() {
        transition(tx, finding.node_id, NodeEvent::Quarantine, reason).await?;
    }
    Ok(())
}

async fn mark_failed(tx: &mut WriteTx, slot: &Slot, step: Option<SlotEvent>) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let to = step.map(|event| slot.after(event)).transpose()?;
    let along = Along { health: Some(SlotHealth::Failed), sku: None };
    store::slots::transition(tx.conn(), slot, to, along, now).await?.or_problem("slot")?;
    Ok(())
}

pub async fn finding_list(
    tx: &mut ReadTx,
    filter: FindingFilter<'_>,
    page: &PageQuery,
) -> Result<Page<Finding>, Failure> {
    Ok(page.page(store::findings::list(tx.conn(), filter, page).await?, |finding| finding.id.uuid()))
}

pub async fn finding_get(tx: &mut ReadTx, id: FindingId) -> Result<Finding, Failure> {
    Ok(found(store::findings::get(tx.conn(), id).await?, "finding")?)
}

/// Somebody looks after it. It stays in force.
pub async fn finding_acknowledge(
    tx: &mut WriteTx,
    id: FindingId,
    note: Option<Reason>,
    if_match: Option<i64>,
) -> Result<Finding, Failure> {
    close(tx, id, FindingEvent::Acknowledge, note.as_ref(), if_match).await
}

/// It is over. What was done because of it is undone by hand: a person decides when the node is fit again. A slot
/// that it marked as failed is in doubt from now on, until a probe passes.
pub async fn finding_resolve(
    tx: &mut WriteTx,
    id: FindingId,
    note: &Reason,
    if_match: Option<i64>,
) -> Result<Finding, Failure> {
    let finding = close(tx, id, FindingEvent::Resolve, Some(note), if_match).await?;
    let took_out = matches!(finding.action, HealthAction::Quarantine | HealthAction::Credit);
    if let Some(slot_id) = finding.slot_id.filter(|_| took_out)
        && store::findings::others_about_slot(tx.conn(), slot_id, id).await? == 0
        && let Some(slot) = store::slots::lock(tx.conn(), slot_id).await?
        && slot.health == SlotHealth::Failed
        && slot.state != SlotState::Quarantined
        && slot.blockers.iter().all(|blocker| blocker.code != "missing")
    {
        let now = tx.db().ambient().now();
        let along = Along { health: Some(SlotHealth::Unknown), sku: None };
        store::slots::transition(tx.conn(), &slot, None, along, now).await?.or_problem("slot")?;
    }
    if finding.action == HealthAction::Credit {
        tx.emit(&CreditEnded {
            finding_id: id,
            node_id: finding.node_id,
            slot_id: finding.slot_id,
            at: finding.updated_at,
        })?;
    }
    Ok(finding)
}

async fn close(
    tx: &mut WriteTx,
    id: FindingId,
    event: FindingEvent,
    note: Option<&Reason>,
    if_match: Option<i64>,
) -> Result<Finding, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::findings::lock(tx.conn(), id).await?, "finding")?;
    if if_match.is_some_and(|version| version != before.version) {
        return Err(Problem::version_conflict(before.version).into());
    }
    let to = before.after(event)?;
    let note = note.map(Reason::as_str);
    let after =
        store::findings::transition(tx.conn(), &before, to, note, now).await?.or_problem("finding")?;
    changed(tx, "finding", id, &before, &after)?;
    Ok(after)
}
