//! Compares two schemas in one direction.

use std::collections::HashSet;

use serde_json::Value;

use super::shape::{Document, Extra, Shape, Unwrapped};
use super::{Break, Direction, Kind};
use Direction::{Input, Output};

/// Two schema nodes, by address: documents do not move while they are compared.
type Pair = (usize, usize, Direction);

pub struct Comparer<'o, 'n> {
    pub old: Document<'o>,
    pub new: Document<'n>,
    pub breaks: Vec<Break>,
    /// Pairs that are compared or being compared: their breaks are reported once, where they were met first.
    seen: HashSet<Pair>,
    /// Pairs of variants that turned out not to fit.
    misfits: HashSet<Pair>,
}

impl<'o, 'n> Comparer<'o, 'n> {
    pub fn new(old: &'o Value, new: &'n Value) -> Comparer<'o, 'n> {
        Comparer {
            old: Document::new(old),
            new: Document::new(new),
            breaks: Vec::new(),
            seen: HashSet::new(),
            misfits: HashSet::new(),
        }
    }

    pub fn report(&mut self, kind: Kind, at: impl Into<String>, detail: impl Into<String>) {
        self.breaks.push(Break { kind, at: at.into(), detail: detail.into() });
    }

    pub fn schema(&mut self, direction: Direction, old: &'o Value, new: &'n Value, at: &str) {
        let (was, now) =
            (Unwrapped::from_node(self.old, old, direction), Unwrapped::from_node(self.new, new, direction));
        let left = Shape::from_node(self.old, was.inner, direction);
        let right = Shape::from_node(self.new, now.inner, direction);
        if left.nullable == right.nullable {
            // Null is a matter of this place; the schema inside is then the same question everywhere.
            let (was_nullable, is_nullable) = (was.nullable || left.nullable, now.nullable || right.nullable);
            self.nullable(direction, was_nullable, is_nullable, at);
            self.once(direction, (was.inner, left), (now.inner, right), was.name.unwrap_or(at));
        } else {
            let (left, right) =
                (Shape::from_node(self.old, old, direction), Shape::from_node(self.new, new, direction));
            self.once(direction, (old, left), (new, right), self.old.resolve(old).1.unwrap_or(at));
        }
    }

    /// Compares a pair of schemas unless it was compared before; `at` is the name of a named schema.
    fn once(
        &mut self,
        direction: Direction,
        (old, left): (&'o Value, Shape<'o>),
        (new, right): (&'n Value, Shape<'n>),
        at: &str,
    ) {
        let pair = self.pair(direction, old, new);
        if !self.seen.insert(pair) {
            return;
        }
        match (left.unions.len(), right.unions.len()) {
            (0, 0) => self.shapes(direction, &left, &right, at),
            (a, b) if a == b => {
                self.shapes(direction, &left, &right, at);
                for (left, right) in left.unions.iter().zip(&right.unions) {
                    self.variants(direction, left, right, at);
                }
            }
            (0, 1) => {
                self.nullable(direction, left.nullable, right.nullable, at);
                self.variants(direction, &[old], &right.unions[0], at);
            }
            (1, 0) => {
                self.nullable(direction, left.nullable, right.nullable, at);
                self.variants(direction, &left.unions[0], &[new], at);
            }
            _ => self.report(Kind::TypeChanged, at, "the schema is composed differently"),
        }
    }

    fn pair(&self, direction: Direction, old: &'o Value, new: &'n Value) -> Pair {
        let address = |node: &Value| std::ptr::from_ref(node).addr();
        (address(self.old.resolve(old).0), address(self.new.resolve(new).0), direction)
    }

