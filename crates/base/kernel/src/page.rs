//! Cursor pagination: keyset pages in a stable order, never an offset.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Every list orders by a unique sorted id (ids are UUIDv7, so this is creation order); the cursor is the
/// last id seen. It is opaque to clients and carries no authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub Uuid);

impl Cursor {
    fn encode(self) -> String {
        format!("c{}", self.0.simple())
    }

    fn decode(text: &str) -> Option<Self> {
        Uuid::try_parse(text.strip_prefix('c')?).ok().map(Self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::decode(&text)
            .ok_or_else(|| serde::de::Error::custom("not a cursor from an earlier page of this list"))
    }
}

impl schemars::JsonSchema for Cursor {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cursor".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^c[0-9a-f]{32}$" })
    }
}

const DEFAULT_PAGE_SIZE: u16 = 50;
const MAX_PAGE_SIZE: u16 = 200;

/// How many items a page holds; 1 to 200.
#[derive(Clone, Copy, Debug)]
pub struct PageSize(u16);

impl Default for PageSize {
    fn default() -> Self {
        Self(DEFAULT_PAGE_SIZE)
    }
}

/// Query strings carry numbers as text, so both are understood.
impl<'de> Deserialize<'de> for PageSize {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Number(u64),
            Text(String),
        }
        let size = match Given::deserialize(d)? {
            Given::Number(n) => Some(n),
            Given::Text(t) => t.parse().ok(),
        };
        match size.and_then(|n| u16::try_from(n).ok()) {
            Some(n) if (1..=MAX_PAGE_SIZE).contains(&n) => Ok(Self(n)),
            _ => Err(serde::de::Error::custom("must be an integer from 1 to 200")),
        }
    }
}

impl schemars::JsonSchema for PageSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PageSize".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE })
    }
}

/// The query parameters of every list.
#[derive(Clone, Copy, Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct PageQuery {
    /// At most this many items (1–200).
    #[serde(default)]
    #[schemars(with = "PageSize")]
    pub page_size: PageSize,
    /// `next_cursor` of the previous page.
    #[serde(default)]
    #[schemars(with = "Cursor")]
    pub cursor: Option<Cursor>,
}

impl PageQuery {
    /// What the query fetches: one more than the page, to know whether there is another.
    pub fn limit(&self) -> i64 {
        i64::from(self.page_size.0) + 1
    }

    /// Where the page begins, exclusive.
    pub fn after(&self) -> Uuid {
        self.cursor.map_or(Uuid::nil(), |c| c.0)
    }

    /// Where a page of a newest-first list begins, exclusive.
    pub fn before(&self) -> Uuid {
        self.cursor.map_or(Uuid::max(), |c| c.0)
    }

    pub fn page<T>(&self, mut items: Vec<T>, key: impl Fn(&T) -> Uuid) -> Page<T> {
        let size = usize::from(self.page_size.0);
        let more = items.len() > size;
        items.truncate(size);
        let next_cursor = items.last().filter(|_| more).map(|last| Cursor(key(last)).encode());
        Page { items, next_cursor }
    }
}

#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next_cursor: self.next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_page_points_to_the_next_and_the_last_does_not() {
        let query = PageQuery { page_size: PageSize(2), cursor: None };
        let ids: Vec<Uuid> = (1..=3).map(Uuid::from_u128).collect();
        let page = query.page(ids.clone(), |id| *id);
        assert_eq!(page.items, ids[..2]);
        let cursor = page.next_cursor.as_deref().and_then(Cursor::decode);
        assert_eq!(cursor, Some(Cursor(ids[1])));
        assert_eq!(query.page(ids[2..].to_vec(), |id| *id).next_cursor, None);
    }
}
