//! Reads settings from file, environment and flags into one typed struct, and collects every problem.
//!
//! Each setting is asked for once, by its dotted name; what is left over at the end is unknown, and an
//! error. The same pass makes the list that `config print` shows, with secrets masked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    str::FromStr,
};

use kernel::Secret;
use toml::Value;

#[derive(Clone, Debug)]
struct Given {
    value: Value,
    source: String,
    in_file: bool,
}

/// A setting as `config print` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub name: String,
    pub value: String,
    pub source: String,
}

#[derive(Default)]
pub struct Reader {
    given: BTreeMap<String, Given>,
    known: BTreeSet<String>,
    shown: Vec<Shown>,
    problems: Vec<String>,
    secrets_in_file: Vec<String>,
}

const ENVIRONMENT_PREFIX: &str = "GPUAAS__";

impl Reader {
    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    pub fn file(&mut self, name: &str, text: &str) {
        match text.parse::<toml::Table>() {
            Ok(table) => flatten("", Value::Table(table), &mut |key, value| {
                self.given.insert(key, Given { value, source: name.to_owned(), in_file: true });
            }),
            Err(error) => self.problem(format!("{name}: {}", error.to_string().trim())),
        }
    }

    /// `GPUAAS__SERVER__LISTEN` sets `server.listen`.
    pub fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else { continue };
            let key = rest.to_ascii_lowercase().replace("__", ".");
            let source = format!("${name}");
            self.given.insert(key, Given { value: Value::String(text), source, in_file: false });
        }
    }

    pub fn flag(&mut self, key: &str, text: Option<String>) {
        if let Some(text) = text {
            let source = format!("--{}", key.rsplit('.').next().unwrap_or(key).replace('_', "-"));
            let given = Given { value: Value::String(text), source, in_file: false };
            self.given.insert(key.to_owned(), given);
        }
    }

    fn take(&mut self, key: &str) -> Option<Given> {
        self.known.insert(key.to_owned());
        self.given.remove(key)
    }

    fn show(&mut self, name: &str, value: impl fmt::Display, source: Option<&str>) {
        let source = source.unwrap_or("default").to_owned();
        self.shown.push(Shown { name: name.to_owned(), value: value.to_string(), source });
    }

    /// Whether somebody set it, rather than leaving it at its default. To be asked before it is read.
    pub fn is_given(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }

    /// Anything that can be parsed from text.
    pub fn get<T>(&mut self, key: &str, default: T) -> T
    where
        T: FromStr + fmt::Display,
        T::Err: fmt::Display,
    {
        match self.parsed(key) {
            Some((value, source)) => {
                self.show(key, &value, Some(&source));
                value
            }
            None => {
                self.show(key, &default, None);
                default
            }
        }
    }

    pub fn optional<T>(&mut self, key: &str) -> Option<T>
    where
        T: FromStr + fmt::Display,
        T::Err: fmt::Display,
    {
        let parsed = self.parsed::<T>(key);
        match &parsed {
            Some((value, source)) => self.show(key, value, Some(&source.clone())),
            None => self.show(key, "(not set)", None),
        }
        parsed.map(|(value, _)| value)
    }

    /// A whole number within bounds.
    pub fn number(&mut self, key: &str, default: u64, min: u64, max: u64) -> u64 {
        let value = self.get(key, default);
        if !(min..=max).contains(&value) {
            self.problem(format!("{key}: must be from {min} to {max}, not {value}"));
        }
        value
    }

    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.optional::<String>(key).map(PathBuf::from)
    }

    pub fn secret(&mut self, key: &str) -> Option<Secret<String>> {
        let given = self.take(key)?;
        let source = given.source.clone();
        let Value::String(text) = given.value else {
            self.problem(format!("{key}: must be text"));
            return None;
        };
        self.show(key, "[secret]", Some(&source));
        if given.in_file && !is_url_without_password(&text) {
            self.secrets_in_file.push(key.to_owned());
        }
        Some(Secret::new(text))
    }

    /// Secrets that the file itself holds, which must then be private.
    pub fn secrets_in_file(&self) -> &[String] {
        &self.secrets_in_file
    }

    /// A list of text, or text with commas.
    pub fn list(&mut self, key: &str, default: &[&str]) -> Vec<String> {
        let Some(given) = self.take(key) else {
            self.show(key, format!("[{}]", default.join(", ")), None);
            return default.iter().map(|s| (*s).to_owned()).collect();
        };
        let items = match given.value {
            Value::String(text) => {
                text.split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect::<Vec<_>>()
            }
            Value::Array(items) => items.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
            _ => {
                self.problem(format!("{key}: must be a list of text"));
                Vec::new()
            }
        };
        self.show(key, format!("[{}]", items.join(", ")), Some(&given.source));
        items
    }

    /// How many tables there are in a list of tables (`[[auth.issuers]]`), whose settings are then read as
    /// `auth.issuers.0.…`.
    pub fn count(&self, key: &str) -> usize {
        let prefix = format!("{key}.");
        let indices = self
            .given
            .keys()
            .filter_map(|k| k.strip_prefix(&prefix)?.split('.').next()?.parse::<usize>().ok());
        indices.max().map_or(0, |last| last + 1)
    }

    fn parsed<T>(&mut self, key: &str) -> Option<(T, String)>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        let given = self.take(key)?;
        let text = match &given.value {
            Value::String(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            Value::Float(n) => n.to_string(),
            Value::Boolean(b) => b.to_string(),
            _ => {
                self.problem(format!("{key}: must be a single value ({})", given.source));
                return None;
            }
        };
        match text.parse() {
            Ok(value) => Some((value, given.source)),
            Err(error) => {
                self.problem(format!("{key}: {text:?} is not valid: {error} ({})", given.source));
                None
            }
        }
    }

    /// Every problem, or the list of all settings.
    pub fn finish(mut self) -> Result<Vec<Shown>, Vec<String>> {
        for (key, given) in std::mem::take(&mut self.given) {
            let close = self
                .known
                .iter()
                .min_by_key(|known| distance(known, &key))
                .filter(|k| distance(k, &key) <= 4);
            let hint = close.map(|k| format!("; did you mean {k}?")).unwrap_or_default();
            self.problems.push(format!("{key}: unknown setting ({}){hint}", given.source));
        }
        if self.problems.is_empty() { Ok(self.shown) } else { Err(self.problems) }
    }
}

/// A database's address without a password tells nobody anything.
fn is_url_without_password(text: &str) -> bool {
    url::Url::parse(text)
        .is_ok_and(|url| url.password().is_none() && !url.query_pairs().any(|(name, _)| name == "password"))
}

fn flatten(prefix: &str, value: Value, emit: &mut dyn FnMut(String, Value)) {
    let join = |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                flatten(&join(&key), value, emit);
            }
        }
        Value::Array(items) if items.iter().all(Value::is_table) && !items.is_empty() => {
            for (index, value) in items.into_iter().enumerate() {
                flatten(&join(&index.to_string()), value, emit);
            }
        }
        value => emit(prefix.to_owned(), value),
    }
}

/// Edit distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let next = (diagonal + usize::from(ca != *cb)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}