    fn shapes(&mut self, direction: Direction, old: &Shape<'o>, new: &Shape<'n>, at: &str) {
        if !type_fits(direction, old.kind, new.kind) {
            let name = |kind: Option<&str>| kind.unwrap_or("anything").to_owned();
            self.report(Kind::TypeChanged, at, format!("{} to {}", name(old.kind), name(new.kind)));
            // What follows would only say the same in other words.
            return;
        }
        if !format_fits(direction, old.format, new.format) {
            let name = |format: Option<&str>| format.unwrap_or("no format").to_owned();
            self.report(Kind::TypeChanged, at, format!("{} to {}", name(old.format), name(new.format)));
        }
        self.nullable(direction, old.nullable, new.nullable, at);
        self.values(direction, old, new, at);
        self.fields(direction, old, new, at);
        self.extra(direction, old.extra, new.extra, at);
        match (old.items, new.items) {
            (Some(old), Some(new)) => self.schema(direction, old, new, &format!("{at}/[]")),
            (Some(_), None) if direction == Output => self.report(Kind::TypeChanged, at, "items of any type"),
            (None, Some(_)) if direction == Input => {
                self.report(Kind::InputNarrowed, at, "items of one type")
            }
            _ => {}
        }
        if direction == Input {
            self.limits(old, new, at);
        }
    }

    fn nullable(&mut self, direction: Direction, old: bool, new: bool, at: &str) {
        match direction {
            Output if new && !old => self.report(Kind::OutputNullable, at, "nullable"),
            Input if old && !new => self.report(Kind::InputNotNullable, at, "not nullable"),
            _ => {}
        }
    }

    fn values(&mut self, direction: Direction, old: &Shape<'o>, new: &Shape<'n>, at: &str) {
        match (direction, &old.values, &new.values) {
            (Output, Some(known), Some(sent)) => {
                for value in sent.iter().filter(|value| !known.contains(value)) {
                    self.report(Kind::OutputEnumGrew, at, value.to_string());
                }
            }
            (Output, Some(_), None) => self.report(Kind::OutputEnumGrew, at, "any value"),
            (Input, Some(written), Some(accepted)) => {
                for value in written.iter().filter(|value| !accepted.contains(value)) {
                    self.report(Kind::InputEnumShrank, at, value.to_string());
                }
            }
            (Input, None, Some(_)) => self.report(Kind::InputEnumShrank, at, "only listed values"),
            _ => {}
        }
    }

    fn fields(&mut self, direction: Direction, old: &Shape<'o>, new: &Shape<'n>, at: &str) {
        for (name, field) in &old.fields {
            let at = format!("{at}/{name}");
            match (direction, new.fields.get(name)) {
                (_, Some(now)) => self.schema(direction, field, now, &at),
                (Output, None) => self.report(Kind::OutputFieldLost, at, "removed"),
                (Input, None) => self.report(Kind::InputFieldLost, at, "removed"),
            }
        }
        match direction {
            Output => {
                let kept = |name: &&&str| new.fields.contains_key(**name);
                for name in old.required.difference(&new.required).filter(kept) {
                    self.report(Kind::OutputFieldOptional, format!("{at}/{name}"), "was always there");
                }
            }
            Input => {
                for name in new.required.difference(&old.required) {
                    let known = old.fields.contains_key(name);
                    let detail = if known { "was optional" } else { "is new" };
                    self.report(Kind::InputFieldRequired, format!("{at}/{name}"), detail);
                }
            }
        }
    }

    fn extra(&mut self, direction: Direction, old: Extra<'o>, new: Extra<'n>, at: &str) {
        match (direction, old, new) {
            (_, Extra::Typed(old), Extra::Typed(new)) => self.schema(direction, old, new, &format!("{at}/*")),
            (Output, Extra::Typed(_), Extra::Any) => {
                self.report(Kind::TypeChanged, at, "entries of any type")
            }
            (Output, Extra::Typed(_), Extra::Closed) => self.report(Kind::OutputFieldLost, at, "no entries"),
            (Input, Extra::Any | Extra::Typed(_), Extra::Closed) => {
                self.report(Kind::InputNarrowed, at, "unknown fields are refused");
            }
            (Input, Extra::Any, Extra::Typed(_)) => {
                self.report(Kind::InputNarrowed, at, "entries of one type")
            }
            _ => {}
        }
    }

