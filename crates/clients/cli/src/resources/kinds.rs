//! The table of kinds.

use super::Kind;

macro_rules! kinds {
    ($($name:ident = $noun:literal, $prefix:literal, $path:literal, [$($field:literal),*], $list:literal;)*) => {
        $(pub const $name: Kind = Kind {
            noun: $noun, prefix: $prefix, path: $path, names: &[$($field),*], list: concat!("gpuaas ", $list),
        };)*
        #[cfg(test)]
        const ALL: &[Kind] = &[$($name),*];
    };
}

kinds! {
    ORG = "organization", "org_", "/orgs", ["slug", "name"], "orgs list";
    PROJECT = "project", "proj_", "/orgs/{org}/projects", ["slug", "name"], "projects list";
    // People choose their names themselves, so one could be called by another's: an address is proven.
    MEMBER = "member", "user_", "/orgs/{org}/members", ["email"], "members list";
    PROJECT_MEMBER = "member", "user_", "/projects/{project}/members", ["email"], "projects members list";
    INVITATION = "invitation", "inv_", "/orgs/{org}/invitations", ["email"], "invitations list";
    RECEIVED_INVITATION = "invitation", "inv_", "/me/invitations", ["org_name"], "invitations received";
    SSH_KEY = "SSH key", "key_", "/me/ssh-keys", ["name", "fingerprint"], "ssh-keys list";
    SESSION = "session", "sess_", "/me/sessions", [], "auth sessions list";
    NOTIFICATION = "notification", "note_", "/me/notifications", [], "notifications list";
    SERVICE_ACCOUNT = "service account", "sa_", "/projects/{project}/service-accounts", ["name"],
        "service-accounts list";
    SERVICE_ACCOUNT_KEY = "key", "sak_", "/projects/{project}/service-accounts/{account}/keys", [],
        "service-accounts keys list";
    ALLOCATION = "allocation", "alloc_", "/projects/{project}/allocations", ["name"], "allocations list --all";
    TERMINAL_SESSION = "terminal session", "term_",
        "/projects/{project}/allocations/{allocation}/terminal-sessions", [], "allocations terminals list";
    GROUP = "group", "agrp_", "/projects/{project}/allocation-groups", ["name"], "groups list";
    WEBHOOK = "webhook", "hook_", "/orgs/{org}/webhooks", ["name"], "webhooks list";
    TOPUP = "top-up", "topup_", "/orgs/{org}/billing/topups", [], "billing topups list";
    PAYMENT = "payment", "pay_", "/orgs/{org}/billing/payments", [], "billing payments list";
    REFUND = "refund", "rfnd_", "/orgs/{org}/billing/refunds", [], "billing refunds list";
    DISPUTE = "dispute", "dsp_", "/orgs/{org}/billing/disputes", [], "billing disputes list";
    NODE = "node", "node_", "/platform/nodes", ["hostname"], "nodes list";
    POOL = "pool", "pool_", "/platform/pools", ["name"], "pools list";
    SLOT = "slot", "slot_", "/platform/slots", [], "slots list";
    NODE_SLOT = "slot", "slot_", "/platform/nodes/{node}/slots", [], "nodes slots";
    TASK = "task", "task_", "/platform/tasks", [], "tasks list";
    FINDING = "finding", "find_", "/platform/findings", [], "findings list";
    AUTHORITY = "authority", "ca_", "/platform/trust/authorities", [], "trust authorities list";
    DEAD_LETTER = "dead letter", "dl_", "/platform/dead-letters", [], "ops dlq list";
    SAGA_RUN = "workflow run", "run_", "/platform/sagas", [], "ops sagas list";
    DISCREPANCY = "discrepancy", "disc_", "/platform/discrepancies", [], "ops discrepancies list";
    DIFFERENCE = "difference", "disc_", "/platform/restore/differences", [], "ops restore differences";
    // Across organizations nobody is called by a name that they choose themselves: roles and money are given here.
    PLATFORM_ORG = "organization", "org_", "/platform/orgs", ["slug"], "platform orgs list";
    PLATFORM_USER = "user", "user_", "/platform/users", ["email"], "platform users list";
    ACCOUNT = "account", "acct_", "/platform/accounts", ["email"], "platform accounts list";
    PLATFORM_ALLOCATION = "allocation", "alloc_", "/platform/allocations", [], "platform allocations list";
    ADJUSTMENT = "adjustment", "adj_", "/platform/billing/adjustments", [], "platform billing adjustments list";
    PLATFORM_PAYMENT = "payment", "pay_", "/platform/billing/payments", [], "platform billing payments list";
    PLATFORM_REFUND = "refund", "rfnd_", "/platform/billing/refunds", [], "platform billing refunds list";
    PLATFORM_DISPUTE = "dispute", "dsp_", "/platform/billing/disputes", [], "platform billing disputes list";
    BILLING_FINDING = "finding", "bfnd_", "/platform/billing/findings", [], "platform billing findings list";
    PAYMENT_MESSAGE = "message", "evt_", "/platform/billing/webhook-events", [],
        "platform billing webhook-events list";
    SENSITIVE_CHANGE = "change", "chg_", "/platform/sensitive-changes", [], "platform changes list";
    DELIVERY = "delivery", "dlv_", "/platform/deliveries", [], "platform deliveries list";
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../openapi/public.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(name) => &document["components"]["schemas"][name.rsplit('/').next().unwrap()],
            None => schema,
        }
    }

    /// The list at the path with any names in its braces.
    fn operation<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
        let plain = |text: &str| {
            text.split('/')
                .map(|part| if part.starts_with('{') { "{}" } else { part })
                .collect::<Vec<_>>()
                .join("/")
        };
        let wanted = format!("/api/v1{}", plain(path));
        let paths = document["paths"].as_object()?;
        paths.iter().find(|(path, _)| plain(path) == wanted).map(|(_, item)| &item["get"])
    }

    #[test]
    fn the_paths_the_prefixes_and_the_fields_are_those_of_the_contract() {
        let document = document();
        for kind in ALL {
            let operation =
                operation(&document, kind.path).unwrap_or_else(|| panic!("no list at {}", kind.path));
            let page =
                resolved(&document, &operation["responses"]["200"]["content"]["application/json"]["schema"]);
            let item = resolved(&document, &page["properties"]["items"]["items"]);
            let id = resolved(&document, &item["properties"]["id"]);
            // An id of somebody may be wrapped in `allOf`.
            let id = if id["allOf"].is_array() { resolved(&document, &id["allOf"][0]) } else { id };
            let pattern = id["pattern"].as_str().unwrap_or_default();
            assert!(pattern.contains(kind.prefix), "{}: the pattern of its id is {pattern:?}", kind.noun);
            for field in kind.names {
                assert!(!item["properties"][*field].is_null(), "{} has no {field}", kind.noun);
            }
        }
    }

    #[test]
    fn the_list_of_each_kind_is_a_command() {
        for kind in ALL {
            let words = kind.list.split(' ').chain(["x"]);
            let plain = crate::args::Args::try_parse_from(kind.list.split(' ')).is_ok();
            assert!(plain || crate::args::Args::try_parse_from(words).is_ok(), "{}", kind.list);
        }
    }
}
