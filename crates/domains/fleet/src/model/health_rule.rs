//! What is done about a health finding: a table that operators edit.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;

pub use events::fleet::HealthAction;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HealthRule {
    /// An exact code (`xid.79`), or a beginning with a star (`xid.*`, `*`); the longest match decides.
    pub pattern: String,
    pub action: HealthAction,
    pub meaning: String,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// How well `pattern` fits `code`: the length of what it names, or nothing when it does not.
pub fn fit(pattern: &str, code: &str) -> Option<usize> {
    match pattern.strip_suffix('*') {
        Some(beginning) => code.starts_with(beginning).then_some(beginning.len()),
        None => (pattern == code).then_some(pattern.len() + 1),
    }
}

/// What to do about `code`: as the rule with the longest match says; without any, only to keep it.
pub fn decide(rules: &[(String, HealthAction)], code: &str) -> HealthAction {
    rules
        .iter()
        .filter_map(|(pattern, action)| fit(pattern, code).map(|length| (length, *action)))
        .max_by_key(|(length, _)| *length)
        .map_or(HealthAction::Observe, |(_, action)| action)
}

/// Whether some code is paid for by one of these tables and not by the other. Which rule decides changes only at a pattern,
/// so it is enough to ask about each pattern itself, and for a family about a code that nothing longer names.
pub fn payments_differ(before: &[(String, HealthAction)], after: &[(String, HealthAction)]) -> bool {
    before.iter().chain(after).any(|(pattern, _)| {
        let code = match pattern.strip_suffix('*') {
            Some(beginning) => format!("{beginning}~"),
            None => pattern.clone(),
        };
        let pays = |rules: &[(String, HealthAction)]| decide(rules, &code) == HealthAction::Credit;
        pays(before) != pays(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &[(&str, HealthAction)]) -> Vec<(String, HealthAction)> {
        list.iter().map(|(pattern, action)| ((*pattern).to_owned(), *action)).collect()
    }

    #[test]
    fn an_exact_code_beats_its_family_and_a_family_beats_everything() {
        let rules = rules(&[
            ("*", HealthAction::Observe),
            ("xid.*", HealthAction::Warn),
            ("xid.79", HealthAction::Credit),
        ]);
        assert_eq!(decide(&rules, "xid.79"), HealthAction::Credit);
        assert_eq!(decide(&rules, "xid.7"), HealthAction::Warn);
        assert_eq!(decide(&rules, "xid"), HealthAction::Observe);
        assert_eq!(decide(&rules[1..], "dcgm.thermal"), HealthAction::Observe, "without any rule it is kept");
    }

    #[test]
    fn what_pays_differs_when_a_rule_that_pays_comes_goes_or_is_uncovered() {
        let paying = rules(&[("*", HealthAction::Observe), ("xid.*", HealthAction::Credit)]);
        let shielded = rules(&[
            ("*", HealthAction::Observe),
            ("xid.*", HealthAction::Credit),
            ("xid.13", HealthAction::Observe),
        ]);
        let plain = rules(&[("*", HealthAction::Warn)]);
        assert!(payments_differ(&plain, &paying) && payments_differ(&paying, &plain));
        assert!(payments_differ(&shielded, &paying), "without its own rule, xid.13 pays");
        assert!(!payments_differ(&paying, &paying));
        assert!(!payments_differ(
            &plain,
            &rules(&[("*", HealthAction::Cordon), ("fan.*", HealthAction::Warn)])
        ));
    }

    proptest::proptest! {
        #[test]
        fn payments_differ_exactly_when_some_code_is_paid_by_one_table_only(
            before in proptest::collection::btree_map("([a-b]\\.){0,2}([a-b]|\\*)", 0..2_usize, 0..6),
            after in proptest::collection::btree_map("([a-b]\\.){0,2}([a-b]|\\*)", 0..2_usize, 0..6),
        ) {
            let table = |rules: std::collections::BTreeMap<String, usize>| -> Vec<(String, HealthAction)> {
                let action = |n| if n == 0 { HealthAction::Credit } else { HealthAction::Warn };
                rules.into_iter().map(|(pattern, n)| (pattern, action(n))).collect()
            };
            let (before, after) = (table(before), table(after));
            let parts = ["a", "b", "c"];
            let mut codes: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            for depth in 0..3 {
                let longer: Vec<String> = codes.iter().skip(if depth == 0 { 0 } else { 3 })
                    .flat_map(|code| parts.iter().map(move |part| format!("{code}.{part}"))).collect();
                codes.extend(longer);
            }
            let pays = |rules: &[(String, HealthAction)], code: &String| decide(rules, code) == HealthAction::Credit;
            let expected = codes.iter().any(|code| pays(&before, code) != pays(&after, code));
            proptest::prop_assert_eq!(payments_differ(&before, &after), expected);
        }

        #[test]
        fn no_matching_rule_is_longer_than_the_one_that_decides(
            code in "[a-c](\\.[a-c]){0,3}",
            patterns in proptest::collection::btree_set("([a-c]\\.){0,3}([a-c]|\\*)", 0..12),
        ) {
            // Each pattern has an action of its own where there are enough.
            let rules: Vec<(String, HealthAction)> = patterns
                .iter()
                .enumerate()
                .map(|(n, pattern)| (pattern.clone(), HealthAction::ALL[n % 5]))
                .collect();
            let matching = |pattern: &str| match pattern.strip_suffix('*') {
                Some(beginning) => code.starts_with(beginning),
                None => pattern == code,
            };
            let longest = rules.iter().filter(|(pattern, _)| matching(pattern)).max_by_key(|(pattern, _)| {
                (pattern.trim_end_matches('*').len(), !pattern.ends_with('*'))
            });
            let expected = longest.map_or(HealthAction::Observe, |(_, action)| *action);
            proptest::prop_assert_eq!(decide(&rules, &code), expected);
        }
    }
}
