//! A statement as people read it: the same words and amounts on screen and on paper.

use super::{report::hours, statement::Statement};

/// A heading with lines below it: what, and how much.
pub struct Section {
    pub heading: &'static str,
    pub lines: Vec<(String, String)>,
    /// What is shown last, and set apart.
    pub total: Option<(String, String)>,
}

/// The page: a title, what it is about, and sections.
pub struct StatementPage {
    pub title: String,
    pub about: Vec<String>,
    pub sections: Vec<Section>,
}

impl StatementPage {
    pub fn from_statement(statement: &Statement) -> Self {
        let decimal = |minor: i64| kernel::money::decimal(minor, &statement.currency);
        let span = statement.month.span();
        let last = span.to - chrono::TimeDelta::days(1);
        let mut about = vec![
            format!("Organization {}", statement.org_id),
            format!(
                "{} to {} (UTC), amounts in {}",
                span.from.date_naive(),
                last.date_naive(),
                statement.currency
            ),
            format!("Everything posted up to entry {} of the ledger", statement.through_seq),
        ];
        if statement.provisional {
            about.push("Provisional: the month has not ended.".to_owned());
        }
        let mut summary = vec![("Opening balance".to_owned(), decimal(statement.opening_minor))];
        summary.extend(statement.changes.named().map(|(name, minor)| (name.to_owned(), decimal(minor))));
        let usage = statement.usage.iter().map(|used| {
            let what =
                format!("{}, {}, {} {}", used.project_id, used.sku, hours(used.unit_seconds), used.unit);
            (what, decimal(used.amount_minor))
        });
        let mut movements: Vec<(String, String)> = statement
            .movements
            .iter()
            .map(|moved| {
                let day = moved.posted_at.date_naive();
                (format!("{day} {}: {}", moved.kind, moved.reason), decimal(moved.amount_minor))
            })
            .collect();
        if statement.movements_left_out > 0 {
            movements
                .push((format!("and {} more in the ledger", statement.movements_left_out), String::new()));
        }
        let closing = statement.closing;
        let charged: i64 = statement.usage.iter().map(|used| used.amount_minor).sum();
        let sections = vec![
            Section {
                heading: "Summary",
                lines: summary,
                total: Some(("Closing balance".to_owned(), decimal(statement.closing_minor))),
            },
            Section {
                heading: "Usage by project and product",
                lines: usage.collect(),
                total: Some(("Total usage".to_owned(), decimal(charged))),
            },
            Section { heading: "Top-ups, credits, refunds and corrections", lines: movements, total: None },
            Section {
                heading: "The closing balance consists of",
                lines: vec![
                    ("Prepaid".to_owned(), decimal(closing.prepaid_minor)),
                    ("On hold for running allocations".to_owned(), decimal(closing.held_minor)),
                    ("Promotional credit".to_owned(), decimal(closing.promo_minor)),
                    ("Frozen by disputes".to_owned(), decimal(closing.disputed_minor)),
                ],
                total: None,
            },
        ];
        Self { title: format!("Statement {}", statement.month), about, sections }
    }
}
