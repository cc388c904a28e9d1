//! The lines. The integration test includes this file.

/// A command, and lines that show its use. `$NAME` stands for something that only the test knows.
pub const EXAMPLES: &[(&str, &[&str])] = &[
    ("auth whoami", &["gpuaas auth whoami"]),
    ("platform orgs create", &["gpuaas platform orgs create acme --name \"Acme Labs\""]),
    ("orgs list", &["gpuaas orgs list"]),
    ("projects create", &["gpuaas projects create training --org acme"]),
    ("context use", &["gpuaas context use --org acme --project training"]),
    ("projects list", &["gpuaas projects list"]),
    ("context show", &["gpuaas context show"]),
    ("ssh-keys create", &["gpuaas ssh-keys create ~/.ssh/id_ed25519.pub --name laptop"]),
    ("ssh-keys list", &["gpuaas ssh-keys list"]),
    (
        "platform billing adjustments create",
        &[
            "gpuaas platform billing adjustments create --org acme --kind promo --amount 20.00 --reason \"trial credit\"",
        ],
    ),
    ("billing balance", &["gpuaas billing balance", "gpuaas billing balance -o json"]),
    ("nodes list", &["gpuaas nodes list", "gpuaas nodes list --state active --wide"]),
    ("nodes show", &["gpuaas nodes show $NODE"]),
    ("nodes logs", &["gpuaas nodes logs $NODE --lines 20"]),
    ("slots list", &["gpuaas slots list --node $NODE"]),
    ("tasks list", &["gpuaas tasks list --node $NODE --limit 5"]),
    ("catalog", &["gpuaas catalog"]),
    ("allocations explain", &["gpuaas allocations explain $SKU --gpus 1"]),
    ("launch", &["gpuaas launch $SKU --gpus 1 --name train-1 --wait"]),
    ("ls", &["gpuaas ls", "gpuaas ls --all -o csv"]),
    ("status", &["gpuaas status"]),
    ("allocations show", &["gpuaas allocations show train-1"]),
    ("allocations events", &["gpuaas allocations events train-1"]),
    ("ssh-config", &["gpuaas ssh-config --print"]),
    ("allocations list", &["gpuaas allocations list --state active"]),
    (
        "invitations create",
        &["gpuaas invitations create ada@example.org --role member --project training --project-role member"],
    ),
    ("invitations list", &["gpuaas invitations list --state pending"]),
    ("invitations revoke", &["gpuaas invitations revoke ada@example.org"]),
    ("members list", &["gpuaas members list"]),
    ("service-accounts create", &["gpuaas service-accounts create ci"]),
    ("service-accounts spend-cap set", &["gpuaas service-accounts spend-cap set ci --amount 100.00"]),
    ("service-accounts keys create", &["gpuaas service-accounts keys create ci --expires-in-days 90"]),
    ("policy explain", &["gpuaas policy explain quota.gpus_per_project --scope project"]),
    ("policy set", &["gpuaas policy set quota.gpus_per_project 4 --scope project"]),
    ("billing budgets set", &["gpuaas billing budgets set --amount 500.00 --threshold 80 --action notify"]),
    ("billing usage", &["gpuaas billing usage --by project --by sku --per day"]),
    ("ledger list", &["gpuaas ledger list --limit 20"]),
    ("ledger export", &["gpuaas ledger export --file ledger.ndjson"]),
    ("ledger verify", &["gpuaas ledger verify", "gpuaas ledger verify --file ledger.ndjson"]),
    ("audit list", &["gpuaas audit list --limit 20"]),
    ("notifications list", &["gpuaas notifications list --unread"]),
    ("nodes cordon", &["gpuaas nodes cordon $NODE --reason \"fan replacement\""]),
    ("nodes uncordon", &["gpuaas nodes uncordon $NODE"]),
    ("ops status", &["gpuaas ops status"]),
    ("findings list", &["gpuaas findings list --state open"]),
    ("api", &["gpuaas api GET /me"]),
    ("rm", &["gpuaas rm train-1 --wait --yes"]),
    ("doctor", &["gpuaas doctor"]),
];

/// As a shell splits a line; quotes are the only thing that examples and documents use.
#[cfg(test)]
pub fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let split = parts.flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    split.collect()
}
