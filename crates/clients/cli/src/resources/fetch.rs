//! Lists of any kind, as JSON.

use sdk::{Client, RawRequest};
use serde_json::Value;

use super::{Kind, Within};
use crate::failure::{Failure, Result};

/// Not more are fetched: in a longer list, things are found by their whole ids only.
pub const MOST: usize = 2_000;
const PAGE: usize = 200;

/// At most `MOST`, in the order of the list. `query` narrows the list: `live=true`.
pub async fn fetch(client: &Client, kind: &Kind, within: Within<'_>, query: &str) -> Result<Vec<Value>> {
    let mut path = format!("/api/v1{}", kind.path);
    for (name, id) in within {
        path = path.replace(&format!("{{{name}}}"), id);
    }
    let mut found: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    while found.len() < MOST {
        let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let narrowed = if query.is_empty() { String::new() } else { format!("&{query}") };
        let request = RawRequest::get(format!("{path}?page_size={PAGE}{narrowed}{after}"));
        let answer = client.raw(request).await?.bytes().await.map_err(sdk::Error::Network)?;
        let mut answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| Failure::from(sdk::Error::Protocol(error.to_string())))?;
        let Value::Array(items) = answer["items"].take() else { break };
        found.extend(items);
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok(found)
}
