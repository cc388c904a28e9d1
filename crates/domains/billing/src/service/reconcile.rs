//! Compares the books with themselves and with what runs, and keeps a list of what disagrees. It changes nothing else:
//! money that seems to be wrong may be right, and a person decides.

use std::collections::HashSet;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    CorrelationId, Failure, Page, PageQuery,
    ids::{AllocationId, BillingFindingId, OrgId},
};
use pg::{Connection, Origin, Permit, ReadTx, found};
use serde_json::json;
use uuid::Uuid;

use crate::{
    Billing,
    model::finding::{BillingFinding, BillingFindingKind as Kind, BillingFindingState, Found},
    service::accrual::window_seconds,
    store::{
        consistency_queries::{self, PostingKey},
        findings::{self, Reach},
    },
};

/// A meter may be so many windows late, and at least so long.
const LATE_WINDOWS: i64 = 10;
const LATE: TimeDelta = TimeDelta::minutes(10);
/// A launch that takes longer neither succeeds nor fails any more.
const LAUNCH_AT_MOST: TimeDelta = TimeDelta::days(1);
/// Of each kind in one look; as long as there are more, none is held to be gone.
const MOST_FOUND: i64 = 1000;
/// Organizations, allocations or meters at once, and how often in one turn.
const AT_ONCE: i64 = 1000;
const PAGES: usize = 100;
/// Postings that are checked in one turn: the newest, and as many of the others, which go on where the last turn ended.
const POSTINGS: i64 = 2000;
const RECENT: TimeDelta = TimeDelta::minutes(15);

pub async fn billing_finding_list(
    tx: &mut ReadTx,
    kind: Option<Kind>,
    state: Option<BillingFindingState>,
    page: &PageQuery,
) -> Result<Page<BillingFinding>, Failure> {
    let rows = findings::list(tx.conn(), kind, state, page).await?;
    Ok(page.page(rows, |row| row.id.uuid()))
}

pub async fn billing_finding_get(tx: &mut ReadTx, id: BillingFindingId) -> Result<BillingFinding, Failure> {
    Ok(found(findings::get(tx.conn(), id).await?, "finding")?)
}

/// What runs, as those know who run it.
#[async_trait]
pub trait RunningAllocations: Send + Sync {
    /// Allocations that are to be paid for, by id, after this one.
    async fn page(
        &self,
        conn: &mut Connection,
        after: AllocationId,
        limit: i64,
    ) -> Result<Vec<(AllocationId, OrgId)>, Failure>;

    /// Which of these are to be paid for.
    async fn running(
        &self,
        conn: &mut Connection,
        ids: &[AllocationId],
    ) -> Result<Vec<AllocationId>, Failure>;
}

/// Where the next turn goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    org: Uuid,
    posting: Option<(Uuid, i64)>,
}

/// What one turn found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Seen for the first time, with its subject.
    pub new: Vec<(Kind, String)>,
    /// Seen before and not any more.
    pub resolved: u64,
    /// How many of each kind are open now.
    pub open: Vec<(Kind, i64)>,
}

/// One turn. Without `running`, only the books are compared.
pub async fn reconcile(
    billing: &Billing,
    running: Option<&dyn RunningAllocations>,
    progress: &mut Progress,
) -> Result<Reconciled, Failure> {
    let db = &billing.db;
    let now = db.ambient().now();
    let late =
        now - LATE.max(TimeDelta::seconds(window_seconds(billing).await?.saturating_mul(LATE_WINDOWS)));
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let mut read = db.read(&Permit::system("compare billing records", origin)).await?;
    let conn = read.conn();
    let mut writer = FindingWriter { billing, now, done: Reconciled::default() };
    let looks = [
        (Kind::MissingOpenUsage, consistency_queries::lagging(conn, late, MOST_FOUND).await?),
        (Kind::UnbilledClosedUsage, consistency_queries::unbilled(conn, late, MOST_FOUND).await?),
        (Kind::HeldMismatch, consistency_queries::stale_holds(conn, now - LAUNCH_AT_MOST, MOST_FOUND).await?),
    ];
    for (kind, found) in looks {
        let complete = i64::try_from(found.len())? < MOST_FOUND;
        writer.findings_write(kind, found, complete.then_some(Reach::All("meter_"))).await?;
    }
    ends(conn, &mut writer, progress).await?;
    postings(conn, &mut writer, progress).await?;
    if let Some(running) = running {
        missing(conn, &mut writer, running).await?;
        orphans(conn, &mut writer, running).await?;
    }
    let open = findings::open(conn).await?;
    let of = |kind: Kind| (kind, open.iter().find(|(known, _)| *known == kind).map_or(0, |(_, n)| *n));
    writer.done.open = Kind::ALL.into_iter().map(of).collect();
    Ok(writer.done)
}

