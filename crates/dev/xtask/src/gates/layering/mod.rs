//! Dependencies point down, and inside a domain each room touches only what it may.
//!
//! `graph` checks the manifests, `rooms` the sources by `room_table`.

mod graph;
mod room_table;
mod rooms;

pub(super) use graph::allowed_dependencies;

use super::{Finding, Gate};
use crate::manifest;
use crate::tree::Tree;

pub struct Layering;

impl Gate for Layering {
    fn name(&self) -> &'static str {
        "layering"
    }

    fn holds(&self) -> &'static str {
        "crates depend downwards along the allowed graph, and rooms of a domain touch only what they may"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let crates = manifest::crates(tree)?;
        let mut found = graph::check(&crates);
        found.extend(rooms::check(tree, &crates)?);
        // A tree without crates is not a tree this gate can vouch for.
        if crates.is_empty() {
            found.push(Finding::new("crates", "no crate found"));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let manifest = |name: &str, dependencies: &[&str]| {
            let lines: Vec<String> =
                dependencies.iter().map(|name| format!("{name}.workspace = true\n")).collect();
            format!("[package]\nname = \"{name}\"\n[dependencies]\n{}", lines.concat())
        };
        let identity = "crates/domains/identity/src";
        let in_fleet = "crates/domains/fleet/src/service/nodes.rs";
        let in_workflow = "crates/domains/capacity/src/workflow/tasks.rs";
        let tree = FixtureTree::new(&[
            ("crates/base/kernel/Cargo.toml", &manifest("kernel", &["serde"])),
            ("crates/platform/pg/Cargo.toml", &manifest("pg", &["kernel"])),
            ("crates/platform/pg/src/lib.rs", "fn f() { sqlx::query(\"\"); }\n"),
            ("crates/platform/endpoint/Cargo.toml", &manifest("endpoint", &["kernel", "pg"])),
            ("crates/platform/bus/Cargo.toml", &manifest("bus", &["kernel", "pg", "endpoint"])),
            (
                "crates/domains/identity/Cargo.toml",
                &manifest("identity", &["kernel", "pg", "endpoint", "bus"]),
            ),
            ("crates/domains/fleet/Cargo.toml", &manifest("fleet", &["pg", "identity"])),
            ("crates/domains/capacity/Cargo.toml", &manifest("capacity", &["pg"])),
            (in_workflow, "use super::steps;\nuse crate::{Capacity, model::a, store::b};\n"),
            ("crates/domains/capacity/src/service/launch.rs", "use crate::workflow::tasks;\n"),
            ("crates/clients/sdk/Cargo.toml", &manifest("sdk", &[])),
            ("crates/clients/cli/Cargo.toml", &manifest("cli", &["sdk", "kernel"])),
            ("crates/server/gpuaasd/Cargo.toml", &manifest("gpuaasd", &["kernel", "pg", "identity"])),
            ("crates/dev/testkit/Cargo.toml", &manifest("testkit", &["gpuaasd", "pg", "sdk"])),
            ("crates/domains/identity/src/model/org.rs", "// async sqlx pg::Pool\npub fn decide() {}\n"),
            ("crates/domains/identity/src/store/org.rs", "async fn f(tx: pg::Tx) { sqlx::query!(\"\") }\n"),
            ("crates/domains/identity/src/http/org.rs", "async fn f(x: &AtomicU8) { x.store(1, O) }\n"),
            (
                "crates/domains/identity/src/service/org.rs",
                "use crate::store::org;\npub use crate::store::{org::{Filter, MOST}};\n",
            ),
            ("crates/domains/identity/src/issuer/store.rs", "fn f() { sqlx::query!(\"\") }\n"),
            (
                "crates/domains/identity/src/issuer/grants.rs",
                "use super::store;\nuse crate::{authn::Authn, model};\n",
            ),
            ("crates/domains/identity/src/api.rs", "pub use crate::{Identity, issuer::end, jobs::run};\n"),
            (
                in_fleet,
                "use identity::api::Org;\nuse identity::{api::{A, B}};\nuse crate::identity::model;\n",
            ),
        ]);
        let in_identity = move |room: &str| format!("{identity}/{room}");
        super::tests::Examples::good(tree)
            .bad("platform on a domain", "pg must not depend on identity", |tree| {
                tree.with("crates/platform/pg/Cargo.toml", manifest("pg", &["identity"]))
            })
            .bad("base on platform", "kernel must not depend on pg", |tree| {
                tree.with("crates/base/kernel/Cargo.toml", manifest("kernel", &["pg"]))
            })
            .bad("endpoint on bus", "endpoint must not depend on bus", |tree| {
                tree.with("crates/platform/endpoint/Cargo.toml", manifest("endpoint", &["bus"]))
            })
            .bad("domain against the graph", "identity must not depend on fleet", |tree| {
                tree.with("crates/domains/identity/Cargo.toml", manifest("identity", &["fleet"]))
            })
            .bad("CLI on the server", "cli must not depend on gpuaasd", |tree| {
                tree.with("crates/clients/cli/Cargo.toml", manifest("cli", &["gpuaasd"]))
            })
            .bad("CLI on the server, renamed", "cli must not depend on gpuaasd", |tree| {
                let text = "[package]\nname = \"cli\"\n[target.'cfg(unix)'.dependencies]\n\
                            other = { package = \"gpuaasd\", path = \"x\" }\n";
                tree.with("crates/clients/cli/Cargo.toml", text)
            })
            .bad("product on test tools", "pg must not depend on testkit", |tree| {
                tree.with("crates/platform/pg/Cargo.toml", manifest("pg", &["testkit"]))
            })
            .bad("crate nobody placed", "misc is not in the crate graph", |tree| {
                tree.with("crates/platform/misc/Cargo.toml", manifest("misc", &[]))
            })
            .bad("async in a model", "model/org.rs:1: ", |tree| {
                tree.with(&in_identity("model/org.rs"), "pub async fn decide() {}\n")
            })
            .bad("SQL in a model", "must not mention sqlx", |tree| {
                tree.with(&in_identity("model.rs"), "use sqlx::Type;\n")
            })
            .bad("database in a model", "must not use pg", |tree| {
                tree.with(&in_identity("model/org.rs"), "fn f(tx: &pg::Tx) {}\n")
            })
            .bad("query in a service", "service/org.rs:1: SQL belongs to store/", |tree| {
                tree.with(&in_identity("service/org.rs"), "fn f() { sqlx::query_as::<_, X>(\"\") }\n")
            })
            .bad("imported query in a service", "service/org.rs:1: SQL belongs to store/", |tree| {
                tree.with(&in_identity("service/org.rs"), "use sqlx::{PgPool, query};\n")
            })
            .bad("query in a part's service", "service.rs:1: SQL belongs to store/", |tree| {
                tree.with(&in_identity("issuer/service.rs"), "fn f() { sqlx::query!(\"\") }\n")
            })
            .bad("handler of a part on the store", "cx.rs:1: issuer/http must not use issuer/store", |tree| {
                tree.with(&in_identity("issuer/http/cx.rs"), "use super::super::store;\n")
            })
            .bad("query in the server", "main.rs:1: SQL belongs to store/", |tree| {
                tree.with("crates/server/gpuaasd/src/main.rs", "fn f() { sqlx::query!(\"\") }\n")
            })
            .bad("handler on the store", "http/org.rs:1: http must not use store", |tree| {
                tree.with(&in_identity("http/org.rs"), "use crate::store::org;\n")
            })
            .bad("handler on SQL", "http/org.rs:1: http must not mention sqlx", |tree| {
                tree.with(&in_identity("http/org.rs"), "fn f(e: sqlx::Error) {}\n")
            })
            .bad("store on a service", "store/org.rs:1: store must not use service", |tree| {
                tree.with(&in_identity("store/org.rs"), "use crate::{model::Org, service::org::Invite};\n")
            })
            .bad("store on the whole crate", "store/org.rs:1: store must not use root", |tree| {
                tree.with(&in_identity("store/org.rs"), "fn f(identity: &crate::Identity) {}\n")
            })
            .bad("job on the store", "jobs/run.rs:2: jobs must not use store", |tree| {
                tree.with(
                    &in_identity("jobs/run.rs"),
                    "fn f() {\n    super::super::store::org::forget()\n}\n",
                )
            })
            .bad("job on a handler", "jobs.rs:1: jobs must not use http", |tree| {
                tree.with(&in_identity("jobs.rs"), "use super::http::org;\n")
            })
            .bad("model on a store", "model/org.rs:1: model must not use store", |tree| {
                tree.with(&in_identity("model/org.rs"), "use super::super::store::Row;\n")
            })
            .bad("api on the store", "api.rs:1: api must not use store", |tree| {
                tree.with(&in_identity("api.rs"), "pub use crate::{model::Org, store::org};\n")
            })
            .bad("service that shows a function of the store", "org.rs:1: service must not show", |tree| {
                tree.with(&in_identity("service/org.rs"), "pub use crate::store::org::get as org_find;\n")
            })
            .bad("the same in a group", "must not show crate::store::org::get of the store", |tree| {
                tree.with(
                    &in_identity("service/org.rs"),
                    "pub use crate::{model::A, store::org::{Filter, get}};\n",
                )
            })
            .bad("the same by an import", "org.rs:2: service must not show org::get", |tree| {
                tree.with(&in_identity("service/org.rs"), "use crate::store::org;\npub use org::get;\n")
            })
            .bad("service that shows a module of the store", "must not show", |tree| {
                tree.with(&in_identity("service/org.rs"), "pub(crate) use super::super::store::org;\n")
            })
            .bad("service that shows all of a store", "must not show", |tree| {
                tree.with(&in_identity("service/org.rs"), "pub use crate::store::org::*;\n")
            })
            .bad("part that shows a function of its store", "must not show store::find", |tree| {
                tree.with(&in_identity("issuer/mod.rs"), "mod store;\npub use store::find;\n")
            })
            .bad("store, out of a module in the file", "jobs/run.rs:1: jobs must not use store", |tree| {
                tree.with(&in_identity("jobs/run.rs"), "mod inner { use super::super::super::store::org; }\n")
            })
            .bad("crate by another name", "org.rs:1: name the room", |tree| {
                tree.with(&in_identity("http/org.rs"), "use crate as all;\n")
            })
            .bad("workflow on a service", "tasks.rs:1: workflow must not use service", |tree| {
                tree.with(in_workflow, "use crate::{model::a, service::launch};\n")
            })
            .bad(
                "part against its direction",
                "verify.rs:1: authn/service must not use issuer/root",
                |tree| tree.with(&in_identity("authn/verify.rs"), "use crate::issuer::KeyRing;\n"),
            )
            .bad(
                "service on a part that may use it",
                "service/org.rs:1: service must not use issuer",
                |tree| tree.with(&in_identity("service/org.rs"), "use crate::issuer::Issuer;\n"),
            )
            .bad("unknown room", "helpers/text.rs: no room of identity", |tree| {
                tree.with(&in_identity("helpers/text.rs"), "pub fn trim() {}\n")
            })
            .bad("room of another domain", "workflow/org.rs: no room of identity", |tree| {
                tree.with(&in_identity("workflow/org.rs"), "pub fn run() {}\n")
            })
            .bad("unknown room in a part", "pages/home.rs: no room of identity", |tree| {
                tree.with(&in_identity("issuer/pages/home.rs"), "pub fn page() {}\n")
            })
            .bad("domain behind another's api", "nodes.rs:1: use identity::api", |tree| {
                tree.with(in_fleet, "use identity::store::Org;\n")
            })
            .bad("domain behind another's api, in a group", "nodes.rs:1: use identity::api", |tree| {
                tree.with(in_fleet, "use identity::{api::Org, service::x};\n")
            })
            .bad("whole domain imported", "nodes.rs:1: use identity::api", |tree| {
                tree.with(in_fleet, "use identity as id;\n")
            })
    }
}
