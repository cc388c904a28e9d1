//! Money follows rules that stand once. What use costs is `usage_cost`, in the database and in `model/rating.rs` of
//! billing, which a property test compares; that promotional credit pays before money is `promo_part`. Whatever
//! multiplies a price, divides by the seconds of an hour or takes the least of a promotional credit itself is a second
//! rule that can disagree.

use super::{Finding, Gate};
use crate::queries;
use crate::rust_tokens::{self, Kind, Token};
use crate::schema::FUNCTIONS;
use crate::sql;
use crate::tree::Tree;

const COST_IN_SQL: [&str; 2] =
    ["migrations/functions/billing/usage_cost.sql", "migrations/functions/billing/usage_cost_rounded_up.sql"];
const COST_IN_RUST: &str = "crates/domains/billing/src/model/rating.rs";
/// `meter_promo_part` gives back in the proportion in which was paid, which is another rule.
const PROMO: [&str; 2] =
    ["migrations/functions/billing/promo_part.sql", "migrations/functions/billing/meter_promo_part.sql"];
const DOMAINS: &str = "crates/domains/";
const USE_PROMO: &str = "decides what promotional credit pays: call promo_part";
const USE_COST: &str = "computes a cost: call usage_cost";

pub struct CostFormula;

impl Gate for CostFormula {
    fn name(&self) -> &'static str {
        "cost-formula"
    }

    fn holds(&self) -> &'static str {
        "what use costs, and what promotional credit pays of it, are computed in one place each"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        for path in tree.files()?.iter().filter(|path| path.starts_with(FUNCTIONS)) {
            let text = tree.read(path)?;
            let words: Vec<String> =
                text.split("$$").flat_map(sql::statements).flat_map(|s| s.words).collect();
            if !COST_IN_SQL.contains(&path.as_str()) && computes_cost(&words) {
                found.push(Finding::new(path, USE_COST));
            }
            if !PROMO.contains(&path.as_str()) && divides_promo(&words) {
                found.push(Finding::new(path, USE_PROMO));
            }
        }
        let (queries, _) = queries::queries(tree)?;
        for query in queries.iter().filter(|query| is_ours(&query.at.0)) {
            let statements = sql::statements(&query.sql);
            if statements.iter().any(|statement| computes_cost(&statement.words)) {
                found.push(Finding::at_line(&query.at.0, query.at.1, USE_COST));
            }
            if statements.iter().any(|statement| divides_promo(&statement.words)) {
                found.push(Finding::at_line(&query.at.0, query.at.1, USE_PROMO));
            }
        }
        for path in tree.files()?.iter().filter(|path| is_ours(path) && *path != COST_IN_RUST) {
            let tokens = match rust_tokens::tokens(&tree.read(path)?) {
                Ok(tokens) => tokens,
                Err(error) => {
                    found.push(Finding::new(path, format!("{error:#}")));
                    continue;
                }
            };
            for at in (0..tokens.len()).filter(|at| !tokens[*at].in_test && multiplies_price(&tokens, *at)) {
                found.push(Finding::at_line(path, tokens[at].line, USE_COST));
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let function = "migrations/functions/billing/meter_close.sql";
        let store = "crates/domains/billing/src/store/meters.rs";
        let body = |sql: &str| {
            format!("CREATE OR REPLACE FUNCTION meter_close() RETURNS void LANGUAGE sql AS $$ {sql} $$;\n")
        };
        let good = "SELECT amount, promo_part(promo, amount) FROM usage_cost(0, least(price, 9), 1, 3600)";
        let query = |sql: &str| format!("fn f() {{ sqlx::query!(\"{sql}\"); }}");
        let tree = FixtureTree::new(&[
            (COST_IN_SQL[0], &body("SELECT p_unit_price * p_units / 3600")),
            (PROMO[0], &body("SELECT least(p_promo, p_amount)")),
            (COST_IN_RUST, "fn f() { unit_price_minor.checked_mul(units) }"),
            (function, &body(good)),
            (store, &query("SELECT unit_price_minor, m.units FROM meters m")),
        ]);
        let in_function = |sql: &'static str| move |tree: FixtureTree| tree.with(function, body(sql));
        let in_store = |text: String| move |tree: FixtureTree| tree.with(store, text);
        super::tests::Examples::good(tree)
            .bad(
                "units times price in the program",
                "call usage_cost",
                in_store("fn f() { let all = i64::from(units) * row.unit_price_minor; }".to_owned()),
            )
            .bad(
                "price as an argument in the program",
                "call usage_cost",
                in_store("fn f() { units.checked_mul(price.unit_price_minor) }".to_owned()),
            )
            .bad(
                "the least of a promotional credit in a query",
                "call promo_part",
                in_store(query("SELECT least(promo_after, 1) FROM ledger_postings")),
            )
            .bad(
                "price times units in a function",
                "call usage_cost",
                in_function("SELECT m.unit_price_minor * m.units FROM meters m"),
            )
            .bad(
                "parts of a minor unit in a function",
                "call usage_cost",
                in_function("SELECT total / 3600 FROM meters"),
            )
            .bad(
                "rounding up in a function",
                "call usage_cost",
                in_function("SELECT (total + 3599) FROM meters"),
            )
            .bad(
                "the least of a promotional credit",
                "call promo_part",
                in_function("SELECT least(c.promo, amount) FROM chains c"),
            )
            .bad(
                "price times units in a query",
                "meters.rs:1: computes",
                in_store(query("SELECT units * unit_price_minor FROM meters")),
            )
            .bad(
                "price times units in the program",
                "meters.rs:1: computes",
                in_store("fn f() { price.unit_price_minor * units }".to_owned()),
            )
            .bad(
                "a price that is saturated",
                "meters.rs:1: computes",
                in_store("fn f() { x.unit_price_minor.saturating_mul(2) }".to_owned()),
            )
    }
}

