//! The audit trail: listed, exported, verified.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use kernel::{
    Code, CorrelationId, Failure, Page, PageQuery, Problem,
    audit_chain::{AuditRecord, ChainFault, ChainHead, ChainVerifier, ExportLine, FaultReason},
    ids::OrgId,
};
use pg::{Db, Origin, Permit, ReadTx};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::store;
pub use crate::store::audit::Filter;

/// Rows held in memory at a time, whatever the length of the chain.
const BATCH: i64 = 1000;
/// Faults named by one verification; there is at most one per chain.
const FAULTS_SHOWN: usize = 100;
/// Verifications at a time, in one replica.
const WALKS_AT_ONCE: usize = 2;

/// What a verification found.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct AuditVerification {
    /// Whether every chain is whole.
    pub ok: bool,
    pub chains: u64,
    /// Rows found good.
    pub rows: i64,
    /// The first bad row of each broken chain.
    pub faults: Vec<ChainFault>,
}

/// Newest first; the cursor is the place in the chain.
pub async fn audit_list(
    tx: &mut ReadTx,
    org: Option<OrgId>,
    filter: &Filter,
    page: &PageQuery,
) -> Result<Page<AuditRecord>, Failure> {
    let before = i64::try_from(page.before().as_u128()).unwrap_or(i64::MAX);
    let rows = store::audit::list(tx.conn(), org, filter, before, page.limit()).await?;
    Ok(page.page(rows, |row| Uuid::from_u128(u128::from(row.seq.unsigned_abs()))))
}

enum Progress {
    Start,
    After { seq: i64, head: ChainHead },
}

/// A whole chain as NDJSON: its head, then its rows in order. Each batch borrows a connection for one
/// query, so that a slow reader holds none.
pub fn audit_export(db: Db, org: Option<OrgId>) -> BoxStream<'static, Result<Bytes, Failure>> {
    stream::try_unfold(Progress::Start, move |progress| {
        let db = db.clone();
        async move { export_step(&db, org, progress).await }
    })
    .boxed()
}

async fn export_step(
    db: &Db,
    org: Option<OrgId>,
    progress: Progress,
) -> Result<Option<(Bytes, Progress)>, Failure> {
    // The caller was authorized for this chain before the stream began; its statements name the chain.
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let mut read = db.read(&Permit::system("export an audit chain", origin)).await?;
    let mut out = Vec::new();
    match progress {
        Progress::Start => {
            let (head, _) = store::audit::head(read.conn(), org).await?;
            write_line(&mut out, &ExportLine::Head { head: head.clone() })?;
            Ok(Some((out.into(), Progress::After { seq: 0, head })))
        }
        Progress::After { mut seq, head } => {
            let rows = store::audit::batch(read.conn(), org, seq, head.seq, BATCH).await?;
            if rows.is_empty() {
                return Ok(None);
            }
            for row in rows {
                seq = row.seq;
                write_line(&mut out, &ExportLine::Record(Box::new(row)))?;
            }
            Ok(Some((out.into(), Progress::After { seq, head })))
        }
    }
}

fn write_line(out: &mut Vec<u8>, line: &ExportLine) -> Result<(), serde_json::Error> {
    serde_json::to_writer(&mut *out, line)?;
    out.push(b'\n');
    Ok(())
}

/// Walks chains and checks their hashes. A walk may be long: each batch borrows a connection for one query, and
/// few walks go on at a time.
#[derive(Clone)]
pub struct AuditVerifier {
    db: Db,
    places: Arc<Semaphore>,
}

fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    places.clone().try_acquire_owned().map_err(|_| {
        let text = "Audit trails are being verified for others right now.";
        Problem::new(Code::ServiceUnavailable, text).retry_after(10)
    })
}

impl AuditVerifier {
    pub fn new(db: Db) -> Self {
        Self { db, places: Arc::new(Semaphore::new(WALKS_AT_ONCE)) }
    }

    async fn read(&self) -> Result<ReadTx, Failure> {
        // The caller was authorized for the chains before; the statements name them.
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        Ok(self.db.read(&Permit::system("verify audit chains", origin)).await?)
    }

    /// Verifies one chain.
    pub async fn verify(&self, org: Option<OrgId>) -> Result<AuditVerification, Failure> {
        let _place = place(&self.places)?;
        let mut found = AuditVerification::default();
        self.verify_into(org, &mut found).await?;
        found.ok = found.faults.is_empty();
        Ok(found)
    }

    /// Verifies every chain there is.
    pub async fn verify_all(&self) -> Result<AuditVerification, Failure> {
        let _place = place(&self.places)?;
        let mut found = AuditVerification::default();
        self.verify_into(None, &mut found).await?;
        let mut after = Uuid::nil();
        loop {
            let chains = store::audit::chains(self.read().await?.conn(), after, BATCH).await?;
            let Some(last) = chains.last() else { break };
            after = *last;
            for chain in chains {
                self.verify_into(Some(OrgId::from(chain)), &mut found).await?;
            }
        }
        found.ok = found.faults.is_empty();
        Ok(found)
    }

    async fn verify_into(&self, org: Option<OrgId>, found: &mut AuditVerification) -> Result<(), Failure> {
        let (rows, fault) = self.verify_chain(org).await?;
        found.chains += 1;
        found.rows += rows;
        found.faults.extend(fault.filter(|_| found.faults.len() < FAULTS_SHOWN));
        Ok(())
    }

    /// How many rows are good, and the first fault if there is one.
    async fn verify_chain(&self, org: Option<OrgId>) -> Result<(i64, Option<ChainFault>), Failure> {
        let (head, last) = store::audit::head(self.read().await?.conn(), org).await?;
        let mut verifier = ChainVerifier::new(org);
        let mut after = i64::MIN;
        loop {
            let rows = store::audit::batch(self.read().await?.conn(), org, after, head.seq, BATCH).await?;
            let Some(newest) = rows.last() else { break };
            after = newest.seq;
            for row in &rows {
                if let Err(fault) = verifier.check(row) {
                    return Ok((verifier.rows(), Some(fault)));
                }
            }
        }
        // Head and last row were read at one moment: a row beyond the head was not appended by us.
        let fault = verifier.finish(&head).err().or_else(|| {
            let reason = FaultReason::Inserted;
            (last > head.seq).then(|| ChainFault { org_id: org, seq: head.seq + 1, id: None, reason })
        });
        Ok((verifier.rows(), fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_walk_is_sent_away_and_a_freed_place_is_taken_again() {
        let places = Arc::new(Semaphore::new(WALKS_AT_ONCE));
        let first = place(&places).unwrap();
        let _second = place(&places).unwrap();
        let refused = place(&places).unwrap_err();
        assert_eq!((refused.code, refused.retry_after_seconds), (Code::ServiceUnavailable, Some(10)));
        drop(first);
        assert!(place(&places).is_ok());
    }
}
