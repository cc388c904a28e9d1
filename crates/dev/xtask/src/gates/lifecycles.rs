//! The lifecycles that the code draws are those that the database enforces.
//!
//! `docs/lifecycles.md` is generated from the code's tables (its drift gate proves that), so comparing it with the
//! rows of `lifecycle_transitions` compares code and database for every lifecycle, also for one whose domain has
//! no test of its own.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use pg::Roles;

use super::{Finding, Gate};
use crate::schema;
use crate::tree::Tree;

const DOCUMENT: &str = "docs/lifecycles.md";
const DATABASE: &str = "lifecycle_transitions";
const ROWS: &str = "SELECT lifecycle, from_state, to_state FROM lifecycle_transitions";

/// Lifecycle, state before, state after.
type Step = (String, String, String);

pub struct Lifecycles;

impl Gate for Lifecycles {
    fn name(&self) -> &'static str {
        "lifecycles"
    }

    fn holds(&self) -> &'static str {
        "the state changes in docs/lifecycles.md are those that the database allows"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let drawn = steps(&tree.read(DOCUMENT)?)?;
        let allowed: BTreeSet<Step> = schema::with_migrated(tree, async |database| {
            let mut connection = database.open(Roles::Admin).await?;
            let rows: Vec<Step> = sqlx::query_as(ROWS)
                .fetch_all(&mut connection)
                .await
                .with_context(|| format!("read {DATABASE}"))?;
            Ok(rows.into_iter().collect())
        })?;
        let missing = drawn.difference(&allowed).map(|(lifecycle, from, to)| {
            let message = format!("{lifecycle}: the code goes from {from} to {to}, the database refuses it");
            Finding::new(DATABASE, message)
        });
        let forgotten = allowed.difference(&drawn).map(|(lifecycle, from, to)| {
            let message =
                format!("{lifecycle}: the database lets {from} become {to}, the code knows no such step");
            Finding::new(DATABASE, message)
        });
        Ok(missing.chain(forgotten).collect())
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        examples::examples()
    }
}

/// The steps of all Mermaid diagrams; each belongs to the heading above it. Arrows from and to `[*]` are no steps.
fn steps(text: &str) -> anyhow::Result<BTreeSet<Step>> {
    let mut out = BTreeSet::new();
    let mut lifecycle = "";
    let mut in_diagram = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(fence) = line.strip_prefix("```") {
            in_diagram = fence == "mermaid";
        } else if in_diagram {
            if line == "stateDiagram-v2" || line.is_empty() {
                continue;
            }
            let arrow = line.split_once(" --> ");
            let (from, rest) =
                arrow.with_context(|| format!("{DOCUMENT}:{}: {line:?} is no arrow", index + 1))?;
            let to = rest.split(':').next().unwrap_or_default().trim();
            if from != "[*]" && to != "[*]" {
                out.insert((lifecycle.to_owned(), from.to_owned(), to.to_owned()));
            }
        } else if let Some(name) = line.strip_prefix("## ") {
            lifecycle = name;
        }
    }
    if out.is_empty() {
        bail!("{DOCUMENT} draws no lifecycle");
    }
    Ok(out)
}

#[cfg(test)]
mod examples {
    use super::DOCUMENT;
    use crate::gates::tests::Examples;
    use crate::tree::FixtureTree;

    const TABLE: &str = "migrations/0001_a.sql";
    const ROWS: &str = "migrations/0002_b.sql";
    const DRAWN: &str = "# Lifecycles\n\n## door\n\n```mermaid\nstateDiagram-v2\n    [*] --> open\n    \
                         open --> shut: push\n    open --> shut: kick\n    shut --> open: pull\n    \
                         shut --> gone: burn\n    gone --> [*]\n```\n";

    pub(super) fn examples() -> Examples {
        let good = FixtureTree::new(&[
            (DOCUMENT, DRAWN),
            (
                TABLE,
                "CREATE TABLE lifecycle_transitions (lifecycle text, from_state text, to_state text);
                 INSERT INTO lifecycle_transitions VALUES ('door', 'open', 'shut'), ('door', 'shut', 'open');",
            ),
            (ROWS, "INSERT INTO lifecycle_transitions VALUES ('door', 'shut', 'gone');"),
        ]);
        Examples::good(good)
            .bad("step that the database refuses", "door: the code goes from shut to gone", |tree| {
                tree.with(ROWS, "SELECT 1;")
            })
            .bad("step that the code does not know", "door: the database lets gone become open", |tree| {
                tree.with(ROWS, "INSERT INTO lifecycle_transitions VALUES ('door', 'gone', 'open');")
            })
            .bad("step of another lifecycle", "window: the code goes from open to shut", |tree| {
                tree.with(DOCUMENT, DRAWN.replace("door", "window"))
            })
            .bad("lifecycle that the code does not know", "hatch: the database lets", |tree| {
                tree.with(ROWS, "INSERT INTO lifecycle_transitions VALUES ('hatch', 'a', 'b');")
            })
            .bad("diagram that cannot be read", "is no arrow", |tree| {
                tree.with(DOCUMENT, DRAWN.replace("open --> shut: push", "open shut"))
            })
            .bad("no diagrams", "draws no lifecycle", |tree| tree.with(DOCUMENT, "# Lifecycles\n"))
            .bad("no document", "read docs/lifecycles.md", |tree| tree.without(DOCUMENT))
            .bad("no table", "read lifecycle_transitions", |tree| {
                tree.with(TABLE, "SELECT 1;").with(ROWS, "SELECT 1;")
            })
    }
}
