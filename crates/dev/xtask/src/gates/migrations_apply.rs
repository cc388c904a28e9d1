//! The migrations make a database from nothing, and find nothing to do when they run again.

use super::{Finding, Gate};
use crate::schema::{self, MIGRATIONS};
use crate::tree::Tree;

pub struct MigrationsApply;

impl Gate for MigrationsApply {
    fn name(&self) -> &'static str {
        "migrations-apply"
    }

    fn holds(&self) -> &'static str {
        "the migrations apply to an empty database as its owner, and a second time change nothing"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        schema::with_empty(tree, async |database, migrator| {
            let finding = |message: String| Ok(vec![Finding::new(MIGRATIONS, message)]);
            if let Err(error) = database.migrate(migrator).await {
                return finding(format!("do not apply from zero: {error}"));
            }
            let before = database.dump()?;
            if let Err(error) = database.migrate(migrator).await {
                return finding(format!("do not apply a second time: {error}"));
            }
            if database.dump()? != before {
                return finding("change the schema when they run a second time".to_owned());
            }
            Ok(Vec::new())
        })
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let second = "migrations/0002_b.sql";
        let tree = FixtureTree::new(&[
            ("migrations/0001_a.sql", "CREATE TABLE a (id uuid);\nGRANT SELECT ON a TO gpuaas_app;\n"),
            (second, "ALTER TABLE a ADD b text;\n"),
        ]);
        super::tests::Examples::good(tree)
            .bad("wrong SQL", "do not apply from zero", |tree| tree.with(second, "CREATE TABLE;"))
            .bad("wrong order", "do not apply from zero", |tree| {
                tree.with("migrations/0000_early.sql", "ALTER TABLE a ADD c text;")
            })
            .bad("needs a superuser", "permission denied", |tree| {
                tree.with(second, "SELECT pg_read_file('PG_VERSION');")
            })
            .bad("forgets that it ran", "do not apply a second time", |tree| {
                tree.with(second, "DELETE FROM _sqlx_migrations;")
            })
            .bad("changes each time", "change the schema", |tree| {
                tree.with(second, "DELETE FROM _sqlx_migrations;").with(
                    "migrations/0001_a.sql",
                    "DO $$ BEGIN EXECUTE 'CREATE TABLE t' || txid_current() || ' ()'; END $$;",
                )
            })
            .bad("no migrations", "no directory migrations", |_| FixtureTree::new(&[("README.md", "")]))
    }
}
