//! States, kinds and units in the API are enums, so that the document, the rows and the code have one list of names.
//!
//! Three things bring a second list back: a text field for a state or kind in a type of the API, a list of names in a
//! `schemars` attribute, and an enum of the API that names its values by hand beside serde (`named_enum!` does both).

use std::collections::BTreeMap;

use super::{Finding, Gate};
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::{Tree, is_test_path};

/// Where types of the API are. The node contract has its own versions, which never change.
const ROOTS: [&str; 4] = ["crates/base/", "crates/platform/", "crates/domains/", "crates/server/"];
/// Text fields that stay, each with the reason: `"Struct.field" = "why its names are not ours to list"`.
const EXCEPTIONS: &str = "gate-exceptions.toml";
const TABLE: &str = "text_fields";
/// As many as there are. Lower it when one goes; it never rises.
const MOST_EXCEPTIONS: usize = 8;
/// The last word of a field's name that says that its values have names.
const WORDS: [&str; 15] = [
    "state", "status", "kind", "unit", "role", "action", "scope", "severity", "mode", "phase", "health",
    "cause", "decision", "class", "outcome",
];
/// Types around the one that says what a field is.
const WRAPPERS: [&str; 5] = ["Option", "Vec", "Given", "Cow", "Box"];
const TEXTS: [&str; 2] = ["String", "str"];

pub struct NamedValues;

impl Gate for NamedValues {
    fn name(&self) -> &'static str {
        "named-values"
    }

    fn holds(&self) -> &'static str {
        "states, kinds and units in types of the API are enums, and no list of their names is written by hand"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut excepted = super::exceptions(tree, EXCEPTIONS, TABLE, MOST_EXCEPTIONS, &mut found)?;
        for path in tree.files()?.iter().filter(|path| is_ours(path)) {
            let tokens = match rust_tokens::tokens(&tree.read(path)?) {
                Ok(tokens) => tokens,
                Err(error) => {
                    found.push(Finding::new(path, format!("{error:#}")));
                    continue;
                }
            };
            check_file(path, &tokens, &mut excepted, &mut found);
        }
        for field in excepted.iter().filter(|(_, used)| !**used).map(|(field, _)| field) {
            let text = format!("{field} is no text field of the API any more: remove it from {TABLE}");
            found.push(Finding::new(EXCEPTIONS, text));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let model = "crates/domains/doors/src/model/door.rs";
        let good = "#[derive(Clone, JsonSchema)]\n\
                    pub struct Door<'a> { pub state: DoorState, #[serde(default)] kind: Option<Kind>, pub name: &'a str, pub action: String }\n\
                    pub struct Row { state: String }\n\
                    #[derive(JsonSchema)] enum Order { Up, Down }\n\
                    impl Order { fn name(self) { self.way().name() } fn text(self) { \"up\" } }\n\
                    #[cfg(test)] mod tests { #[derive(JsonSchema)] struct Door { state: String } }\n";
        let exceptions = "[text_fields]\n\"Door.action\" = \"verbs of every domain\"\n";
        let tree = FixtureTree::new(&[(model, good), (EXCEPTIONS, exceptions)]);
        let with = |code: &'static str| move |tree: FixtureTree| tree.with(model, format!("{good}{code}"));
        super::tests::Examples::good(tree)
            .bad(
                "text for a state",
                "Gate.state is text",
                with("#[derive(JsonSchema)] #[serde(x)] struct Gate { pub(crate) state: String }"),
            )
            .bad(
                "optional text for a kind",
                "Gate.lock_kind is text",
                with("#[derive(JsonSchema)] pub struct Gate { a: (u8, u8), lock_kind: Option<&'static str> }"),
            )
            .bad(
                "a list of names in an attribute",
                "door.rs:7: a list of names",
                with("struct Gate { #[schemars(extend(\"enum\" = [\"open\", \"shut\"]))] position: String }"),
            )
            .bad(
                "an enum that names its values by hand",
                "Filter names its values by hand",
                with(
                    "#[derive(JsonSchema)] enum Filter { Open }\nimpl Filter { const fn name(self) -> &'static str { \"open\" } }",
                ),
            )
            .bad("an exception that is not needed", "Door.kind is no text field", |tree| {
                tree.with(EXCEPTIONS, format!("{exceptions}\"Door.kind\" = \"old\"\n"))
            })
            .bad("an exception without a reason", "Door.action has no reason", |tree| {
                tree.with(EXCEPTIONS, "[text_fields]\n\"Door.action\" = \"\"\n")
            })
            .bad("more exceptions than there were", "may only shrink", |tree| {
                let more: String = (0..=MOST_EXCEPTIONS).map(|n| format!("\"Gate{n}.state\" = \"x\"\n")).collect();
                tree.with(EXCEPTIONS, format!("{exceptions}{more}"))
            })
    }
}

fn is_ours(path: &str) -> bool {
    path.ends_with(".rs")
        && path.contains("/src/")
        && !is_test_path(path)
        && ROOTS.iter().any(|root| path.starts_with(root))
}

