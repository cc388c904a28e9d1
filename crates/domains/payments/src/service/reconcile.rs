//! Our books against the provider's, day by day. What disagrees is kept for people, never mended.

use billing::api::ProviderFinding;
use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};
use kernel::{Code, Failure, Page, PageQuery, Problem};
use pg::{ReadTx, WriteTx, created};
use serde_json::json;

use super::{later, processing::LEASE, write};
use crate::{
    Payments,
    model::{
        day::{Books, DayState, Differences, PaymentDay, bounds, compare},
        events::ReconcileFailed,
    },
    provider::{ProviderError, Span},
    store::{days, payments as rows, refunds},
};

/// Messages of a day's last minutes may come after midnight.
const AFTER_MIDNIGHT: TimeDelta = TimeDelta::hours(1);
/// Days before this are compared only when somebody asks.
const DAYS_BACK: u64 = 7;
const MOST_ATTEMPTS: i32 = 20;
const FIRST_SECONDS: i64 = 60;
const LONGEST_SECONDS: i64 = 3600;
/// More entries than this in three days are compared in another way.
const MOST_PAGES: usize = 2000;

/// Asks for a day; the worker compares it.
pub async fn request(payments: &Payments, tx: &mut WriteTx, day: NaiveDate) -> Result<PaymentDay, Failure> {
    let now = tx.db().ambient().now();
    if payments.provider.name() == "disabled" {
        return Err(Problem::new(Code::Unprocessable, "No payment provider is configured.").into());
    }
    if bounds(day).0 > now || bounds(day).1 < now - TimeDelta::days(3650) {
        let text = "Only days of the last ten years, up to today, can be reconciled.";
        return Err(Problem::field("day", text).into());
    }
    let id = tx.db().ambient().uuid();
    let asked = days::request(tx.conn(), id, payments.provider.name(), day, now).await?;
    created(tx, "payment_day", day, &asked)?;
    Ok(asked)
}

pub async fn list(tx: &mut ReadTx, page: &PageQuery) -> Result<Page<PaymentDay>, Failure> {
    Ok(page.page(days::list(tx.conn(), page).await?, |day| day.id))
}

/// Asks for the days that are over. How many are new.
pub async fn request_past(payments: &Payments) -> Result<u64, Failure> {
    if payments.provider.name() == "disabled" {
        return Ok(0);
    }
    let ambient = payments.db.ambient();
    let now = ambient.now();
    let today = (now - AFTER_MIDNIGHT).date_naive();
    let past = (1..=DAYS_BACK).filter_map(|back| today.checked_sub_days(Days::new(back)));
    let past: Vec<_> = past.map(|day| (ambient.uuid(), day)).collect();
    let mut upkeep = payments.db.upkeep("ask for days to be compared").await?;
    Ok(days::request_past(upkeep.conn(), payments.provider.name(), &past, now).await?)
}

/// Compares one day that was asked for. Whether there was one.
pub async fn compare_next(payments: &Payments) -> Result<bool, Failure> {
    let now = payments.db.ambient().now();
    let mut upkeep = payments.db.upkeep("take a day to be compared").await?;
    // Listing takes long: another worker takes it over only after a while.
    let taken = days::take_due(upkeep.conn(), payments.provider.name(), now, now + LEASE * 10).await?;
    drop(upkeep);
    let Some(day) = taken else { return Ok(false) };
    match listed(payments, &day).await {
        Ok((payments_listed, refunds_listed)) => {
            conclude(payments, &day, payments_listed, refunds_listed).await?;
        }
        Err(error) if day.attempts >= MOST_ATTEMPTS => {
            let outcome = days::Outcome {
                state: DayState::Failed,
                reason: &error.to_string(),
                listed: 0,
                missing: 0,
                extra: 0,
                different: 0,
            };
            let reason = "a day could not be compared";
            let mut tx = write(payments, reason, "payment_day.fail", None).await?;
            days::finish(tx.conn(), day.id, outcome, payments.db.ambient().now()).await?;
            tx.commit(None).await?;
        }
        Err(error) => {
            tracing::warn!(day = %day.day, %error, "a day could not be compared, trying again");
            let until = later(payments.db.ambient().now(), day.attempts, FIRST_SECONDS, LONGEST_SECONDS);
            let mut upkeep = payments.db.upkeep("compare a day later").await?;
            days::postpone(upkeep.conn(), day.id, &error.to_string(), until).await?;
        }
    }
    Ok(true)
}

/// Of the day, and of the days around it.
type Listed = (Books, Books);

async fn listed(payments: &Payments, day: &PaymentDay) -> Result<(Listed, Listed), ProviderError> {
    let (from, until) = bounds(day.day);
    let around = (from - TimeDelta::days(1), until + TimeDelta::days(1));
    let of_day = (all_payments(payments, from, until).await?, all_refunds(payments, from, until).await?);
    let wide =
        (all_payments(payments, around.0, around.1).await?, all_refunds(payments, around.0, around.1).await?);
    Ok(((of_day.0, wide.0), (of_day.1, wide.1)))
}

