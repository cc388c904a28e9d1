//! Reports and exports of what was used. Exports are streams: each page borrows a connection for one query, with the
//! rights of who asked, so that a slow reader holds none and sees nothing else.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use kernel::{Failure, Page, Problem, ids::OrgId};
use pg::{Db, Permit, ReadTx};

use crate::{
    model::{
        focus::{COLUMNS, Row},
        report::{After, Month, Place, Span, UsageRecord, UsageRow, hours},
    },
    store::reports as store,
};

pub use crate::store::reports::{Filter, Sums};

/// Records held in memory at a time, whatever the length of an export.
const BATCH: i64 = 1000;

/// What was used, added up.
pub async fn usage_report(
    tx: &mut ReadTx,
    org: OrgId,
    sums: &Sums,
    filter: &Filter,
    after: Option<Place>,
    limit: i64,
) -> Result<Page<UsageRow>, Failure> {
    let after = after.map(|place| place.0).unwrap_or_default();
    let mut rows = store::usage(tx.conn(), org, sums, filter, &after, limit).await?;
    let more = i64::try_from(rows.len())? == limit;
    if more {
        rows.pop();
    }
    let next_cursor = rows.last().filter(|_| more).map(|(key, _)| Place(key.clone()).encode());
    Ok(Page { items: rows.into_iter().map(|(_, row)| row).collect(), next_cursor })
}

/// Which records are meant.
#[derive(Clone, Debug)]
pub struct Records {
    pub org: OrgId,
    pub filter: Filter,
    /// When it was used.
    pub used: Span,
    /// When it was posted.
    pub posted: Span,
}

impl Records {
    /// All of an organization that were posted in a month.
    pub fn of_month(org: OrgId, month: Month) -> Result<Self, Problem> {
        let used = Span::from_bounds(None, None)?;
        Ok(Self { org, filter: Filter::default(), used, posted: month.span() })
    }

    async fn page(
        &self,
        tx: &mut ReadTx,
        after: &After,
        limit: i64,
    ) -> Result<Vec<UsageRecord>, sqlx::Error> {
        store::records(tx.conn(), self.org, &self.filter, self.used, self.posted, after, limit).await
    }
}

/// What was used, one by one.
pub async fn usage_record_list(
    tx: &mut ReadTx,
    records: &Records,
    after: Option<Place>,
    limit: i64,
) -> Result<Page<UsageRecord>, Failure> {
    let after = after.as_ref().map_or(Ok(After::start()), After::parse)?;
    let mut items = records.page(tx, &after, limit).await?;
    let more = i64::try_from(items.len())? == limit;
    if more {
        items.pop();
    }
    let next_cursor = items.last().filter(|_| more).map(|last| last.place().encode());
    Ok(Page { items, next_cursor })
}

/// The columns of [`usage_export`].
const USAGE_COLUMNS: [&str; 22] = [
    "posted_at",
    "seq",
    "meter_id",
    "kind",
    "window_start",
    "window_end",
    "source",
    "project_id",
    "allocation_id",
    "app_instance_id",
    "component",
    "operating_mode",
    "control_plane_scope",
    "runtime_backend",
    "person_id",
    "sku",
    "unit",
    "units",
    "unit_hours",
    "unit_price_minor",
    "amount_minor",
    "currency",
];

fn usage_cells(record: &UsageRecord) -> [String; 22] {
    fn text<T: ToString>(value: &Option<T>) -> String {
        value.as_ref().map(T::to_string).unwrap_or_default()
    }
    let micros = chrono::SecondsFormat::Micros;
    let seconds = chrono::SecondsFormat::Secs;
    [
        record.posted_at.to_rfc3339_opts(micros, true),
        text(&record.seq),
        record.meter_id.to_string(),
        record.kind.to_string(),
        record.window_start.to_rfc3339_opts(seconds, true),
        record.window_end.to_rfc3339_opts(seconds, true),
        record.source.to_string(),
        record.project_id.to_string(),
        text(&record.allocation_id),
        text(&record.app_instance_id),
        text(&record.component),
        text(&record.operating_mode),
        text(&record.control_plane_scope),
        text(&record.runtime_backend),
        text(&record.person_id),
        record.sku.clone(),
        record.unit.to_string(),
        record.units.to_string(),
        hours(record.unit_seconds),
        record.unit_price_minor.to_string(),
        record.amount_minor.to_string(),
        record.currency.clone(),
    ]
}