fn check_file(path: &str, tokens: &[Token], excepted: &mut BTreeMap<String, bool>, found: &mut Vec<Finding>) {
    let mut enums = Vec::new();
    for at in (0..tokens.len()).filter(|at| !tokens[*at].in_test) {
        if lists_names(&tokens[at..]) {
            let text = "a list of names in an attribute: use the enum that the code uses";
            found.push(Finding::at_line(path, tokens[at].line, text));
        }
        let Some(item) = api_type(tokens, at) else { continue };
        let Some(name) = tokens.get(item + 1).and_then(Token::ident) else { continue };
        if tokens[item].is("enum") {
            enums.push(name);
            continue;
        }
        for (field, line) in text_fields(&tokens[item + 2..]) {
            let full = format!("{name}.{field}");
            match excepted.get_mut(&full) {
                Some(used) => *used = true,
                None => {
                    let text = format!("{full} is text: use an enum (`lifecycle!` or `named_enum!`)");
                    found.push(Finding::at_line(path, line, text));
                }
            }
        }
    }
    for name in enums {
        if let Some(line) = names_by_hand(tokens, name) {
            let text = format!("{name} names its values by hand: declare it with `named_enum!`");
            found.push(Finding::at_line(path, line, text));
        }
    }
}

/// `extend("enum"`.
fn lists_names(tokens: &[Token]) -> bool {
    let [extend, open, list, ..] = tokens else { return false };
    extend.is("extend") && open.kind == Kind::Open('(') && list.string() == Some("enum")
}

/// The place of `struct` or `enum` of the item whose `derive` at `at` makes it a type of the API.
fn api_type(tokens: &[Token], at: usize) -> Option<usize> {
    if !tokens[at].is("derive") {
        return None;
    }
    let close = tokens[at..].iter().position(|token| token.kind == Kind::Close(')'))? + at;
    tokens[at..close].iter().find(|token| token.is("JsonSchema"))?;
    // Past the other attributes and the visibility.
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(close + 2) {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth = depth.checked_sub(1)?,
            Kind::Ident(_) if depth == 0 && (token.is("struct") || token.is("enum")) => return Some(place),
            _ => {}
        }
    }
    None
}

/// The fields of the body that begins in `tokens` whose name says that their values have names, and whose type is text.
fn text_fields(tokens: &[Token]) -> Vec<(&str, usize)> {
    let mut fields = Vec::new();
    let Some(body) = tokens.iter().position(|t| matches!(t.kind, Kind::Open('{' | '(') | Kind::Punct(';')))
    else {
        return fields;
    };
    if tokens[body].kind != Kind::Open('{') {
        return fields;
    }
    let (mut depth, mut angles) = (0_usize, 0_usize);
    let mut field: Option<(&str, usize, bool)> = None;
    for (at, token) in tokens.iter().enumerate().skip(body + 1) {
        let ends = matches!(token.kind, Kind::Close('}')) && depth == 0;
        match &token.kind {
            _ if ends => {}
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth -= 1,
            Kind::Punct('<') => angles += 1,
            Kind::Punct('>') => angles = angles.saturating_sub(1),
            Kind::Punct(':') if depth == 0 && field.is_none() => {
                field = tokens[at - 1].ident().map(|name| (name, tokens[at - 1].line, false));
            }
            Kind::Ident(word) if depth == 0 => {
                // `'a` is a punct and a word.
                let lifetime = tokens[at - 1].kind == Kind::Punct('\'');
                if let Some((_, _, text)) = &mut field
                    && !lifetime
                    && !WRAPPERS.contains(&word.as_str())
                {
                    *text = TEXTS.contains(&word.as_str());
                }
            }
            _ => {}
        }
        let separates = token.kind == Kind::Punct(',') && depth == 0 && angles == 0;
        if separates || ends {
            if let Some((name, line, true)) = field
                && WORDS.contains(&name.rsplit('_').next().unwrap_or(name))
            {
                fields.push((name, line));
            }
            field = None;
        }
        if ends {
            break;
        }
    }
    fields
}

/// Where `impl name { … fn name(…) { … "text" … } }` is.
fn names_by_hand(tokens: &[Token], name: &str) -> Option<usize> {
    let begins = |at: usize| {
        tokens[at].is("impl")
            && !tokens[at].in_test
            && tokens.get(at + 1).is_some_and(|token| token.is(name))
            && tokens.get(at + 2).is_some_and(|token| token.kind == Kind::Open('{'))
    };
    (0..tokens.len()).filter(|at| begins(*at)).find_map(|at| {
        let mut depth = 0_usize;
        let body = tokens[at + 2..].iter().take_while(|token| {
            match token.kind {
                Kind::Open(_) => depth += 1,
                Kind::Close(_) => depth -= 1,
                _ => {}
            }
            depth > 0
        });
        let body: Vec<&Token> = body.collect();
        let start = body.windows(2).position(|pair| pair[0].is("fn") && pair[1].is("name"))? + 1;
        // An attribute is the next item's.
        let function = body[start..].iter().take_while(|t| !t.is("fn") && t.kind != Kind::Punct('#'));
        function.clone().find(|token| token.string().is_some()).map(|_| body[start].line)
    })
}
