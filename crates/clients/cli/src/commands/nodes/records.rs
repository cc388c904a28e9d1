//! Records of a node: certificates, probe results, slots, topology, history.

use sdk::{Client, types};
use serde_json::Value;

use super::{Reasoned, Records};
use crate::{
    app::App,
    args::Confirm,
    commands::{on_platform, slots::COLUMNS as SLOTS},
    failure::Result,
    output::Columns,
    resolve,
};

const CERTIFICATES: Columns = &[
    ("SERIAL", "serial"),
    ("STATE", "state"),
    ("UNTIL", "not_after"),
    ("FROM", "not_before"),
    ("REVOKED", "revoked_at"),
    ("REASON", "reason"),
    ("AUTHORITY", "authority_id"),
];
const VALIDATIONS: Columns =
    &[("AT", "created_at"), ("PROFILE", "profile"), ("PASSED", "passed"), ("ID", "id"), ("TASK", "task_id")];
const HISTORY: Columns = &[
    ("AT", "at"),
    ("EVENT", "event"),
    ("FROM", "from_state"),
    ("TO", "to_state"),
    ("REASON", "reason"),
    ("BY", "actor_kind"),
];

pub async fn certificates(app: &App, client: &Client, records: Records) -> Result {
    let node = resolve::node(client, &records.node).await?;
    let list: Vec<types::NodeCertificate> =
        pages!(records.limit.get(), |page| client.node_certificate_list(&node, page.cursor(), page.size()))?;
    app.out.list(&list, CERTIFICATES)
}

pub async fn revoke(
    app: &App,
    client: &Client,
    reasoned: Reasoned,
    serial: Option<String>,
    confirm: &Confirm,
) -> Result {
    let body = types::CertificateRevoke { reason: reasoned.reason.clone(), serial };
    let node = resolve::node(client, &reasoned.node).await?;
    app.confirm(
        confirm,
        &format!(
            "Revoke the certificates of {}: it cannot connect until it is repaired with a repair token",
            reasoned.node
        ),
    )?;
    let revoked = send!(client.node_certificate_revoke(&node, &body)).revoked;
    app.out.list(&revoked, CERTIFICATES)
}

pub async fn validations(app: &App, client: &Client, records: Records) -> Result {
    let node = resolve::node(client, &records.node).await?;
    let list: Vec<types::NodeValidation> =
        pages!(records.limit.get(), |page| client.node_validation_list(&node, page.cursor(), page.size()))?;
    app.out.list(&list, VALIDATIONS)
}

pub async fn slots(app: &App, client: &Client, records: Records) -> Result {
    let node = resolve::node(client, &records.node).await?;
    let list: Vec<types::NodeSlot> =
        pages!(records.limit.get(), |page| client.node_slot_list(&node, page.cursor(), page.size()))?;
    on_platform::list(app, client, &list, SLOTS).await
}

pub async fn history(app: &App, client: &Client, records: Records) -> Result {
    let node = resolve::node(client, &records.node).await?;
    let list: Vec<types::NodeHistoryEntry> =
        pages!(records.limit.get(), |page| client.node_history(&node, page.cursor(), page.size()))?;
    app.out.list(&list, HISTORY)
}

pub async fn topology(app: &App, client: &Client, node: &str) -> Result {
    let node = resolve::node(client, node).await?;
    let found = send!(client.node_topology(&node));
    let lines = describe(&found.topology);
    let seen = [("discovered_at", found.discovered_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))];
    app.out.page(&found, &[&seen[..], &lines].concat(), "")
}

/// The report of an agent, which may be older or newer than this program: missing fields are not shown.
fn describe(topology: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let each = |list: &str, fields: &[&str]| -> String {
        let line = |item: &Value| fields.iter().map(|name| text(&item[*name])).collect::<Vec<_>>().join("  ");
        topology[list].as_array().into_iter().flatten().map(line).collect::<Vec<_>>().join("\n")
    };
    let slot = |slot: &Value| {
        let blockers = slot["blockers"].as_array().into_iter().flatten();
        let blockers: Vec<String> = blockers.map(|blocker| text(&blocker["code"])).collect();
        let ready = if blockers.is_empty() { "ready".to_owned() } else { blockers.join(", ") };
        let parts = ["slot_index", "kind", "model", "pci_address", "nvme_device", "fabric_vf"];
        format!("{}  {ready}", parts.map(|name| text(&slot[name])).join("  "))
    };
    let slots = topology["candidates"].as_array().into_iter().flatten().map(slot).collect::<Vec<_>>();
    vec![
        ("hostname", text(&topology["hostname"])),
        ("kernel", text(&topology["kernel"]["release"])),
        ("iommu", text(&topology["kernel"]["iommu_enabled"])),
        ("cpus", text(&topology["cpus"])),
        ("memory_mib", text(&topology["memory_mib"])),
        ("gpus", each("gpus", &["pci_address", "model", "numa_node", "iommu_group", "driver"])),
        ("block_devices", each("block_devices", &["name", "size_bytes", "numa_node", "in_use"])),
        ("nics", each("nics", &["pci_address", "interface", "fabric", "vfs_total"])),
        ("slots", slots.join("\n")),
        ("blockers", each("blockers", &["code", "subject", "message"])),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_topology_is_printed_by_line_and_a_blocked_slot_with_its_reason() {
        let lines = describe(&json!({
            "hostname": "gpu-01",
            "candidates": [
                { "slot_index": 0, "kind": "gpu", "model": "H200", "blockers": [] },
                { "slot_index": 1, "kind": "gpu", "model": "H200", "blockers": [{ "code": "no_nvme" }] },
            ],
        }));
        let slots = &lines.iter().find(|(name, _)| *name == "slots").unwrap().1;
        assert_eq!(slots, "0  gpu  H200  -  -  -  ready\n1  gpu  H200  -  -  -  no_nvme");
    }
}