/// What is set aside against what the meters have left, and whether chains end where they should.
async fn ends(
    conn: &mut Connection,
    writer: &mut FindingWriter<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    for _ in 0..PAGES {
        let page = consistency_queries::book_ends(conn, progress.org, AT_ONCE).await?;
        let Some(last) = page.last() else {
            progress.org = Uuid::nil();
            return Ok(());
        };
        progress.org = last.org.uuid();
        let all: Vec<String> = page.iter().map(|end| end.org.to_string()).collect();
        let held = page.iter().filter(|end| end.held != end.of_meters).map(|end| Found {
            subject: end.org.to_string(),
            org: Some(end.org),
            detail: json!({
                "message": "The held balance is not the sum of the holds of the meters.",
                "held_minor": end.held, "of_meters_minor": end.of_meters,
            }),
        });
        writer.findings_write(Kind::HeldMismatch, held.collect(), Some(Reach::Only(&all))).await?;
        let broken = page.iter().filter(|end| !end.head_fits).map(|end| Found {
            subject: end.org.to_string(),
            org: Some(end.org),
            detail: json!({ "message": "The last posting of the chain is not the one in its head." }),
        });
        writer.findings_write(Kind::ChainBroken, broken.collect(), Some(Reach::Only(&all))).await?;
    }
    Ok(())
}

fn subject(key: PostingKey) -> String {
    format!("{}#{}", OrgId::from(key.org), key.seq)
}

fn key_of(subject: &str) -> Option<PostingKey> {
    let (org, seq) = subject.split_once('#')?;
    Some(PostingKey { org: org.parse::<OrgId>().ok()?.uuid(), seq: seq.parse().ok()? })
}

/// Postings against their usage and against their chain: new ones, those that were wrong, and a part of all others.
async fn postings(
    conn: &mut Connection,
    writer: &mut FindingWriter<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (org, seq) = progress.posting.unwrap_or((Uuid::nil(), 0));
    let older = consistency_queries::postings_after(conn, PostingKey { org, seq }, POSTINGS).await?;
    progress.posting = older.last().map(|last| (last.org, last.seq));
    let mut keys: HashSet<PostingKey> = older.into_iter().collect();
    keys.extend(consistency_queries::postings_since(conn, writer.now - RECENT, POSTINGS).await?);
    let mut known = Vec::new();
    for kind in [Kind::LedgerUsageMismatch, Kind::ChainBroken] {
        known.extend(findings::open_subjects(conn, kind, MOST_FOUND).await?);
    }
    keys.extend(known.iter().filter_map(|subject| key_of(subject)));
    let keys: Vec<PostingKey> = keys.into_iter().collect();
    let all: Vec<String> = keys.iter().map(|key| subject(*key)).collect();
    let differ =
        consistency_queries::usage_mismatches(conn, &keys).await?.into_iter().map(|(key, posted, used)| {
            Found {
                subject: subject(key),
                org: Some(OrgId::from(key.org)),
                detail: json!({
                    "message": "The posting is not the sum of its usage records.",
                    "seq": key.seq, "posted_minor": posted, "used_minor": used,
                }),
            }
        });
    writer.findings_write(Kind::LedgerUsageMismatch, differ.collect(), Some(Reach::Only(&all))).await?;
    let broken = consistency_queries::broken_links(conn, &keys).await?.into_iter().map(|(key, what)| Found {
        subject: subject(key),
        org: Some(OrgId::from(key.org)),
        detail: json!({ "message": format!("Posting {} is invalid: {what}.", key.seq), "seq": key.seq }),
    });
    writer.findings_write(Kind::ChainBroken, broken.collect(), Some(Reach::Only(&all))).await
}

