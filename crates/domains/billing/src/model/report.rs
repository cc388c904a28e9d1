//! What was used and what it cost: how it is grouped, filtered and shown.

use std::borrow::Cow;

use chrono::{DateTime, Datelike as _, Months, NaiveDate, TimeZone as _, Utc};
use kernel::{
    Code, Problem,
    ids::{AllocationId, MeterId, ProjectId, UserId},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use uuid::Uuid;

use super::meter::{MeterSource, MeterUnit};

/// A time in the years 1970 to 9999: what the database can compare with.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub DateTime<Utc>);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let at = DateTime::deserialize(d)?;
        if (1970..=9999).contains(&at.year()) {
            Ok(Self(at))
        } else {
            Err(D::Error::custom("must be a time in the years 1970 to 9999"))
        }
    }
}

impl JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        DateTime::<Utc>::json_schema(generator)
    }
}

/// From one time to another, the latter not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
}

impl Span {
    /// Whatever is not given has no bound.
    pub fn from_bounds(from: Option<Moment>, to: Option<Moment>) -> Result<Self, Problem> {
        let first = DateTime::UNIX_EPOCH;
        let last =
            Utc.with_ymd_and_hms(9999, 12, 31, 23, 59, 59).single().unwrap_or(DateTime::<Utc>::MAX_UTC);
        let span = Self { from: from.map_or(first, |at| at.0), to: to.map_or(last, |at| at.0) };
        if span.from < span.to {
            return Ok(span);
        }
        Err(Problem::new(Code::ValidationError, "The requested period ends before it starts."))
    }
}

/// A calendar month, UTC: `2026-11`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(NaiveDate);

impl Month {
    pub fn containing(at: DateTime<Utc>) -> Self {
        let day = at.date_naive();
        Self(day.with_day(1).unwrap_or(day))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let digits = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(year, 4) || !digits(month, 2) {
            return None;
        }
        let (year, month) = (year.parse().ok()?, month.parse().ok()?);
        NaiveDate::from_ymd_opt(year, month, 1).filter(|_| (1970..9999).contains(&year)).map(Self)
    }

    pub fn next(self) -> Self {
        Self(self.0.checked_add_months(Months::new(1)).unwrap_or(self.0))
    }

    pub fn span(self) -> Span {
        let start = |month: Self| month.0.and_time(chrono::NaiveTime::MIN).and_utc();
        Span { from: start(self), to: start(self.next()) }
    }

    /// Its place among all months.
    pub fn number(self) -> u32 {
        self.0.year().unsigned_abs() * 12 + self.0.month0()
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.format("%Y-%m"))
    }
}

impl Serialize for Month {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Month {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("must be a month such as 2026-11"))
    }
}

impl JsonSchema for Month {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Month".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$" })
    }
}

lifecycle::named_enum! {
    /// What rows are added up by.
    Group = "group" as "UsageGroup" {
        Org = "org",
        Project = "project",
        Person = "person",
        Sku = "sku",
        AppInstance = "app_instance",
        Allocation = "allocation",
    }
}

/// Several of them, with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Vec<Group>);

impl Groups {
    pub fn has(&self, group: Group) -> bool {
        self.0.contains(&group)
    }
}

impl<'de> Deserialize<'de> for Groups {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        let groups: Result<Vec<Group>, _> = text.split(',').map(str::parse).collect();
        groups.map(Self).map_err(|_| {
            let names = Group::ALL.map(Group::name).join(", ");
            D::Error::custom(format!("must be a comma-separated list of {names}"))
        })
    }
}

impl JsonSchema for Groups {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Groups".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = format!("({})", Group::ALL.map(Group::name).join("|"));
        json_schema!({ "type": "string", "pattern": format!("^{one}(,{one})*$") })
    }
}

lifecycle::named_enum! {
    /// How long the times are that rows are added up over.
    Every = "length of time" as "UsageInterval" { Hour = "hour", Day = "day", Month = "month" }
}

lifecycle::named_enum! {
    /// `usage`, or `credit` and `correction` for what was taken back.
    UsageKind = "kind of usage" { Usage = "usage", Credit = "credit", Correction = "correction" }
}

/// Where the next page begins: opaque to clients, and carries no authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(pub String);

impl Place {
    pub fn encode(&self) -> String {
        format!("k{}", kernel::hex::encode(self.0.as_bytes()))
    }

