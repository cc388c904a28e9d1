//! The clock of this process against the clock of the database.
//!
//! **How it works.** Before a tick the worker asks the database what time it is (`ledger_clock`). Further
//! apart than `billing.clock_skew_seconds`, in either direction, and the process does not accrue: it says so by log, metric
//! and finding, and asks again until the clocks agree. The other processes go on.
//!
//! **What it promises.** A process whose clock was stepped ahead charges nobody ahead of time. Between two looks the database
//! itself bounds what can be posted, so the finding is the alert and not the protection.

use chrono::{DateTime, TimeDelta, Utc};
use identity::api::Where;
use kernel::{Failure, policy::keys};
use serde_json::json;

use crate::{
    Billing,
    model::finding::BillingFindingKind,
    store::{accounts, findings, provider_findings},
};

/// A finding that its process has not renewed for so long is over: the process has ended.
const RENEWED_WITHIN: TimeDelta = TimeDelta::minutes(10);

/// How far a process is ahead of the database (less than zero: behind it), in whole seconds. The database was asked between
/// `before` and `after`, and its answer may belong to any moment between them.
fn skew_seconds(before: DateTime<Utc>, database: DateTime<Utc>, after: DateTime<Utc>) -> i64 {
    if before > database {
        (before - database).num_seconds()
    } else if after < database {
        (after - database).num_seconds()
    } else {
        0
    }
}

/// Whether the clock of this process is near enough to that of the database to accrue.
pub async fn clock_agrees(billing: &Billing) -> Result<bool, Failure> {
    let key = keys::BILLING_CLOCK_SKEW_SECONDS;
    let allowed = billing.policies.setting_at(key, Where::default()).await?.get();
    let ambient = billing.db.ambient();
    let mut upkeep = billing.db.upkeep("compare the clock with the database's").await?;
    let before = ambient.now();
    let database = accounts::database_clock(upkeep.conn(), before).await?;
    let skew = skew_seconds(before, database, ambient.now());
    metrics::gauge!("billing_clock_skew_seconds").set(skew as f64);
    let (kind, subject) = (BillingFindingKind::ClockSkew, format!("process on {}", host_name()));
    if skew.abs() <= allowed {
        findings::clocks_agree(upkeep.conn(), &subject, database - RENEWED_WITHIN, database).await?;
        return Ok(true);
    }
    tracing::error!(
        skew_seconds = skew,
        allowed_seconds = allowed,
        "the clock skew between this host and the database is too large: this process does not accrue; set the clock"
    );
    metrics::counter!("billing_accrual_stopped_total").increment(1);
    let detail = json!({ "skew_seconds": skew, "allowed_seconds": allowed, "process_clock": before, "database_clock": database });
    provider_findings::upsert(upkeep.conn(), ambient.id(), kind.name(), &subject, None, &detail, database)
        .await?;
    Ok(false)
}

/// As the kernel has it; whoever reads the finding must know which clock to set.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_else(|_| "an unnamed host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_is_no_skew_and_either_direction_is() {
        let at = |seconds| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        assert_eq!(skew_seconds(at(100), at(130), at(160)), 0);
        assert_eq!(skew_seconds(at(100), at(40), at(101)), 60);
        assert_eq!(skew_seconds(at(100), at(161), at(101)), -60);
    }
}