/// What runs without a meter. An allocation is asked about again after its meter was looked for, so that one that ended
/// in between is not taken for one without.
async fn missing(
    conn: &mut Connection,
    writer: &mut FindingWriter<'_>,
    running: &dyn RunningAllocations,
) -> Result<(), Failure> {
    let (mut after, mut seen, mut complete) = (AllocationId::from(Uuid::nil()), Vec::new(), false);
    for _ in 0..PAGES {
        let page = running.page(conn, after, AT_ONCE).await?;
        let Some((last, _)) = page.last() else {
            complete = true;
            break;
        };
        after = *last;
        let ids: Vec<AllocationId> = page.iter().map(|(id, _)| *id).collect();
        let without = consistency_queries::unmetered(conn, &ids).await?;
        if without.is_empty() {
            continue;
        }
        for id in running.running(conn, &without).await? {
            let org = page.iter().find(|(known, _)| *known == id).map(|(_, org)| *org);
            let detail = json!({ "message": "The allocation is running without a running meter." });
            seen.push(Found { subject: id.to_string(), org, detail });
        }
    }
    writer.findings_write(Kind::MissingOpenUsage, seen, complete.then_some(Reach::All("alloc_"))).await
}

/// Meters of what does not run; asked about again, as above.
async fn orphans(
    conn: &mut Connection,
    writer: &mut FindingWriter<'_>,
    running: &dyn RunningAllocations,
) -> Result<(), Failure> {
    let (mut after, mut seen, mut complete) = (Uuid::nil(), Vec::new(), false);
    for _ in 0..PAGES {
        let page = consistency_queries::metered(conn, after, AT_ONCE).await?;
        let Some(last) = page.last() else {
            complete = true;
            break;
        };
        after = last.meter.uuid();
        let ids: Vec<AllocationId> = page.iter().map(|metered| metered.allocation).collect();
        let run: HashSet<AllocationId> = running.running(conn, &ids).await?.into_iter().collect();
        let without: Vec<_> = page.iter().filter(|metered| !run.contains(&metered.allocation)).collect();
        let still =
            consistency_queries::still_metered(conn, &without.iter().map(|m| m.meter).collect::<Vec<_>>())
                .await?;
        for metered in without.into_iter().filter(|metered| still.contains(&metered.meter)) {
            seen.push(Found {
                subject: metered.meter.to_string(),
                org: Some(metered.org),
                detail: json!({
                    "message": "The meter is running, but its allocation is not.",
                    "allocation_id": metered.allocation,
                }),
            });
        }
    }
    writer.findings_write(Kind::OrphanOpenUsage, seen, complete.then_some(Reach::All("meter_"))).await
}

struct FindingWriter<'a> {
    billing: &'a Billing,
    now: DateTime<Utc>,
    done: Reconciled,
}

impl FindingWriter<'_> {
    async fn findings_write(
        &mut self,
        kind: Kind,
        found: Vec<Found>,
        reach: Option<Reach<'_>>,
    ) -> Result<(), Failure> {
        let db = &self.billing.db;
        // Postgres takes a row once in a statement.
        let mut subjects = HashSet::new();
        let found: Vec<(BillingFindingId, &Found)> = found
            .iter()
            .filter(|found| subjects.insert(found.subject.as_str()))
            .map(|found| (db.ambient().id(), found))
            .collect();
        let mut upkeep = db.upkeep("record billing findings").await?;
        if !found.is_empty() {
            for subject in findings::upsert(upkeep.conn(), kind, &found, self.now).await? {
                tracing::warn!(kind = kind.name(), subject, "billing records disagree");
                self.done.new.push((kind, subject));
            }
        }
        if let Some(reach) = reach {
            let seen: Vec<String> = found.iter().map(|(_, found)| found.subject.clone()).collect();
            self.done.resolved +=
                findings::resolve_missing(upkeep.conn(), kind, &seen, reach, self.now).await?;
        }
        Ok(())
    }
}
