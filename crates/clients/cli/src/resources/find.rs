//! From what somebody typed to an id.

use sdk::Client;
use serde_json::Value;

use super::{
    Kind, Within,
    fetch::{MOST, fetch},
};
use crate::failure::{Exit, Failure, Result};

/// A tail is at least this long.
const SHORTEST_TAIL: usize = 4;

/// The id of the resource that is called `text`: its whole id, a name of it, or a tail of its id that no other has.
pub async fn find(client: &Client, kind: &Kind, within: Within<'_>, text: &str) -> Result<String> {
    if kind.is_id(text) {
        return Ok(text.to_owned());
    }
    pick(kind, text, &fetch(client, kind, within, "").await?)
}

/// The same among resources that were fetched already.
pub fn pick(kind: &Kind, text: &str, items: &[Value]) -> Result<String> {
    if kind.is_id(text) {
        return Ok(text.to_owned());
    }
    // In a part of a list, the only one that fits is not the one that is meant.
    if items.len() >= MOST {
        let (noun, list) = (kind.noun, kind.list);
        return Err(Failure::client(format!("there are more than {MOST} {noun}s to find {text:?} among"))
            .suggest(format!("Give its whole id: `{list} --wide` shows it.")));
    }
    let mut found = named(kind, text, items);
    if found.is_empty() {
        found = with_tail(kind, text, items);
    }
    match found.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(unknown(kind, text, items)),
        several => Err(Failure::client(format!(
            "{text:?} is ambiguous: {} {}s are called so: {}",
            several.len(),
            kind.noun,
            several.join(", ")
        ))
        .suggest("Give more of its id.")),
    }
}

fn id(item: &Value) -> Option<&str> {
    item["id"].as_str()
}

fn named<'a>(kind: &Kind, text: &str, items: &'a [Value]) -> Vec<&'a str> {
    let called = |item: &&Value| {
        kind.names.iter().filter_map(|name| item[*name].as_str()).any(|name| {
            // E-mail addresses are written in any case.
            name == text || (name.contains('@') && name.eq_ignore_ascii_case(text))
        })
    };
    items.iter().filter(called).filter_map(id).collect()
}

fn with_tail<'a>(kind: &Kind, text: &str, items: &'a [Value]) -> Vec<&'a str> {
    let tail = text.trim_start_matches(['…', '.']);
    let tail = tail.strip_prefix(kind.prefix).unwrap_or(tail);
    if tail.len() < SHORTEST_TAIL || !tail.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Vec::new();
    }
    items.iter().filter_map(id).filter(|id| id.ends_with(&tail.to_ascii_lowercase())).collect()
}

fn unknown(kind: &Kind, text: &str, items: &[Value]) -> Failure {
    let noun = kind.noun;
    let close = items
        .iter()
        .flat_map(|item| kind.names.iter().filter_map(|name| item[*name].as_str()))
        .map(|name| (strsim::jaro_winkler(name, text), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match close {
        Some((_, name)) => format!("Did you mean {name:?}? "),
        None => String::new(),
    };
    Failure::new(Exit::NotFound, format!("there is no {noun} {text:?}"))
        .suggest(format!("{hint}List them with `{}`.", kind.list))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::kinds::PROJECT, *};

    fn items() -> Vec<Value> {
        vec![
            json!({ "id": "proj_00000000000000000000000000abcd01", "slug": "training", "name": "Training" }),
            json!({ "id": "proj_00000000000000000000000000abcd02", "slug": "web", "name": "Training" }),
        ]
    }

    fn picked(text: &str) -> std::result::Result<String, (String, String)> {
        pick(&PROJECT, text, &items())
            .map(|id| id.replace("00000000000000000000000000", "…"))
            .map_err(|failure| (failure.message, failure.suggestion.unwrap_or_default()))
    }

    #[test]
    fn names_tails_and_whole_ids_are_understood() {
        assert_eq!(picked("training").unwrap(), "proj_…abcd01");
        for tail in ["cd02", "abcd02", "…abcd02", "ABCD02", "proj_abcd02"] {
            assert_eq!(picked(tail).unwrap(), "proj_…abcd02", "{tail}");
        }
        let whole = "proj_ffffffffffffffffffffffffffffffff";
        assert_eq!(picked(whole).unwrap(), whole, "whole ids are not looked up");
    }

    #[test]
    fn what_is_called_by_nothing_or_by_several_is_refused_with_a_hint() {
        let (message, hint) = picked("trainnig").unwrap_err();
        assert_eq!(message, "there is no project \"trainnig\"");
        assert_eq!(hint, "Did you mean \"training\"? List them with `gpuaas projects list`.");
        let (message, _) = picked("Training").unwrap_err();
        assert!(message.starts_with("\"Training\" is ambiguous: 2 projects"), "{message}");
        let (message, _) = picked("02").unwrap_err();
        assert!(message.contains("there is no project"), "too short for a tail: {message}");
    }

    #[test]
    fn nothing_is_found_in_a_part_of_a_list() {
        let many = vec![items()[0].clone(); MOST];
        let failure = pick(&PROJECT, "training", &many).unwrap_err();
        assert!(failure.message.contains("more than 2000"), "{}", failure.message);
    }

    #[test]
    fn a_name_wins_over_a_tail() {
        let mut items = items();
        items[0]["slug"] = json!("abcd02");
        assert!(pick(&PROJECT, "abcd02", &items).unwrap().ends_with("abcd01"));
    }
}
