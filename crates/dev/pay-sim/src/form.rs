//! Form-encoded parameters with bracketed keys: `line_items[0][price_data][currency]=usd`, `expand[]=customer`.

use serde_json::{Map, Value};

use crate::{fault::Fault, state::Object};

const MAX_FIELDS: usize = 500;
const MAX_DEPTH: usize = 8;

/// Parameters as a tree. Lists are objects whose keys are numbers.
#[derive(Debug, Default, PartialEq)]
pub struct Params(Object);

impl Params {
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut root = Map::new();
        for (count, (key, value)) in url::form_urlencoded::parse(bytes).enumerate() {
            if count >= MAX_FIELDS {
                return Err(Fault::invalid("body", format!("Send at most {MAX_FIELDS} parameters.")));
            }
            let path = segments(&key)
                .ok_or_else(|| Fault::invalid(&key, format!("The parameter name {key:?} is malformed.")))?;
            insert(&mut root, &path, value.into_owned())
                .ok_or_else(|| Fault::invalid(&key, format!("{key} is both a value and a set of values.")))?;
        }
        Ok(Self(root))
    }

    fn get(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.0.get(*first)?, |value, key| value.get(*key))
    }

    /// A value; an empty one counts as not given.
    pub fn text(&self, path: &[&str]) -> Option<&str> {
        self.get(path)?.as_str().filter(|text| !text.is_empty())
    }

    pub fn required(&self, path: &[&str]) -> Result<&str, Fault> {
        self.text(path).ok_or_else(|| Fault::missing(&name(path)))
    }

    pub fn number(&self, path: &[&str]) -> Result<Option<i64>, Fault> {
        let parse = |text: &str| {
            let malformed = || Fault::invalid(&name(path), format!("Invalid integer: {text}"));
            text.parse().map_err(|_| malformed().code("parameter_invalid_integer"))
        };
        self.text(path).map(parse).transpose()
    }

    /// The keys below a set of values, in the order in which they came.
    pub fn keys(&self, path: &[&str]) -> Vec<&str> {
        let below = self.get(path).and_then(Value::as_object);
        below.map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// A set of plain values, such as metadata.
    pub fn set(&self, path: &[&str]) -> Object {
        self.get(path).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// Refuses what is not known: a misspelt name shall not pass in silence.
    pub fn only(&self, known: &[&str]) -> Result<(), Fault> {
        match self.0.keys().find(|key| *key != "expand" && !known.contains(&key.as_str())) {
            Some(key) => {
                Err(Fault::invalid(key, format!("Received unknown parameter: {key}"))
                    .code("parameter_unknown"))
            }
            None => Ok(()),
        }
    }
}

fn name(path: &[&str]) -> String {
    let mut parts = path.iter();
    let first = parts.next().copied().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| format!("{name}[{part}]"))
}

/// `a[b][]` → `a`, `b`, nothing.
fn segments(key: &str) -> Option<Vec<&str>> {
    let (first, mut rest) = key.split_at(key.find('[').unwrap_or(key.len()));
    let mut found = vec![first];
    while !rest.is_empty() {
        let (segment, after) = rest.strip_prefix('[')?.split_once(']')?;
        found.push(segment);
        rest = after;
    }
    (!first.is_empty() && found.len() <= MAX_DEPTH).then_some(found)
}

fn insert(into: &mut Object, path: &[&str], value: String) -> Option<()> {
    let (first, rest) = path.split_first()?;
    let key = if first.is_empty() { into.len().to_string() } else { (*first).to_owned() };
    if rest.is_empty() {
        into.insert(key, Value::String(value));
        return Some(());
    }
    let below = into.entry(key).or_insert_with(|| Value::Object(Map::new()));
    insert(below.as_object_mut()?, rest, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bracketed_keys_become_a_tree() {
        let params = Params::parse(b"mode=payment&line_items[0][price_data][unit_amount]=500&expand[]=a&expand[]=b&metadata%5Borg%5D=x%20y").unwrap();
        assert_eq!(params.text(&["mode"]), Some("payment"));
        assert_eq!(params.number(&["line_items", "0", "price_data", "unit_amount"]).unwrap(), Some(500));
        assert_eq!(params.keys(&["expand"]), ["0", "1"]);
        assert_eq!(params.text(&["metadata", "org"]), Some("x y"));
    }

    #[test]
    fn malformed_keys_are_refused() {
        for bad in ["a[", "a[b", "a]b[=1", "[a]=1", "a=1&a[b]=2", "a[b][c][d][e][f][g][h][i]=1"] {
            assert!(Params::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let params = Params::parse(b"amount=1&amuont=2").unwrap();
        assert!(params.only(&["amount"]).is_err());
        assert!(params.only(&["amount", "amuont"]).is_ok());
    }
}
