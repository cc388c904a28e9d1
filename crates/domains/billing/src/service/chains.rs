//! Chains, walked in bounded batches: for an export, and to check them. Both see the same records, so what is found in
//! the product is found on an export.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use kernel::{
    Code, CorrelationId, Failure, Problem,
    ids::OrgId,
    ledger::{ChainVerifier, ExportLine, Fault, FaultReason, Head, Posting},
};
use pg::{Origin, Permit, ReadTx};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::checkpoints::{LedgerKey, genuine, keys};
use crate::{Billing, store::chains};

/// Postings and lines held in memory at a time, whatever the length of the chain.
const POSTINGS: i64 = 200;
const LINES: i64 = 2000;
const CHECKPOINTS: i64 = 1000;
/// Chains listed at a time.
const CHAINS: i64 = 500;
/// Faults named by one verification; there is at most one per chain.
const FAULTS_SHOWN: usize = 100;
/// Verifications at a time, in one replica.
const WALKS_AT_ONCE: usize = 2;

/// One record of a chain, and whether what it was made for is kept as posted.
type Record = (ExportLine, bool);

struct Walk {
    /// Where the chain ended when the walk began; what came later is not looked at.
    seq: i64,
    checkpoint_seq: i64,
    postings: VecDeque<(Posting, bool)>,
    postings_after: (i64, DateTime<Utc>),
    lines_after: (i64, i32, DateTime<Utc>),
    checkpoints_after: i64,
    /// The last posting of those that were read; with `all_read`, the end of the chain.
    range_end: i64,
    all_read: bool,
}

enum Step {
    Start,
    Walk(Walk),
    Done,
}

/// Reads a chain in order. Each batch borrows a connection for itself, so that a slow reader holds none.
pub struct ChainReader {
    billing: Billing,
    org: OrgId,
    step: Step,
    /// What the head says of where the last posting is, is true.
    placed: bool,
}

async fn read(billing: &Billing) -> Result<ReadTx, Failure> {
    // The caller was authorized for the chain before; the statements name it.
    let origin = Origin::internal(CorrelationId(billing.db.ambient().uuid()));
    Ok(billing.db.read(&Permit::system("walk a ledger", origin)).await?)
}

impl ChainReader {
    pub fn new(billing: Billing, org: OrgId) -> Self {
        Self { billing, org, step: Step::Start, placed: true }
    }

    /// The next records; nothing at the end. The first is the head.
    pub async fn next(&mut self) -> Result<Option<Vec<Record>>, Failure> {
        loop {
            let batch = match &mut self.step {
                Step::Done => return Ok(None),
                Step::Start => {
                    let ends = chains::ends(read(&self.billing).await?.conn(), self.org).await?;
                    self.placed = ends.placed;
                    let head = ends.head.unwrap_or_else(|| Head::empty(self.org, self.billing.currency()));
                    self.step = Step::Walk(Walk {
                        seq: ends.seq.max(ends.checkpoint_seq),
                        checkpoint_seq: ends.checkpoint_seq,
                        postings: VecDeque::new(),
                        postings_after: (i64::MIN, DateTime::UNIX_EPOCH),
                        lines_after: (i64::MIN, 0, DateTime::UNIX_EPOCH),
                        checkpoints_after: i64::MIN,
                        range_end: i64::MIN,
                        all_read: false,
                    });
                    vec![(ExportLine::Head(head), true)]
                }
                Step::Walk(walk) => {
                    let (batch, done) = walk.batch(&self.billing, self.org).await?;
                    if done {
                        self.step = Step::Done;
                    }
                    batch
                }
            };
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }
}

impl Walk {
    /// The next records in order, and whether they are the last.
    async fn batch(&mut self, billing: &Billing, org: OrgId) -> Result<(Vec<Record>, bool), Failure> {
        let mut tx = read(billing).await?;
        if self.postings.is_empty() && !self.all_read {
            let found = chains::postings(tx.conn(), org, self.postings_after, self.seq, POSTINGS).await?;
            self.all_read = found.len() < usize::try_from(POSTINGS)?;
            if let Some((last, _)) = found.last() {
                self.postings_after = (last.seq, last.posted_at);
                self.range_end = last.seq;
            }
            if self.all_read {
                self.range_end = self.seq;
            }
            self.postings = found.into();
        }
        let lines = chains::lines(tx.conn(), org, self.lines_after, self.range_end, LINES).await?;
        if let Some(last) = lines.last() {
            self.lines_after = (last.seq, last.line, last.posted_at);
        }
        // When there are more lines of a posting, what follows them has to wait.
        let more = lines.len() == usize::try_from(LINES)?;
        let (postings_to, checkpoints_to) = match lines.last().filter(|_| more) {
            Some(last) => (last.seq, last.seq.saturating_sub(1)),
            None => (self.range_end, self.range_end),
        };
        let signed_to = checkpoints_to.min(self.checkpoint_seq);
        let signed =
            chains::checkpoints(tx.conn(), org, self.checkpoints_after, signed_to, CHECKPOINTS).await?;
        drop(tx);
        self.checkpoints_after = self.checkpoints_after.max(signed_to);
        let mut batch: Vec<((i64, u8), Record)> = Vec::new();
        while let Some((posting, kept)) =
            self.postings.pop_front_if(|(posting, _)| posting.seq <= postings_to)
        {
            batch.push(((posting.seq, 0), (ExportLine::Posting(Box::new(posting)), kept)));
        }
        batch.extend(lines.into_iter().map(|line| ((line.seq, 1), (ExportLine::Line(Box::new(line)), true))));
        batch.extend(signed.into_iter().map(|c| ((c.seq, 2), (ExportLine::Checkpoint(Box::new(c)), true))));
        // Stable: lines of a posting are in their order already.
        batch.sort_by_key(|(place, _)| *place);
        Ok((batch.into_iter().map(|(_, record)| record).collect(), self.all_read && !more))
    }
}

/// A whole chain as NDJSON, as [`kernel::ledger`] describes it.
pub fn ledger_export(billing: Billing, org: OrgId) -> BoxStream<'static, Result<Bytes, Failure>> {
    stream::try_unfold(ChainReader::new(billing, org), |mut reader| async move {
        let Some(batch) = reader.next().await? else { return Ok(None) };
        let mut out = Vec::new();
        for (line, _) in batch {
            serde_json::to_writer(&mut out, &line)?;
            out.push(b'\n');
        }
        Ok(Some((Bytes::from(out), reader)))
    })
    .boxed()
}