    fn decode(text: &str) -> Option<Self> {
        let hex =
            text.strip_prefix('k').filter(|hex| hex.len() % 2 == 0 && hex.len() <= 2000 && hex.is_ascii())?;
        let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        String::from_utf8(bytes?).ok().filter(|text| !text.contains('\0')).map(Self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        Self::decode(&text).ok_or_else(|| D::Error::custom("not a cursor from an earlier page of this list"))
    }
}

impl JsonSchema for Place {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Place".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^k([0-9a-f]{2})+$", "maxLength": 2001 })
    }
}

/// What was used by one group in one time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UsageRow {
    /// Where the time begins; absent when it is not split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_start: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person_id: Option<UserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_instance_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_id: Option<AllocationId>,
    pub unit: MeterUnit,
    /// For how long, without what was taken back.
    pub seconds: i64,
    /// Units times seconds: exact.
    pub unit_seconds: i64,
    pub unit_hours: f64,
    /// What was charged, less what was given back for it.
    pub cost_minor: i64,
    pub currency: String,
}

/// One window of one meter, as it was charged or given back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UsageRecord {
    pub meter_id: MeterId,
    pub kind: UsageKind,
    pub window_start: DateTime<Utc>,
    pub window_end: DateTime<Utc>,
    pub source: MeterSource,
    pub project_id: ProjectId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_id: Option<AllocationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_instance_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person_id: Option<UserId>,
    pub sku: String,
    pub unit: MeterUnit,
    pub units: i32,
    /// Units times seconds; less than zero for what was taken back.
    pub unit_seconds: i64,
    pub unit_price_minor: i64,
    pub currency: String,
    /// Whole minor units that became due in this window.
    pub amount_minor: i64,
    /// The posting that holds it; absent when no whole minor unit became due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    pub posted_at: DateTime<Utc>,
}

impl UsageRecord {
    /// Its place in the list.
    pub fn place(&self) -> Place {
        let (posted, start) = (self.posted_at.timestamp_micros(), self.window_start.timestamp_micros());
        Place(format!("{posted}|{}|{start}|{}", self.meter_id.uuid().simple(), self.kind))
    }
}

/// The place of a record, taken apart.
#[derive(Clone, Debug)]
pub struct After {
    pub posted_at: DateTime<Utc>,
    pub meter: Uuid,
    pub window_start: DateTime<Utc>,
    pub kind: String,
}

impl After {
    pub const fn start() -> Self {
        let first = DateTime::UNIX_EPOCH;
        Self { posted_at: first, meter: Uuid::nil(), window_start: first, kind: String::new() }
    }

    pub fn parse(place: &Place) -> Result<Self, Problem> {
        let read = || {
            let mut parts = place.0.split('|');
            let time = |text: Option<&str>| {
                DateTime::from_timestamp_micros(text?.parse().ok()?)
                    .filter(|at| (1970..=9999).contains(&at.year()))
            };
            let posted_at = time(parts.next())?;
            let meter = Uuid::try_parse(parts.next()?).ok()?;
            let window_start = time(parts.next())?;
            Some(Self { posted_at, meter, window_start, kind: parts.next()?.to_owned() })
        };
        read().ok_or_else(|| Problem::field("cursor", "not a cursor from an earlier page of this list"))
    }
}

/// Seconds as hours, to nine digits.
pub fn hours(seconds: i64) -> String {
    let sign = if seconds < 0 { "-" } else { "" };
    let (whole, rest) = (seconds.unsigned_abs() / 3600, u128::from(seconds.unsigned_abs() % 3600));
    format!("{sign}{whole}.{:09}", rest * 1_000_000_000 / 3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_read_and_end_where_the_next_begins() {
        let month = Month::parse("2026-12").unwrap();
        assert_eq!(month.span().to.to_rfc3339(), "2027-01-01T00:00:00+00:00");
        assert_eq!(month.next().to_string(), "2027-01");
        assert_eq!(Month::containing("2026-12-31T23:59:59.9Z".parse().unwrap()), month);
        for bad in ["2026-13", "2026-1", "26-01", "2026-01-01", "", "+026-01", "9999-12"] {
            assert_eq!(Month::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn places_come_back_as_they_were_and_nonsense_is_refused() {
        let place = Place("2026-11|über".to_owned());
        assert_eq!(Place::decode(&place.encode()), Some(place));
        for bad in ["", "k0", "kzz", "c00", "kff", "k00"] {
            assert_eq!(Place::decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn amounts_and_hours_are_written_without_rounding_away_a_sign() {
        assert_eq!((hours(5400).as_str(), hours(-1).as_str()), ("1.500000000", "-0.000277777"));
    }
}
