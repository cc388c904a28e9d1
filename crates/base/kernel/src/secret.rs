//! Secrets that cannot be printed, logged or serialised by accident.

use std::fmt;

use zeroize::Zeroize;

/// Holds a value whose content never appears in `Debug`, `Display` or `Serialize` output (there is no
/// `Serialize`), and which is wiped when dropped. Reading it is explicit: [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T: Zeroize = String>(T);

impl<T: Zeroize> Secret<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de, T: Zeroize + serde::Deserialize<'de>> serde::Deserialize<'de> for Secret<T> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        T::deserialize(d).map(Self)
    }
}

/// In a contract a secret is a write-only string.
impl schemars::JsonSchema for Secret<String> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "password", "minLength": 1, "maxLength": 1024 })
    }
}

/// A secret that a response shows exactly once (a new key, a one-time password). Only such values can be
/// serialised, and the type says so at the place where it happens.
#[derive(Clone)]
pub struct ShownOnce(Secret<String>);

impl ShownOnce {
    pub fn new(secret: Secret<String>) -> Self {
        Self(secret)
    }
}

impl serde::Serialize for ShownOnce {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.0.expose())
    }
}

impl schemars::JsonSchema for ShownOnce {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ShownOnce".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "Shown only in this response; it is not stored." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_never_contains_the_content() {
        let text =
            format!("{:?} {:#?}", Secret::new("hunter2".to_owned()), Some(Secret::new("hunter2".to_owned())));
        assert!(!text.contains("hunter2"));
    }
}
