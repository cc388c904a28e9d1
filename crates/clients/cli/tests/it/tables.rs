//! What every list looks like at 80, 120 and 200 columns. Read what changed, and accept it with `UPDATE_GOLDEN=1`.

use std::fmt::Write as _;

use crate::{kit::Gpuaas, sample::Sample};

/// Every command with `--watch`; a unit test of the program compares.
const LISTS: &[&str] = &[
    "agents list",
    "allocations grants list train-1",
    "allocations list",
    "allocations terminals list train-1",
    "audit list",
    "auth sessions list",
    "billing balance",
    "billing budgets list",
    "billing disputes list",
    "billing ledger list",
    "billing payments list",
    "billing records",
    "billing refunds list",
    "billing statements list",
    "billing topups list",
    "billing usage",
    "catalog",
    "findings list",
    "groups list",
    "health rules list",
    "invitations list",
    "invitations received",
    "ledger list",
    "ls",
    "members list",
    "nodes certificates gpu-01",
    "nodes history gpu-01",
    "nodes list",
    "nodes slots gpu-01",
    "nodes validations gpu-01",
    "notifications list",
    "ops discrepancies list",
    "ops dlq list",
    "ops outbox",
    "ops restore differences",
    "ops sagas list",
    "orgs list",
    "platform accounts list",
    "platform allocations list",
    "platform billing adjustments list",
    "platform billing disputes list",
    "platform billing findings list",
    "platform billing payments list",
    "platform billing reconciliations list",
    "platform billing refunds list",
    "platform billing webhook-events list",
    "platform changes list",
    "platform deliveries list",
    "platform orgs list",
    "platform users list",
    "policy definitions",
    "policy list",
    "pools list",
    "projects list",
    "projects members list",
    "recordings list train-1",
    "regions list",
    "service-accounts keys list Web",
    "service-accounts list",
    "skus list",
    "skus prices list h200",
    "slots list",
    "ssh-keys list",
    "status",
    "ops status",
    "tasks list",
    "trust authorities list",
    "trust signers list",
    "webhooks deliveries Web",
    "webhooks list",
];

/// Pages of one thing show the exact time beside the relative one.
fn without_times(text: &str) -> String {
    let is_time =
        |word: &str| word.len() == 20 && word.ends_with('Z') && word.as_bytes().get(10) == Some(&b'T');
    let word = |word: &str| if is_time(word) { "2026-01-02T03:04:05Z".to_owned() } else { word.to_owned() };
    text.split_inclusive('\n').map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn every_list_fits_80_120_and_200_columns() {
    let server = Sample::serve().await;
    let id = format!("proj_{}", "0".repeat(32));
    for width in [80_usize, 120, 200] {
        let person = Gpuaas::new(&server)
            .env("GPUAAS_TOKEN", "sample")
            .env("GPUAAS_ORG", &id.replace("proj_", "org_"))
            .env("GPUAAS_PROJECT", &id)
            .env("COLUMNS", &width.to_string());
        let mut shown = String::new();
        for command in LISTS {
            let named = command
                .replace("train-1", &id.replace("proj_", "alloc_"))
                .replace("gpu-01", &id.replace("proj_", "node_"))
                .replace(
                    " Web",
                    &format!(
                        " {}",
                        id.replace("proj_", if command.starts_with("webhooks") { "hook_" } else { "sa_" })
                    ),
                );
            let words: Vec<&str> = named.split(' ').collect();
            let out = without_times(&person.run(&words).await.ok());
            for line in out.lines() {
                assert!(line.chars().count() <= width, "{command} at {width}: {line}");
                assert!(!line.contains(['{', '}']), "JSON in {command}: {line}");
            }
            writeln!(shown, "$ gpuaas {command}\n{out}").unwrap();
        }
        let path = format!("{}/tests/it/goldens/tables-{width}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(expected, shown, "{path} is not as committed; UPDATE_GOLDEN=1 writes it");
    }
}
