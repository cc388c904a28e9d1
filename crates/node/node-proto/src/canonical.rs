//! One spelling for every value: JSON without spaces, keys sorted, numbers as serde_json writes them.
//!
//! What is signed is this text. A reader checks the signature over the bytes it received, and then that the
//! bytes are the canonical ones, so that one piece of work cannot have two spellings.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// The canonical bytes of `value`.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&sorted(serde_json::to_value(value)?))
}

/// Reads canonical bytes; anything else, however equal in meaning, is refused.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let same = serde_json::to_vec(&sorted(value.clone())).ok()? == bytes;
    if same { serde_json::from_value(value).ok() } else { None }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = map.into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().map(|(key, value)| (key, sorted(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_at_every_depth_and_other_spellings_are_refused() {
        let bytes = encode(&json!({ "b": [{ "z": 1, "a": null }], "a": "x" })).unwrap();
        assert_eq!(bytes, br#"{"a":"x","b":[{"a":null,"z":1}]}"#);
        assert!(decode::<Value>(&bytes).is_some());
        for other in [&br#"{"b":[],"a":1}"#[..], br#"{"a": 1}"#, br#"{"a":1,"a":1}"#, br#"{"a":1.0e0}"#, b"{"]
        {
            assert!(decode::<Value>(other).is_none(), "{}", String::from_utf8_lossy(other));
        }
    }
}
