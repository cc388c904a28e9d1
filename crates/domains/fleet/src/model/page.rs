//! Pages of lists whose key is text rather than an id.

use std::borrow::Cow;

use kernel::{Page, PageQuery, page::PageSize};
use schemars::JsonSchema;
use serde::Deserialize;

/// The last key seen, opaque to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCursor(String);

const LONGEST: usize = 512;

impl KeyCursor {
    fn encode(key: &str) -> String {
        format!("k{}", kernel::hex::Hex(key.as_bytes().to_vec()))
    }

    fn decode(text: &str) -> Option<Self> {
        let digits =
            text.strip_prefix('k').filter(|digits| digits.len() <= LONGEST && digits.len() % 2 == 0)?;
        let digits: Vec<u8> = digits
            .chars()
            .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect::<Option<_>>()?;
        let bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        String::from_utf8(bytes).ok().filter(|key| !key.contains('\0')).map(Self)
    }
}

impl<'de> Deserialize<'de> for KeyCursor {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::decode(&text)
            .ok_or_else(|| serde::de::Error::custom("not a cursor from an earlier page of this list"))
    }
}

impl JsonSchema for KeyCursor {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "KeyCursor".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^k([0-9a-f]{2})*$", "maxLength": LONGEST + 1 })
    }
}

/// The query parameters of such a list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct KeyPageQuery {
    /// At most this many items (1–200).
    #[serde(default)]
    #[schemars(with = "PageSize")]
    page_size: PageSize,
    /// `next_cursor` of the previous page.
    #[serde(default)]
    #[schemars(with = "KeyCursor")]
    cursor: Option<KeyCursor>,
}

impl KeyPageQuery {
    pub fn limit(&self) -> i64 {
        PageQuery { page_size: self.page_size, cursor: None }.limit()
    }

    /// Where the page begins, exclusive; nothing on the first.
    pub fn after(&self) -> Option<&str> {
        self.cursor.as_ref().map(|cursor| cursor.0.as_str())
    }

    pub fn page<T>(&self, mut items: Vec<T>, key: impl Fn(&T) -> String) -> Page<T> {
        let size = usize::try_from(self.limit() - 1).unwrap_or_default();
        let more = items.len() > size;
        items.truncate(size);
        let next_cursor = items.last().filter(|_| more).map(|last| KeyCursor::encode(&key(last)));
        Page { items, next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_the_key_and_nothing_else_reads() {
        for key in ["", "xid.*", "eu-north", "é"] {
            assert_eq!(KeyCursor::decode(&KeyCursor::encode(key)), Some(KeyCursor(key.to_owned())));
        }
        for bad in ["", "k0", "kzz", "kff", "k00", "c00", &format!("k{}", "61".repeat(LONGEST))] {
            assert_eq!(KeyCursor::decode(bad), None, "{bad}");
        }
    }
}