/// What checking one chain found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LedgerVerification {
    /// Whether the chain is whole.
    pub ok: bool,
    pub head: Head,
    /// Postings found good, with all their lines.
    pub postings: u64,
    pub lines: u64,
    pub checkpoints: u64,
    /// The first thing that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The keys whose signatures are trusted: compare them with those of an export.
    pub keys: Vec<LedgerKey>,
}

/// Checks one chain, however many others are being checked.
pub async fn chain_verify(billing: &Billing, org: OrgId) -> Result<LedgerVerification, Failure> {
    let keys = keys(billing)?;
    let mut chain = ChainVerifier::new(Head::empty(org, billing.currency()));
    let mut reader = ChainReader::new(billing.clone(), org);
    let mut fault = None;
    'chain: while let Some(batch) = reader.next().await? {
        for (line, kept) in batch {
            if let Err(found) = check(&mut chain, line, kept, &keys) {
                fault = Some(found);
                break 'chain;
            }
        }
    }
    let fault = fault.or_else(|| chain.finish().err()).or_else(|| {
        let (seq, reason) = (chain.head().seq, FaultReason::HeadMismatch);
        (!reader.placed).then_some(Fault { org_id: org, seq, line: None, id: None, reason })
    });
    Ok(LedgerVerification {
        ok: fault.is_none(),
        head: chain.head().clone(),
        postings: chain.postings(),
        lines: chain.lines(),
        checkpoints: chain.checkpoints(),
        fault,
        keys,
    })
}

fn check(chain: &mut ChainVerifier, line: ExportLine, kept: bool, keys: &[LedgerKey]) -> Result<(), Fault> {
    match line {
        ExportLine::Head(head) => *chain = ChainVerifier::new(head),
        ExportLine::Posting(posting) => {
            chain.posting(&posting)?;
            if !kept {
                let (org_id, seq, id) = (posting.org_id, posting.seq, Some(posting.id));
                return Err(Fault { org_id, seq, line: None, id, reason: FaultReason::ReferenceMissing });
            }
        }
        ExportLine::Line(line) => chain.line(&line)?,
        ExportLine::Checkpoint(checkpoint) => {
            chain
                .checkpoint(&checkpoint, &|key, message, signature| genuine(keys, key, message, signature))?;
        }
    }
    Ok(())
}

/// What checking every chain found.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LedgersVerification {
    /// Whether every chain is whole.
    pub ok: bool,
    pub chains: u64,
    /// Postings found good, with all their lines.
    pub postings: u64,
    pub lines: u64,
    pub checkpoints: u64,
    /// How many chains are not whole.
    pub broken: u64,
    /// The first thing that is wrong with each of them; the first hundred.
    pub faults: Vec<Fault>,
    /// The keys whose signatures are trusted.
    pub keys: Vec<LedgerKey>,
}

/// Checks every chain there is.
pub async fn chains_verify(billing: &Billing) -> Result<LedgersVerification, Failure> {
    let mut found = LedgersVerification { keys: keys(billing)?, ..LedgersVerification::default() };
    let mut after = Uuid::nil();
    loop {
        let orgs = chains::orgs(read(billing).await?.conn(), after, CHAINS).await?;
        let Some(last) = orgs.last() else { break };
        after = last.uuid();
        for org in orgs {
            let chain = chain_verify(billing, org).await?;
            found.chains += 1;
            found.postings += chain.postings;
            found.lines += chain.lines;
            found.checkpoints += chain.checkpoints;
            found.broken += u64::from(!chain.ok);
            found.faults.extend(chain.fault.filter(|_| found.faults.len() < FAULTS_SHOWN));
        }
    }
    found.ok = found.broken == 0;
    Ok(found)
}

/// Checks chains for requests: a walk may be long, and few go on at a time.
#[derive(Clone)]
pub struct LedgerVerifier {
    billing: Billing,
    places: Arc<Semaphore>,
}

impl LedgerVerifier {
    pub fn new(billing: Billing) -> Self {
        Self { billing, places: Arc::new(Semaphore::new(WALKS_AT_ONCE)) }
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let text = "Too many ledger verifications are running.";
            Problem::new(Code::ServiceUnavailable, text)
                .retry_after(10)
                .suggest("Export the ledger and verify it with `gpuaas ledger verify --file`.")
        })
    }

    pub async fn verify(&self, org: OrgId) -> Result<LedgerVerification, Failure> {
        let _place = self.place()?;
        chain_verify(&self.billing, org).await
    }

    pub async fn verify_all(&self) -> Result<LedgersVerification, Failure> {
        let _place = self.place()?;
        chains_verify(&self.billing).await
    }
}
