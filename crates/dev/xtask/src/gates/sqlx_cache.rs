//! The cache of query descriptions that everyone builds with is what the migrated database says now.

use super::{Finding, Gate};
use crate::queries;
use crate::tree::Tree;

pub struct SqlxCache;

impl Gate for SqlxCache {
    fn name(&self) -> &'static str {
        "sqlx-cache"
    }

    fn holds(&self) -> &'static str {
        "every SQL macro's query fits the migrated database, and .sqlx describes exactly these queries"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let (files, mut found) = queries::cache(tree)?;
        for (path, content) in &files {
            if !tree.exists(path) {
                found.push(Finding::new(path, "is missing: run `cargo xtask generate`"));
            } else if tree.read(path)? != *content {
                let message = "differs from what the database says: run `cargo xtask generate`";
                found.push(Finding::new(path, message));
            }
        }
        for path in queries::entries(tree)?.into_iter().filter(|path| !files.contains_key(path)) {
            found.push(Finding::new(path, "no query uses it: run `cargo xtask generate`"));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let source = "crates/platform/a/src/lib.rs";
        let migration = "migrations/0001_a.sql";
        let code = |sql: &str| format!("async fn f() {{ sqlx::query!({sql:?}, 1).execute(c).await }}\n");
        let good = FixtureTree::new(&[
            (migration, "CREATE TABLE a (id int NOT NULL, b text);\n"),
            (source, &code("SELECT b FROM a WHERE id = $1")),
        ]);
        let dir = tempfile::tempdir().unwrap();
        good.write(dir.path());
        let tree = Tree::new(dir.path());
        let changed = queries::refresh(&tree).unwrap();
        let [entry] = &changed[..] else { panic!("one query makes one entry, not {changed:?}") };
        let good = good.with(entry, tree.read(entry).unwrap());
        super::tests::Examples::good(good)
            .bad("not committed", "is missing", |tree| tree.without(entry))
            .bad("query changed", "is missing", |tree| {
                tree.with(source, code("SELECT id FROM a WHERE id = $1"))
            })
            .bad("query gone", "no query uses it", |tree| tree.with(source, ""))
            .bad("parameter type changed", "differs from what the database says", |tree| {
                tree.with(migration, "CREATE TABLE a (id bigint NOT NULL, b text);\n")
            })
            .bad("column became required", "differs from what the database says", |tree| {
                tree.with(migration, "CREATE TABLE a (id int NOT NULL, b text NOT NULL);\n")
            })
            .bad("column gone", "lib.rs:1: the database refuses", |tree| {
                tree.with(migration, "CREATE TABLE a (id int NOT NULL);\n")
            })
            .bad("SQL out of a constant", "must be a string literal", |tree| {
                tree.with(source, "fn f() { sqlx::query_scalar!(SQL) }\n")
            })
            .bad("something else in the directory", "no query uses it", |tree| {
                tree.with(".sqlx/notes.txt", "")
            })
    }
}
