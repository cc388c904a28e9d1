//! A small tree whose documents are right, and what makes each of them wrong.

use super::super::tests::Examples;
use super::{ARCHITECTURE, OPERATIONS, roles::ROLES};
use crate::gates::metric_names::CATALOG;
use crate::schema::SCHEMA_DUMP;
use crate::tree::FixtureTree;

const ARCHITECTURE_TEXT: &str = "One program has two roles.\n\n\
    | role | runs |\n| --- | --- |\n| `api` | endpoints |\n| `relay` | outbox |\n\n\
    | crate | may depend on |\n| --- | --- |\n| `kernel` | `lifecycle`; no I/O |\n| `pg` | base |\n\
    | `identity` | base, platform |\n| crates in `crates/dev` | anything |\n\n\
    | table | only writer |\n| --- | --- |\n| `users`, `issuer_*` | `identity` |\n| `doors` | `pg`, by its functions only |\n\
    | `history` | migrations |\n\n\
    | table | also written by |\n| --- | --- |\n| `users` | `pg` when it restores |\n";
const OPERATIONS_TEXT: &str = "| setting | default |\n| --- | --- |\n| `server.listen`, `.port` | 1 |\n\
    | `[[auth.issuers]]` | none |\n\n| role | does |\n| --- | --- |\n| `api` | a |\n| `relay` | b |\n\n\
    | when | see |\n| --- | --- |\n| `increase(doors_total{way=\"in\"}[5m]) > 0` | x |\n";
const STORE: &str = "crates/domains/identity/src/store.rs";
const CONFIG: &str = "crates/server/gpuaasd/src/config/mod.rs";
const FUNCTION: &str = "migrations/functions/platform/door_open.sql";

