//! Compares two documents: paths, operations, parameters, bodies, responses, security, and what nodes are told to do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::schema::Comparer;
use super::shape::Document;
use super::{Break, Direction, Kind};

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

pub fn compare(old: &Value, new: &Value) -> Vec<Break> {
    let mut comparer = Comparer::new(old, new);
    for (path, item) in object(old, "paths") {
        let Some(now) = new.get("paths").and_then(|paths| paths.get(path)) else {
            comparer.report(Kind::PathRemoved, path, "removed");
            continue;
        };
        for method in METHODS {
            let at = format!("{} {path}", method.to_uppercase());
            match (item.get(method), now.get(method)) {
                (Some(operation), Some(operation_now)) => {
                    let old = Operation { item, operation };
                    let new = Operation { item: now, operation: operation_now };
                    comparer.operation(old, new, &at);
                }
                (Some(_), None) => comparer.report(Kind::MethodRemoved, at, "removed"),
                (None, _) => {}
            }
        }
    }
    comparer.security_schemes();
    comparer.work(old, new);
    comparer.breaks
}

#[derive(Clone, Copy)]
struct Operation<'a> {
    /// The path item, whose parameters hold for all its operations.
    item: &'a Value,
    operation: &'a Value,
}

impl<'o, 'n> Comparer<'o, 'n> {
    /// Work for nodes travels as signed bytes, so it stands beside the paths: what is signed and what goes into a kind
    /// of work is written by the server, what comes out of it by the node.
    fn work(&mut self, old: &'o Value, new: &'n Value) {
        for (name, schema) in object(old, "x-gpuaas-signed") {
            match new.get("x-gpuaas-signed").and_then(|signed| signed.get(name)) {
                Some(now) => self.schema(Direction::Output, schema, now, &format!("signed {name}")),
                None => self.report(Kind::OutputFieldLost, format!("signed {name}"), "removed"),
            }
        }
        for (name, kind) in object(old, "x-gpuaas-tasks") {
            let Some(now) = new.get("x-gpuaas-tasks").and_then(|tasks| tasks.get(name)) else {
                self.report(Kind::InputVariantLost, format!("task {name}"), "removed");
                continue;
            };
            for (part, direction) in [("input", Direction::Output), ("output", Direction::Input)] {
                if let (Some(was), Some(now)) = (kind.get(part), now.get(part)) {
                    self.schema(direction, was, now, &format!("task {name} {part}"));
                }
            }
        }
    }

    fn operation(&mut self, old: Operation<'o>, new: Operation<'n>, at: &str) {
        let id = |operation: &Value| operation.get("operationId").and_then(Value::as_str).map(str::to_owned);
        let (was, now) = (id(old.operation), id(new.operation));
        if was.is_some() && was != now {
            let text = |id: Option<String>| id.unwrap_or_else(|| "none".to_owned());
            self.report(Kind::OperationIdChanged, at, format!("{} to {}", text(was), text(now)));
        }
        self.security(old.operation, new.operation, at);
        self.parameters(old, new, at);
        self.body(old.operation, new.operation, at);
        self.responses(old.operation, new.operation, at);
    }

    fn parameters(&mut self, old: Operation<'o>, new: Operation<'n>, at: &str) {
        let old_parameters = parameters(self.old, old);
        let new_parameters = parameters(self.new, new);
        for (key, parameter) in &old_parameters {
            let at = format!("{at} {} {}", key.0, key.1);
            let Some(now) = new_parameters.get(key) else {
                self.report(Kind::ParameterRemoved, at, "removed");
                continue;
            };
            if is_true(now, "required") && !is_true(parameter, "required") {
                self.report(Kind::ParameterRequired, &at, "was optional");
            }
            let (was, is) = (style(key.0, parameter), style(key.0, now));
            if was != is {
                self.report(Kind::ParameterStyleChanged, &at, format!("{was} to {is}"));
            }
            match (parameter.get("schema"), now.get("schema")) {
                (Some(old), Some(new)) => self.schema(Direction::Input, old, new, &at),
                _ => self.content(Direction::Input, parameter, now, &at),
            }
        }
        for (key, now) in &new_parameters {
            if is_true(now, "required") && !old_parameters.contains_key(key) {
                self.report(Kind::ParameterRequired, format!("{at} {} {}", key.0, key.1), "is new");
            }
        }
    }

    fn body(&mut self, old: &'o Value, new: &'n Value, at: &str) {
        let at = format!("{at} body");
        let was = old.get("requestBody").map(|body| self.old.resolve(body).0);
        let now = new.get("requestBody").map(|body| self.new.resolve(body).0);
        match (was, now) {
            (Some(was), Some(now)) => {
                if is_true(now, "required") && !is_true(was, "required") {
                    self.report(Kind::BodyRequired, &at, "was optional");
                }
                self.content(Direction::Input, was, now, &at);
            }
            (Some(_), None) => self.report(Kind::BodyRemoved, at, "removed"),
            (None, Some(now)) if is_true(now, "required") => self.report(Kind::BodyRequired, at, "is new"),
            (None, _) => {}
        }
    }

