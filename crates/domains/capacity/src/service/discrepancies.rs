//! Where records disagree: looking for it, and showing it. Looking changes nothing but the list of what was found:
//! what seems to belong to nobody may be somebody's work.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use fleet::api::{NodeState, node_inventories, nodes_compared};
use kernel::{
    CorrelationId, Failure, Page, PageQuery,
    ids::{DiscrepancyId, NodeId},
};
use pg::{Connection, Origin, Permit, ReadTx, found};

use crate::{
    Capacity,
    model::discrepancy::{
        Discrepancy, DiscrepancyKind as Kind, DiscrepancyState, Found, REPORT_LAG, REPORT_LIFETIME, Report,
        strays,
    },
    store,
};

/// What changed within this time may be about to agree by itself.
const SETTLE: TimeDelta = TimeDelta::minutes(1);
/// Of each kind in one look; as long as there are more, none is held to be gone.
const MOST_FOUND: i64 = 1000;
/// Nodes that are compared at once, and in one turn; the next turn goes on where this one ended.
const NODES_AT_ONCE: i64 = 500;
const NODES_PER_TURN: usize = 20_000;

pub async fn discrepancy_list(
    tx: &mut ReadTx,
    kind: Option<Kind>,
    state: Option<DiscrepancyState>,
    page: &PageQuery,
) -> Result<Page<Discrepancy>, Failure> {
    let rows = store::discrepancies::list(tx.conn(), kind, state, page).await?;
    Ok(page.page(rows, |row| row.id.uuid()))
}

pub async fn discrepancy_get(tx: &mut ReadTx, id: DiscrepancyId) -> Result<Discrepancy, Failure> {
    Ok(found(store::discrepancies::get(tx.conn(), id).await?, "discrepancy")?)
}

/// What one turn found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Seen for the first time, with its subject.
    pub new: Vec<(Kind, String)>,
    /// Seen before and not any more.
    pub resolved: u64,
    /// How many of each kind are open now.
    pub open: Vec<(Kind, i64)>,
    /// Where the next turn goes on with the nodes; nothing: from the beginning.
    pub next_node: Option<NodeId>,
}

/// Which reports of nodes are believed.
#[derive(Clone, Copy, Debug)]
pub struct Belief {
    /// An older one says nothing about now.
    since: DateTime<Utc>,
    /// How much younger than a change it must be.
    lag: TimeDelta,
}

impl Belief {
    /// Records of which nothing has changed since then, as after a restore: reports are believed at once.
    pub const fn unchanged_since(since: DateTime<Utc>) -> Self {
        Self { since, lag: TimeDelta::zero() }
    }
}

/// One turn: every look at our own records, and as many nodes as fit in, beginning after `after`.
pub async fn check(capacity: &Capacity, after: Option<NodeId>) -> Result<Checked, Failure> {
    let since = capacity.db.ambient().now() - REPORT_LIFETIME;
    check_by(capacity, after, Belief { since, lag: REPORT_LAG }).await
}

pub async fn check_by(
    capacity: &Capacity,
    after: Option<NodeId>,
    belief: Belief,
) -> Result<Checked, Failure> {
    let db = &capacity.db;
    let now = db.ambient().now();
    let settled = now - SETTLE;
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let permit = Permit::system("compare records of capacity", origin);
    let mut read = db.read(&permit).await?;
    let conn = read.conn();
    let looks = [
        (Kind::ClaimOfEnded, store::discrepancies::claims_of_ended(conn, MOST_FOUND).await?),
        (Kind::ClaimMissing, store::discrepancies::claims_missing(conn, MOST_FOUND).await?),
        (Kind::SlotUnclaimed, store::discrepancies::slots_unclaimed(conn, settled, MOST_FOUND).await?),
        (Kind::ClaimOnFreeSlot, store::discrepancies::claims_on_free_slots(conn, settled, MOST_FOUND).await?),
        (Kind::WorkflowMissing, store::discrepancies::workflows_missing(conn, settled, MOST_FOUND).await?),
        (Kind::HoldingsDiffer, store::discrepancies::holdings_differ(conn, MOST_FOUND).await?),
        (Kind::KeysNotRemoved, store::discrepancies::keys_not_removed(conn, settled, MOST_FOUND).await?),
        (Kind::TaskUnawaited, store::discrepancies::tasks_unawaited(conn, settled, MOST_FOUND).await?),
    ];
    let mut checked = Checked::default();
    let mut writer = DiscrepancyWriter { capacity, now, checked: &mut checked };
    for (kind, found) in looks {
        let complete = i64::try_from(found.len()).is_ok_and(|count| count < MOST_FOUND);
        writer.discrepancies_write(kind, &found, complete.then_some(Reach::Everything)).await?;
    }
    let next = nodes(conn, &mut writer, after, belief).await?;
    let open = store::discrepancies::open(conn).await?;
    let of = |kind: &Kind| (*kind, open.iter().find(|(found, _)| found == kind).map_or(0, |(_, n)| *n));
    checked.open = Kind::ALL.iter().map(of).collect();
    checked.next_node = next;
    Ok(checked)
}

