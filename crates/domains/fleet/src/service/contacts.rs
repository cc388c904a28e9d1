//! What nodes report many times a minute: kept in memory and written once a second for all of them together.
//!
//! A report that is lost with its process costs nothing: the next one says the same. Only the first one after a
//! silence matters, and it is written before the node counts as back, so that nobody takes it for silent again.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Code, CorrelationId, Failure, Problem, digest, ids::NodeId};
use node_proto::contract::Finding;
use pg::{Origin, Permit};
use quick_cache::sync::Cache;
use tokio_util::sync::CancellationToken;

pub use crate::store::contacts::Contact;
use crate::{Fleet, model::node::NodeEvent, service, store};

const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Rows of one statement.
const BATCH: usize = 1000;
/// More nodes than this cannot wait to be written at once.
const MOST_PENDING: usize = 100_000;
const MOST_DESIRED: usize = 100_000;

struct Pending {
    contact: Contact,
    /// The node counted as offline when it reported.
    was_offline: bool,
}

#[derive(Default)]
struct Inner {
    pending: HashMap<NodeId, Pending>,
    /// Digests of the findings that were handed on last, of nodes that have some.
    findings: HashMap<NodeId, [u8; 32]>,
    /// Nodes whose findings could not be handed on, and when a report of theirs had been accepted before that.
    unaccepted: HashMap<NodeId, Option<DateTime<Utc>>>,
}

/// The reports of one gateway that wait to be written.
pub struct Contacts {
    inner: Mutex<Inner>,
    desired: Arc<Desired>,
}

/// What nodes should have applied; dropped when the node changes.
struct Desired {
    known: Cache<NodeId, i64>,
    /// Counts changes, so that what was read before one is not kept after it.
    changes: AtomicU64,
}