    fn limits(&mut self, old: &Shape<'o>, new: &Shape<'n>, at: &str) {
        for (key, limit) in &new.limits.lower {
            if old.limits.lower.get(key).is_none_or(|before| before < limit) {
                self.report(Kind::InputNarrowed, at, format!("{key} {limit}"));
            }
        }
        for (key, limit) in &new.limits.upper {
            if old.limits.upper.get(key).is_none_or(|before| before > limit) {
                self.report(Kind::InputNarrowed, at, format!("{key} {limit}"));
            }
        }
        for rule in new.rules.difference(&old.rules) {
            self.report(Kind::InputNarrowed, at, rule.as_str());
        }
    }

    /// Input: each old variant must still be accepted. Output: each new variant must have been known.
    fn variants(&mut self, direction: Direction, old: &[&'o Value], new: &[&'n Value], at: &str) {
        match direction {
            Input => {
                for (index, written) in old.iter().enumerate() {
                    let label = self.old_label(direction, written);
                    let same =
                        new.iter().find(|now| label.is_some() && self.new_label(direction, now) == label);
                    if let Some(now) = same {
                        self.schema(direction, written, now, &format!("{at}/{}", name(&label, index)));
                    } else if !new.iter().any(|now| self.fits(direction, written, now)) {
                        self.report(Kind::InputVariantLost, at, name(&label, index));
                    }
                }
            }
            Output => {
                for (index, sent) in new.iter().enumerate() {
                    let label = self.new_label(direction, sent);
                    let same =
                        old.iter().find(|known| label.is_some() && self.old_label(direction, known) == label);
                    if let Some(known) = same {
                        self.schema(direction, known, sent, &format!("{at}/{}", name(&label, index)));
                    } else if !old.iter().any(|known| self.fits(direction, known, sent)) {
                        self.report(Kind::OutputVariantAdded, at, name(&label, index));
                    }
                }
            }
        }
    }

    fn old_label(&self, direction: Direction, node: &'o Value) -> Option<String> {
        label(self.old, direction, node)
    }

    fn new_label(&self, direction: Direction, node: &'n Value) -> Option<String> {
        label(self.new, direction, node)
    }

    /// Whether two variants go together without a break. What a try finds out is kept.
    fn fits(&mut self, direction: Direction, old: &'o Value, new: &'n Value) -> bool {
        let pair = self.pair(direction, old, new);
        if self.misfits.contains(&pair) {
            return false;
        }
        let (breaks, seen) = (std::mem::take(&mut self.breaks), self.seen.clone());
        self.schema(direction, old, new, "");
        let fits = self.breaks.is_empty();
        self.breaks = breaks;
        if !fits {
            self.seen = seen;
            self.misfits.insert(pair);
        }
        fits
    }
}

fn name(label: &Option<String>, index: usize) -> String {
    label.clone().unwrap_or_else(|| format!("variant {}", index + 1))
}

/// A variant's identity: its tag, else the schema's name, else its title.
fn label<'a>(document: Document<'a>, direction: Direction, node: &'a Value) -> Option<String> {
    let (resolved, reference) = document.resolve(node);
    let last_part = |reference: &str| reference.rsplit('/').next().unwrap_or_default().to_owned();
    let title = || resolved.get("title").and_then(Value::as_str).map(str::to_owned);
    let tag = Shape::from_node(document, node, direction).tag(document, direction);
    tag.or_else(|| reference.map(last_part)).or_else(title)
}

fn type_fits(direction: Direction, old: Option<&str>, new: Option<&str>) -> bool {
    // The wider one may be read where the narrower one was written.
    let (written, read) = match direction {
        Output => (new, old),
        Input => (old, new),
    };
    match (written, read) {
        (_, None) | (Some("integer"), Some("number")) => true,
        (written, read) => written == read,
    }
}

fn format_fits(direction: Direction, old: Option<&str>, new: Option<&str>) -> bool {
    let (written, read) = match direction {
        Output => (new, old),
        Input => (old, new),
    };
    match (written, read) {
        (_, None) | (Some("int32"), Some("int64")) | (Some("float"), Some("double")) => true,
        (written, read) => written == read,
    }
}
