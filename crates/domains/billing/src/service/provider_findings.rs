//! Where our books and the payment provider's disagree: kept for people to look at, never mended here.

use kernel::{Failure, ids::OrgId};
use pg::WriteTx;
use serde_json::Value;

use crate::store::provider_findings;

/// What the disagreement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProviderFinding {
    /// We have it, and the provider does not.
    Missing,
    /// The provider has it, and we do not.
    Extra,
    /// Both have it, with other amounts.
    Amount,
    /// We asked for a refund, and whether the provider sent it is not known.
    RefundUnknown,
}

impl ProviderFinding {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "provider_missing",
            Self::Extra => "provider_extra",
            Self::Amount => "provider_amount",
            Self::RefundUnknown => "refund_unknown",
        }
    }
}

/// Keeps a disagreement, in this transaction (of the system). Whether it was not open before.
pub async fn provider_finding(
    tx: &mut WriteTx,
    kind: ProviderFinding,
    subject: &str,
    org: Option<OrgId>,
    detail: &Value,
) -> Result<bool, Failure> {
    let ambient = tx.db().ambient().clone();
    let (id, now) = (ambient.id(), ambient.now());
    Ok(provider_findings::upsert(tx.conn(), id, kind.name(), subject, org, detail, now).await?)
}

/// Closes a disagreement that somebody settled, in this transaction.
pub async fn provider_finding_over(
    tx: &mut WriteTx,
    kind: ProviderFinding,
    subject: &str,
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    Ok(provider_findings::resolve(tx.conn(), kind.name(), subject, now).await?)
}

/// After a day was compared: those of it (`detail.day`) that are not among `seen` are over.
pub async fn provider_findings_gone(
    tx: &mut WriteTx,
    day: &str,
    seen: &[(ProviderFinding, String)],
) -> Result<u64, Failure> {
    let now = tx.db().ambient().now();
    let seen: Vec<String> = seen.iter().map(|(kind, subject)| format!("{} {subject}", kind.name())).collect();
    Ok(provider_findings::resolve_missing(tx.conn(), day, &seen, now).await?)
}
