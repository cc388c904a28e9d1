//! A schema with its references followed and its `allOf` merged, ready to compare.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Direction;

/// Longer than any sane chain of references; a cycle of them ends here.
const CHAIN_LIMIT: usize = 32;

#[derive(Clone, Copy)]
pub struct Document<'a> {
    root: &'a Value,
}

impl<'a> Document<'a> {
    pub fn new(root: &'a Value) -> Document<'a> {
        Document { root }
    }

    pub fn root(self) -> &'a Value {
        self.root
    }

    /// Follows `$ref`; the name is that of the last reference, if there was one.
    pub fn resolve(self, node: &'a Value) -> (&'a Value, Option<&'a str>) {
        let mut node = node;
        let mut name = None;
        for _ in 0..CHAIN_LIMIT {
            let Some(reference) = node.get("$ref").and_then(Value::as_str) else { break };
            name = Some(reference);
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            node = target.unwrap_or(&Value::Null);
        }
        (node, name)
    }
}

/// Keys that say nothing about the value.
const REMARKS: [&str; 6] = ["title", "description", "default", "example", "deprecated", "nullable"];

/// A schema that only wraps another: `allOf` with one part, or "this or null".
pub struct Unwrapped<'a> {
    pub inner: &'a Value,
    /// The wrapping allows null.
    pub nullable: bool,
    /// The last reference on the way to the inner schema.
    pub name: Option<&'a str>,
}

impl<'a> Unwrapped<'a> {
    pub fn from_node(document: Document<'a>, node: &'a Value, direction: Direction) -> Unwrapped<'a> {
        let (inner, name) = document.resolve(node);
        let mut out = Unwrapped { inner, nullable: false, name };
        for _ in 0..CHAIN_LIMIT {
            let Some(keys) = out.inner.as_object() else { break };
            let mut telling = keys.keys().filter(|key| !REMARKS.contains(&key.as_str()));
            let (Some(key), None) = (telling.next(), telling.next()) else { break };
            let all = array(out.inner, key);
            let is_union = matches!(key.as_str(), "anyOf" | "oneOf");
            let real = |part: &&'a Value| !is_union || !Shape::from_node(document, part, direction).is_null();
            let parts: Vec<&Value> = all.iter().filter(real).collect();
            let ([part], true) = (&parts[..], is_union || key == "allOf") else { break };
            let own = out.inner.get("nullable").and_then(Value::as_bool).unwrap_or(false);
            let (inner, name) = document.resolve(part);
            out.nullable |= own || all.len() > 1;
            out.inner = inner;
            out.name = name.or(out.name);
        }
        out
    }
}

/// What an object may contain beyond its named fields.
#[derive(Clone, Copy, Default)]
pub enum Extra<'a> {
    #[default]
    Any,
    Closed,
    Typed(&'a Value),
}

/// Lower and upper limits by name; a missing limit limits nothing.
#[derive(Default)]
pub struct Limits {
    pub lower: BTreeMap<&'static str, f64>,
    pub upper: BTreeMap<&'static str, f64>,
}

#[derive(Default)]
pub struct Shape<'a> {
    pub kind: Option<&'a str>,
    pub format: Option<&'a str>,
    pub nullable: bool,
    /// The allowed values without null; `None`: any.
    pub values: Option<Vec<&'a Value>>,
    pub fields: BTreeMap<&'a str, &'a Value>,
    pub required: BTreeSet<&'a str>,
    pub extra: Extra<'a>,
    pub items: Option<&'a Value>,
    pub limits: Limits,
    /// Exclusive limits, `uniqueItems`, `pattern`, `multipleOf`: each rule is either the same or another one.
    pub rules: BTreeSet<String>,
    /// Each `anyOf`/`oneOf` with more than one real variant.
    pub unions: Vec<Vec<&'a Value>>,
}

const LOWER: [&str; 4] = ["minimum", "minLength", "minItems", "minProperties"];
const UPPER: [&str; 4] = ["maximum", "maxLength", "maxItems", "maxProperties"];