/// Compares nodes with our records, page by page; answers where to go on.
async fn nodes(
    conn: &mut Connection,
    writer: &mut DiscrepancyWriter<'_>,
    mut after: Option<NodeId>,
    belief: Belief,
) -> Result<Option<NodeId>, Failure> {
    let mut looked_at = 0;
    while looked_at < NODES_PER_TURN {
        let page = node_inventories(conn, after, NODES_AT_ONCE).await?;
        let Some(last) = page.last().map(|node| node.node_id) else { return Ok(None) };
        let all: Vec<NodeId> = page.iter().map(|node| node.node_id).collect();
        let differs = store::discrepancies::node_capacity_differs(conn, &all).await?;
        writer.discrepancies_write(Kind::NodeCapacityDiffers, &differs, Some(Reach::Nodes(&all))).await?;

        let reports: Vec<Report> = page
            .into_iter()
            .filter(|node| node.state != NodeState::Offline)
            .filter_map(|node| {
                let at = node.last_seen_at.filter(|at| *at > belief.since)?;
                let (users, machines) = (node.inventory.users, node.inventory.machines);
                Some(Report { node: node.node_id, at, users, machines })
            })
            .collect();
        let heard: Vec<NodeId> = reports.iter().map(|report| report.node).collect();
        let expected = store::discrepancies::expected(conn, &heard, belief.since - REPORT_LAG).await?;
        let strays = strays(&reports, &expected, belief.lag);
        writer.discrepancies_write(Kind::UnknownOnNode, &strays.unknown, Some(Reach::Nodes(&heard))).await?;
        writer.discrepancies_write(Kind::MissingOnNode, &strays.missing, Some(Reach::Nodes(&heard))).await?;
        // After what differs was kept: whoever reads that they were compared finds it.
        writer.compared(&heard).await?;

        looked_at += all.len();
        after = Some(last);
    }
    Ok(after)
}

/// How far a look went: what lies within and was not seen is gone.
enum Reach<'a> {
    Everything,
    Nodes(&'a [NodeId]),
}

struct DiscrepancyWriter<'a> {
    capacity: &'a Capacity,
    now: DateTime<Utc>,
    checked: &'a mut Checked,
}

impl DiscrepancyWriter<'_> {
    async fn compared(&self, nodes: &[NodeId]) -> Result<(), Failure> {
        let mut upkeep = self.capacity.db.upkeep("which nodes were compared with the records").await?;
        nodes_compared(upkeep.conn(), nodes, self.now).await
    }

    async fn discrepancies_write(
        &mut self,
        kind: Kind,
        found: &[Found],
        reach: Option<Reach<'_>>,
    ) -> Result<(), Failure> {
        let db = &self.capacity.db;
        // Postgres takes a row once in a statement.
        let mut subjects = HashSet::new();
        let found: Vec<&Found> =
            found.iter().filter(|found| subjects.insert(found.subject.as_str())).collect();
        let found: Vec<(DiscrepancyId, &Found)> =
            found.into_iter().map(|found| (db.ambient().id(), found)).collect();
        let mut upkeep = db.upkeep("record capacity discrepancies").await?;
        if !found.is_empty() {
            for subject in store::discrepancies::upsert(upkeep.conn(), kind, &found, self.now).await? {
                tracing::warn!(kind = kind.name(), subject, "records of capacity disagree");
                self.checked.new.push((kind, subject));
            }
        }
        let seen: Vec<String> = found.iter().map(|(_, found)| found.subject.clone()).collect();
        self.checked.resolved += match reach {
            None => 0,
            Some(Reach::Everything) => {
                store::discrepancies::resolve_missing(upkeep.conn(), kind, &seen, None, self.now).await?
            }
            Some(Reach::Nodes(nodes)) => {
                store::discrepancies::resolve_missing(upkeep.conn(), kind, &seen, Some(nodes), self.now)
                    .await?
            }
        };
        Ok(())
    }
}
