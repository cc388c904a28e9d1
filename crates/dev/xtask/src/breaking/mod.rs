//! Compares two OpenAPI 3.0 documents and lists what would break a client of the older one.
//!
//! The judgement depends on the direction of the data. What the server sends may gain fields, but not lose them,
//! make them optional or send values the client does not know. What the server accepts may gain optional
//! fields, but must go on accepting everything that was accepted. References are followed, `allOf` is
//! merged, `anyOf`/`oneOf` are matched variant by variant; a pair of schemas is compared once, so recursive
//! schemas end.
//!
//! The one thing that may be waived is a new value in an output enum (or a new variant in an output union), in
//! `openapi/waivers.toml` with a reason.

mod document;
mod schema;
mod shape;
pub mod waivers;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

/// Who writes the value that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client writes, the server reads.
    Input,
    /// The server writes, the client reads.
    Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    PathRemoved,
    MethodRemoved,
    OperationIdChanged,
    SecurityAdded,
    SecuritySchemeChanged,
    ParameterRemoved,
    ParameterRequired,
    ParameterStyleChanged,
    BodyRemoved,
    BodyRequired,
    MediaTypeRemoved,
    StatusRemoved,
    OutputHeaderLost,
    OutputFieldLost,
    OutputFieldOptional,
    OutputNullable,
    OutputEnumGrew,
    OutputVariantAdded,
    InputFieldLost,
    InputFieldRequired,
    InputNotNullable,
    InputEnumShrank,
    InputVariantLost,
    InputNarrowed,
    TypeChanged,
}

impl Kind {
    #[cfg(test)]
    pub const ALL: [Kind; 25] = [
        Kind::PathRemoved,
        Kind::MethodRemoved,
        Kind::OperationIdChanged,
        Kind::SecurityAdded,
        Kind::SecuritySchemeChanged,
        Kind::ParameterRemoved,
        Kind::ParameterRequired,
        Kind::ParameterStyleChanged,
        Kind::BodyRemoved,
        Kind::BodyRequired,
        Kind::MediaTypeRemoved,
        Kind::StatusRemoved,
        Kind::OutputHeaderLost,
        Kind::OutputFieldLost,
        Kind::OutputFieldOptional,
        Kind::OutputNullable,
        Kind::OutputEnumGrew,
        Kind::OutputVariantAdded,
        Kind::InputFieldLost,
        Kind::InputFieldRequired,
        Kind::InputNotNullable,
        Kind::InputEnumShrank,
        Kind::InputVariantLost,
        Kind::InputNarrowed,
        Kind::TypeChanged,
    ];

    pub fn describe(self) -> &'static str {
        match self {
            Kind::PathRemoved => "path removed",
            Kind::MethodRemoved => "method removed",
            Kind::OperationIdChanged => "operationId changed",
            Kind::SecurityAdded => "stricter security",
            Kind::SecuritySchemeChanged => "security scheme changed",
            Kind::ParameterRemoved => "parameter removed",
            Kind::ParameterRequired => "parameter became required",
            Kind::ParameterStyleChanged => "parameter is written differently",
            Kind::BodyRemoved => "request body no longer accepted",
            Kind::BodyRequired => "request body became required",
            Kind::MediaTypeRemoved => "media type removed",
            Kind::StatusRemoved => "response status removed",
            Kind::OutputHeaderLost => "response header lost",
            Kind::OutputFieldLost => "output lost a field",
            Kind::OutputFieldOptional => "output field became optional",
            Kind::OutputNullable => "output may be null now",
            Kind::OutputEnumGrew => "output has a new value",
            Kind::OutputVariantAdded => "output has a new variant",
            Kind::InputFieldLost => "input field no longer accepted",
            Kind::InputFieldRequired => "input field became required",
            Kind::InputNotNullable => "input may no longer be null",
            Kind::InputEnumShrank => "input value no longer accepted",
            Kind::InputVariantLost => "input variant no longer accepted",
            Kind::InputNarrowed => "input narrowed",
            Kind::TypeChanged => "type changed",
        }
    }

    pub fn may_be_waived(self) -> bool {
        matches!(self, Kind::OutputEnumGrew | Kind::OutputVariantAdded)
    }
}

/// One thing that a client of the old document cannot cope with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    pub kind: Kind,
    /// `POST /things body/name`, or `#/components/schemas/Thing/name` behind a reference.
    pub at: String,
    pub detail: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.at, self.kind.describe(), self.detail)
    }
}

/// Everything in `new` that breaks a client of `old`.
pub fn compare(old: &Value, new: &Value) -> Vec<Break> {
    document::compare(old, new)
}