fn is_ours(path: &str) -> bool {
    path.starts_with(DOMAINS)
        && path.contains("/src/")
        && path.ends_with(".rs")
        && !path.ends_with("_tests.rs")
}

fn is_price(word: &str) -> bool {
    word.ends_with("UNIT_PRICE_MINOR") || word.ends_with("UNIT_PRICE") || word == "P_PRICE"
}

/// A price is multiplied, or something is divided into the parts of a minor unit.
fn computes_cost(words: &[String]) -> bool {
    // Columns without the names of their tables.
    let is_qualifier = |at: usize| words[at] == "." || words.get(at + 1).is_some_and(|next| next == ".");
    let plain: Vec<&str> =
        (0..words.len()).filter(|at| !is_qualifier(*at)).map(|at| words[at].as_str()).collect();
    plain.windows(2).any(|pair| match (pair[0], pair[1]) {
        ("*", price) | (price, "*") if is_price(price) => true,
        ("*" | "/" | "%", "3600") | ("+", "3599") => true,
        _ => false,
    })
}

/// `least(…)` or `greatest(…)` of something promotional.
fn divides_promo(words: &[String]) -> bool {
    let calls = words
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| (pair[0] == "LEAST" || pair[0] == "GREATEST") && pair[1] == "(");
    calls.into_iter().any(|(at, _)| {
        let mut depth = 1;
        let inside = words[at + 2..].iter().take_while(|word| {
            depth += i32::from(*word == "(") - i32::from(*word == ")");
            depth > 0
        });
        inside.into_iter().any(|word| word.contains("PROMO"))
    })
}

/// `unit_price_minor * units`, `units * row.unit_price_minor`, `unit_price_minor.checked_mul(…)` and
/// `units.checked_mul(row.unit_price_minor)`.
fn multiplies_price(tokens: &[Token], at: usize) -> bool {
    if !tokens[at].is("unit_price_minor") {
        return false;
    }
    let is_mul =
        |token: Option<&Token>| token.and_then(Token::ident).is_some_and(|name| name.ends_with("_mul"));
    let is_punct = |token: Option<&Token>, sign| token.is_some_and(|token| token.kind == Kind::Punct(sign));
    let next = tokens.get(at + 1);
    if is_punct(next, '*') || is_punct(next, '.') && is_mul(tokens.get(at + 2)) {
        return true;
    }
    // Back over `row.price.` to what stands before the operand.
    let mut begin = at;
    while begin >= 2 && is_punct(tokens.get(begin - 1), '.') && tokens[begin - 2].ident().is_some() {
        begin -= 2;
    }
    let before = begin.checked_sub(1).and_then(|index| tokens.get(index));
    let is_operand = begin >= 2 && !matches!(tokens[begin - 2].kind, Kind::Punct(_) | Kind::Open(_));
    match before.map(|token| &token.kind) {
        Some(Kind::Punct('*')) => is_operand,
        Some(Kind::Open('(')) => is_mul(begin.checked_sub(2).and_then(|index| tokens.get(index))),
        _ => false,
    }
}
