//! The public API and the node contract only grow: nothing that a client or a node of the last release relies on is
//! gone.

use super::{Finding, Gate};
use crate::breaking;
use crate::breaking::waivers::Waivers;
use crate::release::CONTRACTS;
use crate::tree::Tree;

const WAIVERS: &str = "openapi/waivers.toml";

pub struct OpenapiBreaking;

impl Gate for OpenapiBreaking {
    fn name(&self) -> &'static str {
        "openapi-breaking"
    }

    fn holds(&self) -> &'static str {
        "openapi/public.json and openapi/node.json break nobody who relies on their released states"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let waivers =
            if tree.exists(WAIVERS) { Waivers::parse(&tree.toml(WAIVERS)?)? } else { Waivers::default() };
        let mut found = Vec::new();
        let mut all = Vec::new();
        for (document, released) in CONTRACTS {
            if !tree.exists(released) {
                let message = "there is no released document to compare with. When a release is made, and for the \
                               first time now, run: cargo xtask release-contract";
                found.push(Finding::new(released, message));
                continue;
            }
            let breaks = breaking::compare(&tree.json(released)?, &tree.json(document)?);
            all.extend(breaks.iter().cloned());
            let (kept, _) = waivers.apply(breaks);
            found.extend(kept.into_iter().map(|broken| Finding::new(document, broken.to_string())));
        }
        let (_, unused) = waivers.apply(all);
        found.extend(unused.into_iter().map(|waiver| {
            Finding::new(
                WAIVERS,
                format!("waiver for {:?} at {} waives nothing: remove it", waiver.value, waiver.at),
            )
        }));
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::generate::{NODE_OPENAPI, PUBLIC_OPENAPI};
        use crate::release::{RELEASED, RELEASED_NODE};
        use crate::tree::FixtureTree;
        use serde_json::json;
        let released = crate::sdk::example::openapi();
        let mut grown = released.clone();
        let thing = "/components/schemas/Thing/properties";
        grown.pointer_mut(thing).unwrap()["name"] = json!({"type": "string"});
        let mut lost = released.clone();
        lost["paths"] = json!({});
        let with_states = |states: &[&str]| {
            let mut document = released.clone();
            document.pointer_mut(thing).unwrap()["state"] = json!({"type": "string", "enum": states});
            document.to_string()
        };
        let (two_states, three_states) = (with_states(&["a", "b"]), with_states(&["a", "b", "c"]));
        let waiver =
            "[[waiver]]\nat = \"#/components/schemas/Thing/state\"\nvalue = \"c\"\nreason = \"agreed\"\n";
        let mut node = released.clone();
        node["x-gpuaas-tasks"] =
            json!({ "a.do": { "input": { "type": "object" }, "output": { "type": "object" } } });
        let mut without_task = node.clone();
        without_task["x-gpuaas-tasks"] = json!({});
        let tree = FixtureTree::new(&[
            (RELEASED, &released.to_string()),
            (PUBLIC_OPENAPI, &grown.to_string()),
            (RELEASED_NODE, &node.to_string()),
            (NODE_OPENAPI, &node.to_string()),
        ]);
        super::tests::Examples::good(tree)
            .bad("path removed", "/things/{id}", |tree| tree.with(PUBLIC_OPENAPI, lost.to_string()))
            .bad("route of nodes removed", "/things/{id}", |tree| tree.with(NODE_OPENAPI, lost.to_string()))
            .bad("kind of work removed", "a.do", |tree| tree.with(NODE_OPENAPI, without_task.to_string()))
            .bad("no baseline", "cargo xtask release-contract", |tree| tree.without(RELEASED))
            .bad("no baseline for nodes", "cargo xtask release-contract", |tree| tree.without(RELEASED_NODE))
            .bad("no document", "read openapi/public.json", |tree| tree.without(PUBLIC_OPENAPI))
            .bad("enum growth without a waiver", "\"c\"", |tree| {
                tree.with(RELEASED, &*two_states).with(PUBLIC_OPENAPI, &*three_states)
            })
            .bad("waiver that waives nothing", "waives nothing", |tree| tree.with(WAIVERS, waiver))
            .bad("waiver without a reason", "reason", |tree| {
                tree.with(WAIVERS, "[[waiver]]\nat = \"x\"\nvalue = \"c\"\n")
            })
    }
}
