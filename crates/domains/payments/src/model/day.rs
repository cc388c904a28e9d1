//! A day as the provider lists it, against ours.

use std::collections::BTreeMap;

use chrono::{DateTime, Days, NaiveDate, Utc};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

lifecycle::lifecycle! {
    /// A day can be compared as often as somebody wants.
    DayLifecycle = "payment_day", initial Requested;
    states DayState as "PaymentDayState" { Requested = "requested", Clean = "clean", Different = "different", Failed = "failed" }
    events DayEvent { Agree = "agree", Differ = "differ", Fail = "fail", Request = "request" }
    Requested on Agree => Clean;
    Requested on Differ => Different;
    Requested on Fail => Failed;
    Clean on Request => Requested;
    Different on Request => Requested;
    Failed on Request => Requested;
}

/// A day that was, or is to be, compared with the provider.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PaymentDay {
    #[serde(skip)]
    pub id: Uuid,
    pub provider: String,
    pub day: NaiveDate,
    pub state: DayState,
    pub state_reason: String,
    /// Payments and refunds that the provider lists for the day.
    pub listed: i64,
    /// We have them, and the provider does not.
    pub missing: i64,
    /// The provider has them, and we do not.
    pub extra: i64,
    /// Both have them, with other amounts.
    pub different: i64,
    pub requested_at: DateTime<Utc>,
    pub checked_at: Option<DateTime<Utc>>,
    #[serde(skip)]
    pub attempts: i32,
}

/// Midnight to midnight, in UTC.
pub fn bounds(day: NaiveDate) -> (DateTime<Utc>, DateTime<Utc>) {
    let midnight = |day: NaiveDate| day.and_time(chrono::NaiveTime::MIN).and_utc();
    (midnight(day), midnight(day.checked_add_days(Days::new(1)).unwrap_or(day)))
}

/// An amount in a currency, under the provider's own id of the payment or refund.
pub type Books = BTreeMap<String, (i64, String)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub missing: Vec<String>,
    pub extra: Vec<String>,
    pub different: Vec<String>,
}

/// Where two books disagree about a day. Each side is what it says of that day, and what the other should be found
/// in: a payment just before midnight may belong to the next day on the other side.
pub fn compare(ours: &Books, ours_around: &Books, theirs: &Books, theirs_around: &Books) -> Differences {
    let mut found = Differences::default();
    for (id, amount) in ours {
        match theirs_around.get(id) {
            None => found.missing.push(id.clone()),
            Some(other) if other != amount => found.different.push(id.clone()),
            Some(_) => {}
        }
    }
    for (id, amount) in theirs {
        match ours_around.get(id) {
            None => found.extra.push(id.clone()),
            Some(other) if other != amount && !ours.contains_key(id) => found.different.push(id.clone()),
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books(entries: &[(&str, i64)]) -> Books {
        entries.iter().map(|(id, amount)| ((*id).to_owned(), (*amount, "USD".to_owned()))).collect()
    }

    #[test]
    fn a_missing_an_extra_and_a_different_payment_are_told_apart() {
        let ours = books(&[("a", 1), ("b", 2), ("c", 3), ("late", 9)]);
        let theirs = books(&[("a", 1), ("c", 4), ("d", 5)]);
        let theirs_around = books(&[("a", 1), ("c", 4), ("d", 5), ("late", 9)]);
        let found = compare(&ours, &ours, &theirs, &theirs_around);
        let named = |list: &[&str]| list.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            found,
            Differences { missing: named(&["b"]), extra: named(&["d"]), different: named(&["c"]) }
        );
    }

    #[test]
    fn a_day_is_from_midnight_to_midnight() {
        let (from, until) = bounds("2031-12-31".parse().unwrap());
        assert_eq!(from.to_rfc3339(), "2031-12-31T00:00:00+00:00");
        assert_eq!(until.to_rfc3339(), "2032-01-01T00:00:00+00:00");
    }
}