impl Contacts {
    pub fn new(fleet: &Fleet) -> Self {
        let desired = Arc::new(Desired { known: Cache::new(MOST_DESIRED), changes: AtomicU64::new(0) });
        let listener = Arc::downgrade(&desired);
        fleet.db().on_invalidate(move |key| {
            let Some(desired) = listener.upgrade() else { return };
            let node = key.strip_prefix("node:").and_then(|id| uuid::Uuid::try_parse(id).ok());
            if node.is_some() || key == "*" {
                desired.changes.fetch_add(1, Ordering::SeqCst);
            }
            match node {
                Some(id) => drop(desired.known.remove(&NodeId::from(id))),
                None if key == "*" => desired.known.clear(),
                None => {}
            }
        });
        Self { inner: Mutex::default(), desired }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The latest report of each node counts.
    pub fn note(&self, mut contact: Contact, was_offline: bool) -> Result<(), Problem> {
        contact.certificate_expires_at = keepable(contact.certificate_expires_at);
        let mut inner = self.lock();
        if inner.pending.len() >= MOST_PENDING && !inner.pending.contains_key(&contact.node) {
            return Err(Problem::from_code(Code::ServiceUnavailable).retry_after(5));
        }
        inner.pending.insert(contact.node, Pending { contact, was_offline });
        Ok(())
    }

    pub async fn desired_version(&self, fleet: &Fleet, node: NodeId) -> Result<i64, Failure> {
        if let Some(version) = self.desired.known.get(&node) {
            return Ok(version);
        }
        let changes = self.desired.changes.load(Ordering::SeqCst);
        let mut upkeep = fleet.db().upkeep("read what a node should have applied").await?;
        let version = store::contacts::desired_version(upkeep.conn(), node).await?.unwrap_or(0);
        self.desired.known.insert(node, version);
        if self.desired.changes.load(Ordering::SeqCst) != changes {
            self.desired.known.remove(&node);
        }
        Ok(version)
    }

    /// Takes a whole report: what it says of the node waits to be written, and findings are handed on when they are not
    /// those that this node reported last. What lasts is said in every report and handed on once.
    pub async fn accept(
        &self,
        fleet: &Fleet,
        contact: Contact,
        was_offline: bool,
        findings: &[Finding],
        origin: &Origin,
    ) -> Result<(), Failure> {
        let node = contact.node;
        let Some(facts) = self.changed(node, findings)? else {
            return Ok(self.note(contact, was_offline)?);
        };
        // Asked before this report itself can be the last one.
        let last_accepted_at = self.last_accepted_at(fleet, node).await;
        self.note(contact, was_offline)?;
        let last_accepted_at = last_accepted_at?;
        let reported = service::findings::report(fleet, node, findings, last_accepted_at, origin).await;
        let mut inner = self.lock();
        match reported {
            Ok(()) => {
                inner.unaccepted.remove(&node);
                inner.findings.insert(node, facts);
                Ok(())
            }
            Err(failure) => {
                inner.unaccepted.insert(node, last_accepted_at);
                Err(failure)
            }
        }
    }

    /// What to remember the findings by, when they are not those that were handed on last.
    fn changed(&self, node: NodeId, findings: &[Finding]) -> Result<Option<[u8; 32]>, Failure> {
        if findings.is_empty() {
            let mut inner = self.lock();
            inner.findings.remove(&node);
            inner.unaccepted.remove(&node);
            return Ok(None);
        }
        let facts: Vec<_> = findings.iter().map(|f| (&f.code, &f.subject, &f.message)).collect();
        let facts = digest::of_json(&facts)?;
        Ok((self.lock().findings.get(&node) != Some(&facts)).then_some(facts))
    }

    /// When the last report of the node was accepted, by any gateway.
    async fn last_accepted_at(&self, fleet: &Fleet, node: NodeId) -> Result<Option<DateTime<Utc>>, Failure> {
        let waiting = {
            let inner = self.lock();
            if let Some(before) = inner.unaccepted.get(&node) {
                return Ok(*before);
            }
            inner.pending.get(&node).map(|pending| pending.contact.seen_at)
        };
        let mut upkeep = fleet.db().upkeep("read when a node last reported").await?;
        Ok(store::contacts::last_seen(upkeep.conn(), node).await?.max(waiting))
    }

    /// Writes all that waits. What could not be written waits on, unless something newer came.
    pub async fn flush(&self, fleet: &Fleet) -> Result<usize, Failure> {
        let mut pending: Vec<Pending> = std::mem::take(&mut self.lock().pending).into_values().collect();
        let mut written = 0;
        while !pending.is_empty() {
            let batch = pending.split_off(pending.len().saturating_sub(BATCH));
            let contacts: Vec<Contact> = batch.iter().map(|p| p.contact.clone()).collect();
            if let Err(failure) = contacts_write(fleet, &contacts).await {
                let mut inner = self.lock();
                for late in pending.into_iter().chain(batch) {
                    inner.pending.entry(late.contact.node).or_insert(late);
                }
                return Err(failure);
            }
            written += contacts.len();
            let back: Vec<NodeId> = batch.iter().filter(|p| p.was_offline).map(|p| p.contact.node).collect();
            regained(fleet, &back).await;
        }
        Ok(written)
    }

    /// Writes once a second until it is told to stop, and then once more.
    pub async fn run(&self, fleet: &Fleet, stop: &CancellationToken) {
        let mut tick = tokio::time::interval(FLUSH_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let stopped = tokio::select! {
                _ = tick.tick() => false,
                () = stop.cancelled() => true,
            };
            match self.flush(fleet).await {
                Ok(0) => {}
                Ok(written) => metrics::counter!("node_reports_total").increment(written as u64),
                Err(failure) => {
                    tracing::warn!(error = ?failure, "reports of nodes could not be written; trying again")
                }
            }
            if stopped {
                return;
            }
        }
    }
}

/// A time that the database can keep. One that it cannot would spoil the statement that writes a thousand nodes.
pub fn keepable(at: DateTime<Utc>) -> DateTime<Utc> {
    let last = DateTime::UNIX_EPOCH + TimeDelta::days(365 * 1000);
    at.clamp(DateTime::UNIX_EPOCH, last)
}

async fn contacts_write(fleet: &Fleet, contacts: &[Contact]) -> Result<(), Failure> {
    let mut upkeep = fleet.db().upkeep("write reports of nodes").await?;
    store::contacts::upsert(upkeep.conn(), contacts).await?;
    Ok(())
}

/// Nodes that counted as offline and have reported. Losing the race with another gateway is no harm.
pub async fn regained(fleet: &Fleet, nodes: &[NodeId]) {
    for node in nodes {
        if let Err(failure) = regain(fleet, *node).await
            && !matches!(&failure, Failure::Problem(problem) if problem.code == Code::InvalidTransition)
        {
            tracing::warn!(node_id = %node, error = ?failure, "a node that is back could not be marked so; trying again");
        }
    }
}

async fn regain(fleet: &Fleet, node: NodeId) -> Result<(), Failure> {
    let origin = Origin::internal(CorrelationId(fleet.db().ambient().uuid()));
    let permit = Permit::node("a node reports again", node, origin);
    let mut tx = fleet.db().write(permit, "node.recover").await?;
    service::nodes::transition(&mut tx, node, NodeEvent::RegainContact, "The node reports again.").await?;
    tx.commit(None).await?;
    Ok(())
}
