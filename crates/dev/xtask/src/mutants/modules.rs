//! The modules that decide, and what each of them needs to be built alone.

/// A part of a crate that is built and tested alone.
pub struct Module {
    /// Not that of a crate: both are packages of one build.
    pub name: &'static str,
    /// The crate that it is a part of.
    pub dir: &'static str,
    /// The root module of the part; nothing: the crate's own `lib.rs`.
    pub root: Option<&'static str>,
    /// Files and folders below `src` that are copied.
    pub copied: &'static [&'static str],
    /// Files of one folder in the crate's `tests` that need nothing but the part and each other.
    pub tests: &'static [&'static str],
    /// Files below `src` whose mutants are tested.
    pub mutated: &'static [&'static str],
    /// How many cases each property test tries.
    pub property_cases: u32,
}

/// A mutant that only one case in hundreds notices needs an example of its own, not a lucky run.
const FEW_CASES: u32 = 64;

pub const MODULES: &[Module] = &[
    Module {
        name: "saga-decide",
        dir: "crates/platform/saga",
        root: Some("pub mod decide; pub mod failure; pub mod spec;"),
        copied: &["decide.rs", "decide_bounds_tests.rs", "decide_tests.rs", "failure.rs", "spec.rs"],
        tests: &[],
        mutated: &["decide.rs", "failure.rs", "spec.rs"],
        property_cases: FEW_CASES,
    },
    Module {
        name: "billing-model",
        dir: "crates/domains/billing",
        root: Some("pub mod model;"),
        copied: &["model"],
        tests: &[],
        mutated: &[
            "model/account.rs",
            "model/adjustment.rs",
            "model/balance.rs",
            "model/budget.rs",
            "model/budget_resource.rs",
            "model/fault_credit.rs",
            "model/launch_funds.rs",
            "model/ledger_item.rs",
            "model/meter.rs",
            "model/particulars.rs",
            "model/rating.rs",
            "model/spend_cap.rs",
        ],
        property_cases: FEW_CASES,
    },
    Module {
        name: "placement",
        dir: "crates/domains/capacity",
        root: Some("pub mod model { pub mod placement; }"),
        copied: &["model/placement"],
        tests: &["it/placement/decisions.rs", "it/placement/fleets.rs", "it/placement/oracle.rs"],
        mutated: &["model/placement/*.rs"],
        // Random fleets against an oracle: most of them have no room at all.
        property_cases: 1_500,
    },
    // Roles and permissions, the ledger and the audit chain as they are verified.
    Module {
        name: "kernel-verification",
        dir: "crates/base/kernel",
        root: None,
        copied: &["."],
        tests: &[],
        mutated: &["authz.rs", "ledger/*.rs", "audit_chain.rs"],
        property_cases: FEW_CASES,
    },
    Module {
        name: "lifecycle-tables",
        dir: "crates/base/lifecycle",
        root: None,
        copied: &["."],
        tests: &[],
        mutated: &["*.rs"],
        property_cases: FEW_CASES,
    },
    // Scope and permission of a request, its idempotency key.
    Module {
        name: "endpoint-authorize",
        dir: "crates/platform/endpoint",
        root: None,
        copied: &["."],
        tests: &[],
        mutated: &["authorize.rs", "missing_role.rs", "request.rs"],
        property_cases: FEW_CASES,
    },
    // What a token says, and what a grant is given for.
    Module {
        name: "identity-tokens",
        dir: "crates/domains/identity",
        root: Some("pub mod authn { pub mod model; } pub mod issuer { pub mod model; }"),
        copied: &["authn/model.rs", "issuer/model.rs", "issuer/model_tests.rs"],
        tests: &[],
        mutated: &["authn/model.rs", "issuer/model.rs"],
        property_cases: FEW_CASES,
    },
    Module {
        name: "identity-roles",
        dir: "crates/domains/identity",
        root: Some("pub mod model;"),
        copied: &["model"],
        tests: &[],
        mutated: &[
            "model/invitation.rs",
            "model/invitation_link.rs",
            "model/membership.rs",
            "model/role.rs",
            "model/sensitive_change.rs",
            "model/service_account.rs",
        ],
        property_cases: FEW_CASES,
    },
    // Join tokens and certificates of nodes.
    Module {
        name: "fleet-tokens",
        dir: "crates/domains/fleet",
        root: Some("pub mod model;"),
        copied: &["model"],
        tests: &[],
        mutated: &["model/certificate.rs", "model/join_warning.rs", "model/token.rs"],
        property_cases: FEW_CASES,
    },
    // Who gets a page, and what it says of an error.
    Module {
        name: "pages-navigation",
        dir: "crates/platform/pages",
        root: None,
        copied: &["."],
        tests: &[],
        mutated: &["navigation.rs"],
        property_cases: FEW_CASES,
    },
    // Certificates that peers present, and sealed values.
    Module {
        name: "trust-peer",
        dir: "crates/platform/trust",
        root: None,
        copied: &["."],
        tests: &["it/kit.rs", "it/peer.rs", "it/tls.rs"],
        mutated: &["peer/*.rs", "seal.rs"],
        property_cases: FEW_CASES,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::tree::Tree;

    #[test]
    fn every_module_names_files_that_exist_and_has_a_name_of_its_own() {
        let tree = Tree::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."));
        let names: BTreeSet<&str> = MODULES.iter().map(|module| module.name).collect();
        assert_eq!(names.len(), MODULES.len());
        for module in MODULES {
            assert!(!module.dir.ends_with(&format!("/{}", module.name)), "{}", module.name);
            for file in module.tests {
                assert!(tree.exists(&format!("{}/tests/{file}", module.dir)), "{}: {file}", module.name);
            }
            for file in module.copied.iter().chain(module.mutated).map(|file| file.trim_end_matches("*.rs")) {
                assert!(tree.exists(&format!("{}/src/{file}", module.dir)), "{}: {file}", module.name);
            }
        }
    }
}
