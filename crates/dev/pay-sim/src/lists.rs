//! Lists, newest first, page by page; and references that are shown as the objects they mean.

use serde_json::{Value, json};

use crate::{
    checkout::shown,
    fault::Fault,
    form::Params,
    state::{Kind, Object, State, number, text},
};

const MAX_PAGE: i64 = 100;
const MAX_EXPANSIONS: usize = 20;
/// Parameters that mean: only those whose field has this value.
const FILTERS: &[&str] = &["charge", "customer", "payment_intent", "status", "type", "email"];

pub fn list(state: &State, kind: Kind, url: &str, params: &Params) -> Result<Value, Fault> {
    params.only(&[FILTERS, &["created", "ending_before", "limit", "starting_after", "types"]].concat())?;
    let limit = params.number(&["limit"])?.unwrap_or(10);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Fault::invalid("limit", format!("limit is 1 to {MAX_PAGE}.")));
    }
    let limit = usize::try_from(limit).unwrap_or(1);
    let created = Created::from_params(params)?;
    let types: Vec<&str> =
        params.keys(&["types"]).iter().filter_map(|at| params.text(&["types", at])).collect();
    let mut matching: Vec<&Object> = state
        .all(kind)
        .iter()
        .filter(|object| !state.hidden.contains(text(object, "id")))
        .filter(|object| created.contains(number(object, "created")))
        .filter(|object| types.is_empty() || types.contains(&text(object, "type")))
        .filter(|object| {
            FILTERS.iter().all(|key| params.text(&[key]).is_none_or(|value| text(object, key) == value))
        })
        .collect();
    matching.sort_by_key(|object| number(object, "created"));
    matching.reverse();
    let position = |id: &str| {
        let found = matching.iter().position(|object| text(object, "id") == id);
        found.ok_or_else(|| Fault::not_found(kind.word(), id))
    };
    let (page, has_more) = if let Some(id) = params.text(&["ending_before"]) {
        let end = position(id)?;
        let start = end.saturating_sub(limit);
        (&matching[start..end], start > 0)
    } else {
        let start = params.text(&["starting_after"]).map(position).transpose()?.map_or(0, |at| at + 1);
        let end = (start + limit).min(matching.len());
        (&matching[start..end], end < matching.len())
    };
    let data = page.iter().map(|object| expand_with(state, (*object).clone(), params, "data."));
    let data = data.collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "object": "list", "data": data, "has_more": has_more, "url": url }))
}

/// Bounds on when something was made.
struct Created {
    from: i64,
    /// Not included.
    before: i64,
}

impl Created {
    fn from_params(params: &Params) -> Result<Self, Fault> {
        if let Some(at) = params.number(&["created"])? {
            return Ok(Self { from: at, before: at.saturating_add(1) });
        }
        let bound = |key| params.number(&["created", key]);
        let after = bound("gt")?.map(|at| at.saturating_add(1));
        let until = bound("lte")?.map(|at| at.saturating_add(1));
        let from = bound("gte")?.max(after).unwrap_or(i64::MIN);
        let before = [bound("lt")?, until].into_iter().flatten().min().unwrap_or(i64::MAX);
        Ok(Self { from, before })
    }

    fn contains(&self, at: i64) -> bool {
        (self.from..self.before).contains(&at)
    }
}

pub fn expand(state: &State, object: Object, params: &Params) -> Result<Value, Fault> {
    expand_with(state, object, params, "")
}

fn expand_with(state: &State, object: Object, params: &Params, prefix: &str) -> Result<Value, Fault> {
    let mut object = shown(&object);
    for at in params.keys(&["expand"]).into_iter().take(MAX_EXPANSIONS) {
        let Some(path) = params.text(&["expand", at]).and_then(|path| path.strip_prefix(prefix)) else {
            continue;
        };
        expand_path(state, &mut object, path)?;
    }
    Ok(Value::Object(object))
}

fn expand_path(state: &State, object: &mut Object, path: &str) -> Result<(), Fault> {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(value) = object.get_mut(key) else {
        return Err(Fault::invalid("expand", format!("This property cannot be expanded ({key}).")));
    };
    if let Some(id) = value.as_str()
        && let Some(kind) = Kind::from_id(id)
    {
        *value = Value::Object(shown(state.find(kind, id)?));
    }
    match value.as_object_mut() {
        Some(below) if !rest.is_empty() => expand_path(state, below, rest),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::object;

    fn state() -> State {
        let mut state = State::default();
        for at in 0..25 {
            state.add(
                Kind::Intent,
                object(json!({ "id": format!("pi_{at}"), "created": at / 5, "latest_charge": "ch_1" })),
            );
        }
        state.add(Kind::Charge, object(json!({ "id": "ch_1", "created": 0 })));
        state
    }

    fn ids(query: &str) -> (Vec<String>, bool) {
        let page = list(&state(), Kind::Intent, "/", &Params::parse(query.as_bytes()).unwrap()).unwrap();
        let ids = page["data"].as_array().unwrap().iter().map(|o| o["id"].as_str().unwrap().to_owned());
        (ids.collect(), page["has_more"].as_bool().unwrap())
    }

    #[test]
    fn pages_are_newest_first_and_follow_each_other() {
        let (first, more) = ids("limit=20");
        assert_eq!((first[0].as_str(), first.len(), more), ("pi_24", 20, true));
        let (second, more) = ids("limit=20&starting_after=pi_5");
        assert_eq!(
            (second, more),
            (["pi_4", "pi_3", "pi_2", "pi_1", "pi_0"].map(String::from).to_vec(), false)
        );
        assert_eq!(ids("limit=2&ending_before=pi_22"), (vec!["pi_24".to_owned(), "pi_23".to_owned()], false));
    }

    #[test]
    fn bounds_in_time_are_kept() {
        assert_eq!(ids("created[gte]=1&created[lt]=3&limit=100").0.len(), 10);
        assert_eq!(ids("created[gt]=1&created[lte]=3&limit=100").0.len(), 10);
        assert_eq!(ids("created=4").0.len(), 5);
    }

    #[test]
    fn references_are_shown_as_objects_when_asked() {
        let params = Params::parse(b"expand[]=data.latest_charge&limit=1").unwrap();
        let page = list(&state(), Kind::Intent, "/", &params).unwrap();
        assert_eq!(page["data"][0]["latest_charge"]["id"], "ch_1");
    }
}