fn too_many() -> ProviderError {
    ProviderError::Unavailable("it lists more than can be compared".to_owned())
}

async fn all_payments(
    payments: &Payments,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Books, ProviderError> {
    let (mut books, mut span) = (Books::new(), Span { from, until, after: None });
    for _ in 0..MOST_PAGES {
        let page = payments.provider.payments_list(&span).await?;
        span.after = page.data.last().map(|last| last.id.clone());
        for intent in page.data.into_iter().filter(|intent| intent.status == "succeeded") {
            books.insert(intent.id, (intent.amount_received, intent.currency.to_ascii_uppercase()));
        }
        if !page.has_more || span.after.is_none() {
            return Ok(books);
        }
    }
    Err(too_many())
}

async fn all_refunds(
    payments: &Payments,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Books, ProviderError> {
    let (mut books, mut span) = (Books::new(), Span { from, until, after: None });
    for _ in 0..MOST_PAGES {
        let page = payments.provider.refunds_list(&span).await?;
        span.after = page.data.last().map(|last| last.id.clone());
        for refund in page.data.into_iter().filter(|refund| !refund.has_failed()) {
            books.insert(refund.id, (refund.amount, refund.currency.to_ascii_uppercase()));
        }
        if !page.has_more || span.after.is_none() {
            return Ok(books);
        }
    }
    Err(too_many())
}

async fn conclude(
    payments: &Payments,
    day: &PaymentDay,
    theirs_paid: Listed,
    theirs_back: Listed,
) -> Result<(), Failure> {
    let (from, until) = bounds(day.day);
    let reason = "a day was compared with the payment provider";
    let mut tx = write(payments, reason, "payment_day.compare", None).await?;
    let ids = |books: &Books| books.keys().cloned().collect::<Vec<_>>();
    let provider = day.provider.as_str();
    let ours_paid = rows::books(tx.conn(), provider, from, until, &ids(&theirs_paid.0)).await?;
    let ours_back = refunds::books(tx.conn(), provider, from, until, &ids(&theirs_back.0)).await?;
    let paid = compare(&ours_paid.0, &ours_paid.1, &theirs_paid.0, &theirs_paid.1);
    let back = compare(&ours_back.0, &ours_back.1, &theirs_back.0, &theirs_back.1);
    let mut seen = Vec::new();
    findings_write(&mut tx, day, "payment", &paid, (&ours_paid.1, &theirs_paid.1), &mut seen).await?;
    findings_write(&mut tx, day, "refund", &back, (&ours_back.1, &theirs_back.1), &mut seen).await?;
    billing::api::provider_findings_gone(&mut tx, &day.day.to_string(), &seen).await?;
    let count =
        |each: fn(&Differences) -> usize| i64::try_from(each(&paid) + each(&back)).unwrap_or(i64::MAX);
    let (missing, extra) = (count(|found| found.missing.len()), count(|found| found.extra.len()));
    let different = count(|found| found.different.len());
    let clean = seen.is_empty();
    let outcome = days::Outcome {
        state: if clean { DayState::Clean } else { DayState::Different },
        reason: if clean { "both agree" } else { "see the findings" },
        listed: i64::try_from(theirs_paid.0.len() + theirs_back.0.len())?,
        missing,
        extra,
        different,
    };
    let now = payments.db.ambient().now();
    // Asked for again meanwhile, and done by somebody else.
    if days::finish(tx.conn(), day.id, outcome, now).await?.is_none() {
        tx.roll_back().await;
        return Ok(());
    }
    if !clean {
        tracing::error!(day = %day.day, missing, extra, different, "the payment provider lists other payments than we do");
        tx.emit(&ReconcileFailed { day: day.day.to_string(), missing, extra, different })?;
    }
    tx.record("payment_day", day.day, None::<&()>, Some(&(missing, extra, different)))?;
    tx.commit(None).await?;
    for (kind, count) in [("missing", missing), ("extra", extra), ("different", different)] {
        metrics::gauge!("payment_day_differences", "kind" => kind).set(count as f64);
    }
    Ok(())
}

async fn findings_write(
    tx: &mut WriteTx,
    day: &PaymentDay,
    what: &str,
    found: &Differences,
    (ours, theirs): (&Books, &Books),
    seen: &mut Vec<(ProviderFinding, String)>,
) -> Result<(), Failure> {
    let kinds = [
        (ProviderFinding::Missing, &found.missing),
        (ProviderFinding::Extra, &found.extra),
        (ProviderFinding::Amount, &found.different),
    ];
    for (kind, ids) in kinds {
        for id in ids {
            let subject = format!("{what} {id}");
            let detail = json!({
                "day": day.day, "provider": day.provider, "ours": ours.get(id), "theirs": theirs.get(id),
            });
            billing::api::provider_finding(tx, kind, &subject, None, &detail).await?;
            seen.push((kind, subject));
        }
    }
    Ok(())
}