pub fn examples() -> Examples {
    let manifest = |name: &str| format!("[package]\nname = \"{name}\"\n");
    let config = "fn f(r: &mut R) { r.get(\"server.listen\", 1); r.optional::<Url>(\"server.port\"); r.count(\"auth.issuers\"); \
        r.problem(\"server.x\"); }\n#[cfg(test)]\nmod tests { fn g() { r.get(\"a.b\", 1) } }\n";
    let roles = "impl Role { fn name(self) -> &'static str { match self { Self::Api => \"api\", Self::Relay => \"relay\" } } }\n";
    let store = "fn f() { query!(\"INSERT INTO users (id) VALUES ($1)\"); query!(r#\"DELETE FROM issuer_keys\"#); \
        counter!(names::DOORS_TOTAL, \"way\" => way, \"kind\" => \"x\"); gauge!(\"doors_open\").set(1); \
        query!(\"SELECT id FROM users FOR UPDATE\"); }\n#[cfg(test)]\nmod t { fn g() { query(\"UPDATE doors SET a = 1\"); } }\n";
    let catalog = "pub const DOORS_OPEN: &str = \"doors_open\";\npub const DOORS_TOTAL: &str = \"doors_total\";\n\
        pub const ALL: &[Metric] = &[gauge(DOORS_OPEN, &[], \"Open.\"), \
        counter(DOORS_TOTAL, &[(\"way\", &[\"in\", \"out\"]), (\"kind\", &[])], \"All.\")];\n";
    let schema = "CREATE TABLE public.users (\nCREATE TABLE public.issuer_keys (\nCREATE UNLOGGED TABLE public.doors (\n\
        CREATE TABLE public.history (\n";
    let tree = FixtureTree::new(&[
        (ARCHITECTURE, ARCHITECTURE_TEXT),
        (OPERATIONS, OPERATIONS_TEXT),
        (ROLES, roles),
        (CATALOG, catalog),
        (SCHEMA_DUMP, schema),
        (STORE, store),
        (CONFIG, config),
        (
            FUNCTION,
            "-- INSERT INTO history\nCREATE FUNCTION f() AS $$ UPDATE doors SET a = 1; UPDATE users SET b = 2; $$;\n",
        ),
        ("crates/base/kernel/Cargo.toml", &manifest("kernel")),
        ("crates/platform/pg/Cargo.toml", &manifest("pg")),
        ("crates/domains/identity/Cargo.toml", &manifest("identity")),
        ("crates/dev/testkit/Cargo.toml", &manifest("testkit")),
    ]);
    let edit = |path: &'static str, from: &'static str, to: &'static str| {
        move |tree: FixtureTree| tree.replaced(path, from, to)
    };
    Examples::good(tree)
        .bad(
            "a role too many",
            "the table of roles lacks \"relay\"",
            edit(ARCHITECTURE, "| `relay` | outbox |\n", ""),
        )
        .bad(
            "a role that is gone",
            "there is no role \"worker\"",
            edit(OPERATIONS, "`relay`", "`relay`, `worker`"),
        )
        .bad(
            "a wrong count",
            "architecture.md:1: there are 2 roles, not 8",
            edit(ARCHITECTURE, "two", "eight"),
        )
        .bad("a crate is missing", "lacks pg", edit(ARCHITECTURE, "| `pg` | base |\n", ""))
        .bad(
            "a crate is gone",
            "there is no crate doors",
            edit(ARCHITECTURE, "| `pg` |", "| `pg`, `doors` |"),
        )
        .bad("other dependencies", "pg may depend on: base", edit(ARCHITECTURE, "| base |", "| `kernel` |"))
        .bad(
            "a table is missing",
            "\"Who writes what\" lacks history",
            edit(ARCHITECTURE, "| `history` | migrations |\n", ""),
        )
        .bad(
            "a table is gone",
            "there is no table windows",
            edit(ARCHITECTURE, "`history`", "`history`, `windows`"),
        )
        .bad(
            "a table stands twice",
            "issuer_keys has two writers",
            edit(ARCHITECTURE, "`history`", "`history`, `issuer_keys`"),
        )
        .bad(
            "somebody else writes",
            "store.rs: writes history",
            edit(STORE, "DELETE FROM issuer_keys", "INSERT INTO history (id)"),
        )
        .bad("a source writes what functions write", "only functions write", |tree| {
            tree.with("crates/platform/pg/src/lib.rs", "fn f() { query!(\"DELETE FROM doors\"); }\n")
        })
        .bad(
            "a function of another writes",
            "door_open.sql: writes history",
            edit(FUNCTION, "UPDATE doors SET a = 1;", "UPDATE doors SET a = 1; DELETE FROM history;"),
        )
        .bad(
            "a writer that does not write",
            "identity does not write history",
            edit(ARCHITECTURE, "migrations", "`identity`"),
        )
        .bad(
            "an exception that is none",
            "identity does not write doors besides",
            edit(ARCHITECTURE, "| `users` | `pg`", "| `doors` | `identity` x |\n| `users` | `pg`"),
        )
        .bad(
            "a setting is missing",
            "the table of settings lacks auth.issuers",
            edit(OPERATIONS, "| `[[auth.issuers]]` | none |\n", ""),
        )
        .bad(
            "a setting is gone",
            "no setting server.host is read",
            edit(OPERATIONS, "`.port`", "`.port`, `.host`"),
        )
        .bad(
            "a metric is gone",
            "operations.md:13: there is no metric windows_total",
            edit(OPERATIONS, "increase(doors_total", "increase(windows_total"),
        )
        .bad(
            "no table of alerts",
            "has no table of alerts",
            edit(OPERATIONS, "| when | see |", "| if | see |"),
        )
        .bad(
            "a label has another name",
            "doors_total has labels [kind, way], the catalog says [direction, kind]",
            edit(CATALOG, "\"way\"", "\"direction\""),
        )
        .bad(
            "labels that nobody documented",
            "doors_open has labels [room]",
            edit(STORE, "\"doors_open\")", "\"doors_open\", \"room\" => 1)"),
        )
        .bad("no schema", "schema.sql", |tree| tree.without(SCHEMA_DUMP))
}