impl<'a> Shape<'a> {
    pub fn from_node(document: Document<'a>, node: &'a Value, direction: Direction) -> Shape<'a> {
        Shape::build(document, node, direction, &mut Vec::new())
    }

    /// `open` are the schemas this one is part of: one that contains itself adds nothing to itself.
    fn build(
        document: Document<'a>,
        node: &'a Value,
        direction: Direction,
        open: &mut Vec<usize>,
    ) -> Shape<'a> {
        let mut shape = Shape::default();
        let (node, _) = document.resolve(node);
        let address = std::ptr::from_ref(node).addr();
        if open.contains(&address) {
            return shape;
        }
        open.push(address);
        shape.read_scalars(node);
        shape.read_object(document, node, direction);
        let own_nullable = shape.nullable;
        let mut parts_nullable = None;
        for part in array(node, "allOf") {
            let part = Shape::build(document, part, direction, open);
            parts_nullable = Some(parts_nullable.unwrap_or(true) && part.nullable);
            shape.absorb(part);
        }
        shape.nullable = own_nullable || parts_nullable.unwrap_or(false);
        for key in ["anyOf", "oneOf"] {
            shape.read_union(document, array(node, key), direction, open);
        }
        open.pop();
        shape
    }

    fn read_scalars(&mut self, node: &'a Value) {
        let text = |key: &str| node.get(key).and_then(Value::as_str);
        let flag = |key: &str| node.get(key).and_then(Value::as_bool).unwrap_or(false);
        self.kind = text("type").filter(|kind| *kind != "null");
        self.format = text("format");
        self.nullable = flag("nullable") || text("type") == Some("null");
        if let Some(constant) = node.get("const") {
            self.values = Some(vec![constant]);
        }
        if let Some(values) = node.get("enum").and_then(Value::as_array) {
            self.nullable |= values.contains(&Value::Null);
            self.values = Some(values.iter().filter(|value| !value.is_null()).collect());
        }
        self.items = node.get("items");
        let number = |key: &str| node.get(key).and_then(Value::as_f64);
        self.limits.lower = LOWER.into_iter().filter_map(|key| Some((key, number(key)?))).collect();
        // Zero is where lengths and counts begin anyway.
        self.limits.lower.retain(|key, limit| *key == "minimum" || *limit > 0.0);
        self.limits.upper = UPPER.into_iter().filter_map(|key| Some((key, number(key)?))).collect();
        for key in ["exclusiveMinimum", "exclusiveMaximum", "uniqueItems"] {
            if flag(key) {
                self.rules.insert(key.to_owned());
            }
        }
        for key in ["pattern", "multipleOf"] {
            if let Some(value) = node.get(key) {
                self.rules.insert(format!("{key} {value}"));
            }
        }
    }

    fn read_object(&mut self, document: Document<'a>, node: &'a Value, direction: Direction) {
        // A read-only field is no input, a write-only field no output.
        let other_way = match direction {
            Direction::Input => "readOnly",
            Direction::Output => "writeOnly",
        };
        let mut skipped = BTreeSet::new();
        for (name, field) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let (resolved, _) = document.resolve(field);
            if resolved.get(other_way).and_then(Value::as_bool) == Some(true) {
                skipped.insert(name.as_str());
            } else {
                self.fields.insert(name, field);
            }
        }
        self.required = array(node, "required").iter().filter_map(Value::as_str).collect();
        self.required.retain(|name| !skipped.contains(name));
        self.extra = match node.get("additionalProperties") {
            None | Some(Value::Bool(true)) => Extra::Any,
            Some(Value::Bool(false)) => Extra::Closed,
            Some(schema) if schema.as_object().is_some_and(serde_json::Map::is_empty) => Extra::Any,
            Some(schema) => Extra::Typed(schema),
        };
    }

    fn read_union(
        &mut self,
        document: Document<'a>,
        variants: &'a [Value],
        direction: Direction,
        open: &mut Vec<usize>,
    ) {
        let mut real = Vec::new();
        for variant in variants {
            let shape = Shape::build(document, variant, direction, open);
            if shape.is_null() {
                self.nullable = true;
            } else {
                real.push((variant, shape));
            }
        }
        if real.len() == 1 {
            // "This or null" is this.
            for (_, shape) in real {
                self.nullable |= shape.nullable;
                self.absorb(shape);
            }
        } else if !real.is_empty() && real.iter().all(|(_, shape)| shape.is_plain_enum()) {
            // An enum whose values carry descriptions is written as a union of single values.
            self.kind = self.kind.or(real[0].1.kind);
            self.values =
                Some(real.into_iter().flat_map(|(_, shape)| shape.values.unwrap_or_default()).collect());
        } else if !real.is_empty() {
            self.unions.push(real.into_iter().map(|(variant, _)| variant).collect());
        }
    }

    /// Only null fits.
    pub fn is_null(&self) -> bool {
        let no_value = self.values.as_ref().is_none_or(Vec::is_empty);
        let bare =
            self.kind.is_none() && self.fields.is_empty() && self.unions.is_empty() && self.items.is_none();
        self.nullable && no_value && (bare || self.values.is_some())
    }

    fn is_plain_enum(&self) -> bool {
        self.values.is_some() && self.fields.is_empty() && self.unions.is_empty() && !self.nullable
    }

    /// Both must hold: the stricter of each wins.
    fn absorb(&mut self, part: Shape<'a>) {
        self.kind = self.kind.or(part.kind);
        self.format = self.format.or(part.format);
        self.values = match (self.values.take(), part.values) {
            (Some(left), Some(right)) => {
                Some(left.into_iter().filter(|value| right.contains(value)).collect())
            }
            (left, right) => left.or(right),
        };
        self.fields.extend(part.fields);
        self.required.extend(part.required);
        self.extra = match (self.extra, part.extra) {
            (Extra::Closed, _) | (_, Extra::Closed) => Extra::Closed,
            (Extra::Any, other) => other,
            (typed, _) => typed,
        };
        self.items = self.items.or(part.items);
        for (key, limit) in part.limits.lower {
            let slot = self.limits.lower.entry(key).or_insert(limit);
            *slot = slot.max(limit);
        }
        for (key, limit) in part.limits.upper {
            let slot = self.limits.upper.entry(key).or_insert(limit);
            *slot = slot.min(limit);
        }
        self.rules.extend(part.rules);
        self.unions.extend(part.unions);
    }

    /// What tells a variant of a union from the others: the required fields that have one fixed value.
    pub fn tag(&self, document: Document<'a>, direction: Direction) -> Option<String> {
        let fixed = |(name, field): (&&'a str, &&'a Value)| {
            let values = Shape::from_node(document, field, direction).values?;
            match values[..] {
                [value] if self.required.contains(name) => Some(format!("{name}={value}")),
                _ => None,
            }
        };
        let tags: Vec<String> = self.fields.iter().filter_map(fixed).collect();
        if tags.is_empty() { None } else { Some(tags.join(",")) }
    }
}

fn array<'a>(node: &'a Value, key: &str) -> &'a [Value] {
    node.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