    fn responses(&mut self, old: &'o Value, new: &'n Value, at: &str) {
        for (status, response) in object(old, "responses") {
            let at = format!("{at} {status}");
            let responses = new.get("responses");
            // A range stands for each of its statuses.
            let range = format!("{}XX", status.get(..1).unwrap_or_default());
            let now = responses.and_then(|all| all.get(status).or_else(|| all.get(&range)));
            let Some(now) = now else {
                self.report(Kind::StatusRemoved, at, "removed");
                continue;
            };
            let (was, now) = (self.old.resolve(response).0, self.new.resolve(now).0);
            self.headers(was, now, &at);
            self.content(Direction::Output, was, now, &at);
        }
    }

    fn headers(&mut self, old: &'o Value, new: &'n Value, at: &str) {
        for (name, header) in object(old, "headers") {
            let at = format!("{at} header {name}");
            let now = object(new, "headers").find(|(other, _)| other.eq_ignore_ascii_case(name));
            let Some((_, now)) = now else {
                self.report(Kind::OutputHeaderLost, at, "removed");
                continue;
            };
            let (was, now) = (self.old.resolve(header).0, self.new.resolve(now).0);
            if is_true(was, "required") && !is_true(now, "required") {
                self.report(Kind::OutputHeaderLost, &at, "was always there");
            }
            if let (Some(old), Some(new)) = (was.get("schema"), now.get("schema")) {
                self.schema(Direction::Output, old, new, &at);
            }
        }
    }

    fn content(&mut self, direction: Direction, old: &'o Value, new: &'n Value, at: &str) {
        for (media_type, content) in object(old, "content") {
            let Some(now) = new.get("content").and_then(|content| content.get(media_type)) else {
                self.report(Kind::MediaTypeRemoved, at, media_type.as_str());
                continue;
            };
            let anything = &Value::Null;
            let schema = |content: Option<&Value>| content.is_some();
            let (was, is) = (content.get("schema"), now.get("schema"));
            if schema(was) || schema(is) {
                self.schema(direction, was.unwrap_or(anything), is.unwrap_or(anything), at);
            }
        }
    }

    /// Each way in must still be open: some new requirement asks for no more than the old one did.
    fn security(&mut self, old: &'o Value, new: &'n Value, at: &str) {
        let (was, now) = (requirements(self.old, old), requirements(self.new, new));
        let still_open = |before: &Requirement<'_>| {
            now.iter().any(|after| {
                after
                    .iter()
                    .all(|(scheme, scopes)| before.get(scheme).is_some_and(|had| scopes.is_subset(had)))
            })
        };
        for before in was.iter().filter(|before| !still_open(before)) {
            let schemes: Vec<&str> = before.keys().copied().collect();
            let way = if schemes.is_empty() { "anonymous".to_owned() } else { schemes.join(" + ") };
            self.report(Kind::SecurityAdded, at, format!("{way} is no longer enough"));
        }
    }

    fn security_schemes(&mut self) {
        const POINTER: &str = "/components/securitySchemes";
        let Some(schemes) = self.old.root().pointer(POINTER).and_then(Value::as_object) else { return };
        for (name, scheme) in schemes {
            // A scheme that is gone shows where it was required.
            let Some(now) = self.new.root().pointer(POINTER).and_then(|schemes| schemes.get(name)) else {
                continue;
            };
            for key in ["type", "scheme", "in", "name"] {
                if scheme.get(key) != now.get(key) {
                    self.report(Kind::SecuritySchemeChanged, format!("{POINTER}/{name}"), key);
                }
            }
        }
    }
}

type Requirement<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The alternatives of an operation; none declared means open to all.
fn requirements<'a>(document: Document<'a>, operation: &'a Value) -> Vec<Requirement<'a>> {
    let declared = operation.get("security").or_else(|| document.root().get("security"));
    let scopes =
        |scopes: &'a Value| scopes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let alternatives: Vec<Requirement<'a>> = declared
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .map(|schemes| schemes.iter().map(|(scheme, list)| (scheme.as_str(), scopes(list))).collect())
        .collect();
    if alternatives.is_empty() { vec![Requirement::new()] } else { alternatives }
}

/// Where a parameter is (`in`) and its name.
type ParameterKey<'a> = (&'a str, &'a str);

/// The parameters of an operation; its own win over those of the path.
fn parameters<'a>(document: Document<'a>, operation: Operation<'a>) -> BTreeMap<ParameterKey<'a>, &'a Value> {
    let mut out = BTreeMap::new();
    for holder in [operation.item, operation.operation] {
        for parameter in holder.get("parameters").and_then(Value::as_array).into_iter().flatten() {
            let (parameter, _) = document.resolve(parameter);
            let text = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
            out.insert((text("in"), text("name")), parameter);
        }
    }
    out
}

/// How a parameter is written, with the defaults of OpenAPI filled in.
fn style(place: &str, parameter: &Value) -> String {
    let default = if matches!(place, "query" | "cookie") { "form" } else { "simple" };
    let style = parameter.get("style").and_then(Value::as_str).unwrap_or(default);
    let explode = parameter.get("explode").and_then(Value::as_bool).unwrap_or(style == "form");
    format!("{style}{}", if explode { " exploded" } else { "" })
}

fn is_true(node: &Value, key: &str) -> bool {
    node.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn object<'a>(node: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    node.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}
