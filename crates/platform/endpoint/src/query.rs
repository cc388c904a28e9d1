//! Types of query parameters. Query strings carry everything as text.

use std::{borrow::Cow, time::Duration};

use chrono::{DateTime, Datelike as _, Utc};
use kernel::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::Given;

/// A whole number, not negative.
#[derive(Clone, Copy, Debug)]
pub struct Whole(pub i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let number = String::deserialize(d)?.parse().ok().filter(|n| *n >= 0);
        number.map(Self).ok_or_else(|| D::Error::custom("must be a non-negative integer"))
    }
}

/// True or false.
#[derive(Clone, Copy, Debug)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match String::deserialize(d)?.as_str() {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ => Err(D::Error::custom("must be true or false")),
        }
    }
}

impl JsonSchema for Flag {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Flag".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "boolean" })
    }
}

/// A time that a filter compares with, in the years 1970 to 9999.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub DateTime<Utc>);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let time = DateTime::deserialize(d)?;
        if (1970..=9999).contains(&time.year()) {
            return Ok(Self(time));
        }
        Err(serde::de::Error::custom("must be a time in the years 1970 to 9999"))
    }
}

impl JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        DateTime::<Utc>::json_schema(generator)
    }
}

/// A request is given up after 30 seconds: a wait that long is answered before.
const ANSWER_WITHIN: Duration = Duration::from_secs(25);
const LONGEST_WAIT_SECONDS: u64 = 30;

/// How long somebody waits who asks by `wait=10s`; not at all without it.
pub fn wait_parse(text: Option<&str>, longest_seconds: u64) -> Result<Duration, Problem> {
    let Some(text) = text else { return Ok(Duration::ZERO) };
    let seconds = text.strip_suffix('s').and_then(|digits| digits.parse().ok());
    let seconds = seconds.filter(|seconds| *seconds <= longest_seconds);
    seconds.map(|seconds| Duration::from_secs(seconds).min(ANSWER_WITHIN)).ok_or_else(|| {
        let text = format!("must be a number of seconds such as 10s, at most {longest_seconds}s");
        Problem::field("wait", text)
    })
}

/// For what can be waited for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct WaitQuery {
    /// Wait at most so long, such as `30s`, which is also the longest; the answer comes within 25 seconds.
    #[serde(default)]
    #[schemars(with = "String", regex(pattern = "^[0-9]{1,2}s$"))]
    wait: Given<String>,
}

impl WaitQuery {
    pub fn patience(&self) -> Result<Duration, Problem> {
        wait_parse(self.wait.0.as_deref(), LONGEST_WAIT_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_its_unit_and_its_bounds() {
        for (text, seconds) in [(None, 0), (Some("0s"), 0), (Some("10s"), 10), (Some("30s"), 25)] {
            assert_eq!(wait_parse(text, 30), Ok(Duration::from_secs(seconds)), "{text:?}");
        }
        for text in ["31s", "10", "s", "-1s", "1m"] {
            assert!(wait_parse(Some(text), 30).is_err(), "{text}");
        }
    }

    #[test]
    fn times_beyond_what_the_database_holds_are_refused() {
        let read = |text: &str| serde_json::from_value::<Moment>(text.into());
        for good in ["1970-01-01T00:00:00Z", "2026-02-03T04:05:06+01:00", "9999-12-31T23:59:59Z"] {
            assert!(read(good).is_ok(), "{good}");
        }
        for bad in ["-200000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "+10000-01-01T00:00:00Z", "yesterday"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
