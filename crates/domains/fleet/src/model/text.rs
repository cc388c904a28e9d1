//! Text of the fleet that was checked where it came in.

use std::{borrow::Cow, collections::BTreeMap, num::NonZeroU16};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

fn is_code(text: &str, max: usize) -> bool {
    let bytes = text.as_bytes();
    (1..=max).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

/// RFC 1123, in lower case: labels of letters, digits and inner hyphens, separated by dots.
fn is_hostname(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_code(label, 63))
}

fn is_pattern(text: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let mut parts: Vec<&str> = text.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    text.len() <= 64 && (last == "*" || word(last)) && parts.into_iter().all(word)
}

fn is_label_key(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| plain(*b) || b"._/-".contains(b))
        && plain(bytes[0])
        && plain(bytes[bytes.len() - 1])
}

fn is_label_value(text: &str) -> bool {
    text.len() <= 63 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b))
}

kernel::checked_text! {
    /// What a region is called in paths and commands.
    RegionCode, |t| is_code(t, 32), "must be 1 to 32 lower-case letters, digits or inner hyphens",
        { "type": "string", "minLength": 1, "maxLength": 32, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" };
    Hostname, is_hostname, "must be a host name such as gpu-01.example.org, in lower case",
        { "type": "string", "minLength": 1, "maxLength": 253,
          "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" };
    /// Where a machine is reached: a host name or an address.
    SshHost, |t| is_hostname(t) || t.parse::<std::net::IpAddr>().is_ok(),
        "must be a host name such as gpu-01.example.org, in lower case, or an IP address",
        { "type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[a-z0-9.:-]+$" };
    /// A product that a node or slot may serve.
    EligibleSku, |t| is_code(t, 64), "must be 1 to 64 lower-case letters, digits or inner hyphens",
        { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" };
    /// What health findings a rule is about: an exact code, or its beginning with a star.
    RulePattern, is_pattern, "must be a code such as xid.79, or a prefix such as xid.* or *",
        { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^([a-z0-9_]+[.])*([a-z0-9_]+|[*])$" };
    /// SHA-256 in lower-case hexadecimal.
    Sha256Hex, |t| t.len() == 64 && t.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
        "must be 64 lower-case hexadecimal digits",
        { "type": "string", "pattern": "^[0-9a-f]{64}$" };
    /// A certificate's number in lower-case hexadecimal.
    CertificateSerial, |t| (1..=64).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
        "must be 1 to 64 lower-case hexadecimal digits",
        { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[0-9a-f]+$" };
    /// One label as a filter: `key=value`.
    LabelFilter, |t| t.split_once('=').is_some_and(|(key, value)| is_label_key(key) && is_label_value(value)),
        "must be one label as key=value",
        { "type": "string", "minLength": 2, "maxLength": 127, "pattern": "^[a-z0-9._/-]+=[A-Za-z0-9._:/-]*$" };
}

impl LabelFilter {
    pub fn pair(&self) -> (&str, &str) {
        self.as_str().split_once('=').unwrap_or((self.as_str(), ""))
    }
}

/// Where users of a machine reach it; what is not said is its host name, and port 22.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub host: Option<SshHost>,
    pub port: Option<NonZeroU16>,
}

impl Reach {
    pub fn host(&self) -> Option<&str> {
        self.host.as_ref().map(SshHost::as_str)
    }

    pub fn port(&self) -> Option<i32> {
        self.port.map(|port| i32::from(port.get()))
    }
}

pub const MOST_LABELS: usize = 64;
pub const MOST_SKUS: usize = 32;

/// Facts about a node that operators choose, for placement to ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    pub fn parse(labels: BTreeMap<String, String>) -> Result<Self, &'static str> {
        if labels.len() > MOST_LABELS {
            return Err("must be at most 64 labels");
        }
        if !labels.keys().all(|key| is_label_key(key)) {
            return Err("a label's key must be 1 to 63 lower-case letters, digits or inner . _ / -");
        }
        if !labels.values().all(|value| is_label_value(value)) {
            return Err("a label's value must be at most 63 letters, digits or . _ : / -");
        }
        Ok(Self(labels))
    }

    pub fn map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// What is stored was checked when it came in.
    pub fn stored(value: serde_json::Value) -> Self {
        Self(serde_json::from_value(value).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(BTreeMap::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Labels {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "maxProperties": MOST_LABELS,
            "additionalProperties": { "type": "string", "maxLength": 63, "pattern": "^[A-Za-z0-9._:/-]*$" },
        })
    }
}

/// Text from a node: it is kept, cut to `max` characters, without what Postgres or a terminal would choke on.
pub fn tame(text: &str, max: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_follow_rfc_1123() {
        for good in ["a", "gpu-01", "gpu-01.rack7.example.org", "0x", &"a".repeat(63)] {
            assert!(Hostname::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "A",
            "a_b",
            "a b",
            "ä",
            &"a".repeat(64),
            &["a"; 128].join("."),
        ] {
            assert!(Hostname::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_are_codes_or_their_beginnings() {
        for good in ["*", "xid.*", "xid.79", "a.b.c", "node.disk_full"] {
            assert!(RulePattern::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "xid*", "*.79", "xid.", ".79", "XID.79", "xid.7 9", "xid.**"] {
            assert!(RulePattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_bounded_in_number_and_length() {
        let of = |key: &str, value: &str| Labels::parse(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        assert!(of("rack", "R7").is_ok() && of("example.org/zone", "").is_ok());
        for (key, value) in [
            ("", "x"),
            ("-rack", "x"),
            ("Rack", "x"),
            ("rack", "a b"),
            (&"k".repeat(64), "x"),
            ("k", &"v".repeat(64)),
        ] {
            assert!(of(key, value).is_err(), "{key}={value}");
        }
        let many = (0..=MOST_LABELS).map(|n| (format!("k{n}"), String::new())).collect();
        assert!(Labels::parse(many).is_err());
    }

    #[test]
    fn text_of_a_node_cannot_carry_control_characters() {
        assert_eq!(tame("a\0b\nc\u{1b}[31m", 5), "a b c");
    }
}