enum Progress {
    Start,
    Usage(After),
    Grants(i64, i32),
    End,
}

/// What was used as CSV, one record a line.
pub fn usage_export(db: Db, permit: Permit, records: Records) -> BoxStream<'static, Result<Bytes, Failure>> {
    stream::try_unfold(Progress::Start, move |progress| {
        let (db, permit, records) = (db.clone(), permit.clone(), records.clone());
        async move {
            match progress {
                Progress::Start => Ok(Some((csv([&USAGE_COLUMNS[..]])?, Progress::Usage(After::start())))),
                Progress::Usage(after) => {
                    let rows = records.page(&mut db.read(&permit).await?, &after, BATCH).await?;
                    let Some(last) = rows.last() else { return Ok(None) };
                    let after = After::parse(&last.place())?;
                    Ok(Some((csv(rows.iter().map(usage_cells))?, Progress::Usage(after))))
                }
                Progress::Grants(..) | Progress::End => Ok(None),
            }
        }
    })
    .boxed()
}

/// The charges of a month as CSV in the shape of FOCUS 1.0.
pub fn focus_export(db: Db, permit: Permit, records: Records) -> BoxStream<'static, Result<Bytes, Failure>> {
    stream::try_unfold(Progress::Start, move |progress| {
        let (db, permit, records) = (db.clone(), permit.clone(), records.clone());
        async move { focus_step(&db, &permit, &records, progress).await }
    })
    .boxed()
}

async fn focus_step(
    db: &Db,
    permit: &Permit,
    records: &Records,
    progress: Progress,
) -> Result<Option<(Bytes, Progress)>, Failure> {
    let org = records.org;
    match progress {
        Progress::Start => Ok(Some((csv([&COLUMNS[..]])?, Progress::Usage(After::start())))),
        Progress::Usage(after) => {
            let rows = records.page(&mut db.read(permit).await?, &after, BATCH).await?;
            let Some(last) = rows.last() else { return Ok(Some((Bytes::new(), Progress::Grants(0, 0)))) };
            let after = After::parse(&last.place())?;
            let rows = rows.iter().map(|record| Row::of_usage(org, record).0);
            Ok(Some((csv(rows)?, Progress::Usage(after))))
        }
        Progress::Grants(seq, line) => {
            let mut read = db.read(permit).await?;
            let rows = store::grants(read.conn(), org, records.posted, (seq, line), BATCH).await?;
            let next = rows.last().map_or(Progress::End, |last| Progress::Grants(last.seq, last.line));
            Ok(Some((csv(rows.iter().map(|grant| Row::of_grant(org, grant).0))?, next)))
        }
        Progress::End => Ok(None),
    }
}

/// Lines of a table. A cell that a spreadsheet would take for a formula gets a quote before it, unless it is a number.
fn csv<R, C>(rows: impl IntoIterator<Item = R>) -> Result<Bytes, Failure>
where
    R: IntoIterator<Item = C>,
    C: AsRef<str>,
{
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        for cell in row {
            let cell = cell.as_ref();
            if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err() {
                writer.write_field(format!("'{cell}"))?;
            } else {
                writer.write_field(cell)?;
            }
        }
        writer.write_record(None::<&[u8]>)?;
    }
    let done = writer.into_inner().map_err(|error| Failure::bug(error.to_string()))?;
    Ok(done.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_look_like_formulas_are_quoted_and_numbers_are_not() {
        let made = csv([["=1+1", "-0.05", "a,b", "+x", "say \"hi\""]]).unwrap();
        assert_eq!(&made[..], b"'=1+1,-0.05,\"a,b\",'+x,\"say \"\"hi\"\"\"\n");
    }
}
