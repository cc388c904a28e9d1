//! Events are types of `crates/base/events`. Who emits or consumes one names its type there, so that a renamed event
//! breaks the build of who listens: a name in a string would go on waiting for what nobody says any more.

use std::collections::BTreeSet;

use anyhow::Context as _;

use super::{Finding, Gate};
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::{Tree, is_test_path};

const EVENTS: &str = "crates/base/events/";
const DOCUMENT: &str = "openapi/events.json";

pub struct EventTypes;

impl Gate for EventTypes {
    fn name(&self) -> &'static str {
        "event-types"
    }

    fn holds(&self) -> &'static str {
        "events are declared in crates/base/events, and nobody else names one by a string"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let document = tree.json(DOCUMENT)?;
        let messages =
            document["components"]["messages"].as_object().context("a document without messages")?;
        let names: BTreeSet<&str> =
            messages.values().filter_map(|message| message["name"].as_str()).collect();
        let mut found = Vec::new();
        if names.is_empty() {
            found.push(Finding::new(DOCUMENT, "no event is in the document"));
        }
        for path in tree.files()? {
            // Tools and tests look at what is stored, where an event is its name.
            if !path.ends_with(".rs")
                || path.starts_with(EVENTS)
                || path.starts_with("crates/dev/")
                || is_test_path(path)
            {
                continue;
            }
            let tokens = rust_tokens::tokens(&tree.read(path)?).with_context(|| format!("read {path}"))?;
            for at in (0..tokens.len()).filter(|at| !tokens[*at].in_test) {
                if let Some(name) = named_event(&tokens, at, &names) {
                    let text = format!("{name} is a type of the crate events: name the type");
                    found.push(Finding::at_line(path, tokens[at].line, text));
                }
                if implements_event(&tokens[at..]) {
                    let text = format!("events are declared in {EVENTS}");
                    found.push(Finding::at_line(path, tokens[at].line, text));
                }
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let document = r#"{"components":{"messages":{"doors.opened.v1":{"name":"doors.opened"}}}}"#;
        let service = "crates/domains/doors/src/service.rs";
        let good = "/// Answers `doors.opened`.\nfn f(e: &Envelope) -> bool { e.event_type == DoorOpened::TYPE }\n\
                    const KEY: &str = \"doors.opened_per_day\";\n\
                    #[cfg(test)] mod tests { impl Event for Rung {} const T: &str = \"doors.opened\"; }\n";
        let tree = FixtureTree::new(&[
            (DOCUMENT, document),
            (
                "crates/base/events/src/doors.rs",
                "events! { DoorOpened = \"doors.opened\" } impl Event for D {}",
            ),
            (service, good),
            ("crates/domains/doors/tests/all.rs", "fn f() { events(\"doors.opened\"); }"),
        ]);
        super::tests::Examples::good(tree)
            .bad("an event by its name", "service.rs:1: doors.opened is a type", |tree| {
                tree.with(service, "const TYPES: &[&str] = &[\"doors.opened\"];")
            })
            .bad("an event by its name in SQL", "service.rs:1: doors.opened is a type", |tree| {
                tree.with(service, "fn f() { q(r#\"SELECT 1 WHERE event_type = 'doors.opened'\"#) }")
            })
            .bad("an event of a domain's own", "service.rs:1: events are declared in", |tree| {
                tree.with(service, "impl kernel::Event for DoorShut { const TYPE: &str = X; }")
            })
            .bad("no document", DOCUMENT, |tree| tree.without(DOCUMENT))
            .bad("a document without events", "no event is in the document", |tree| {
                tree.with(DOCUMENT, r#"{"components":{"messages":{}}}"#)
            })
    }
}

/// The event that a literal names, by itself or within a longer text; what a comment says does not count.
fn named_event<'a>(tokens: &[Token], at: usize, names: &BTreeSet<&'a str>) -> Option<&'a str> {
    let Kind::Literal(text) = &tokens[at].kind else { return None };
    if at >= 2 && tokens[at - 2].is("doc") {
        return None;
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let words: BTreeSet<&str> = text.split(|c| !is_part(c)).map(|word| word.trim_matches('.')).collect();
    names.iter().copied().find(|name| words.contains(name))
}

/// `Event for`, with a path before it or not.
fn implements_event(tokens: &[Token]) -> bool {
    matches!(tokens, [event, other, ..] if event.is("Event") && other.is("for"))
}
