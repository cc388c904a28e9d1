//! One node, for people: its state, its blockers, and the next steps.

use chrono::{DateTime, Utc};
use sdk::{
    Client,
    types::{NodeDetail, NodeState as State, OnboardingState as Onboarding},
};

use super::occupants;
use crate::{app::App, failure::Result, output::relative, resolve};

pub async fn show(app: &App, client: &Client, node: &str) -> Result {
    let node = send!(client.node_get(&resolve::node(client, node).await?));
    let mut pool = None;
    if let Some(id) = node.pool_id.as_ref().filter(|_| app.out.is_table()) {
        pool = Some(send!(client.pool_get(id)).name.to_string());
    }
    let steps: String = next_steps(&node).iter().map(|step| format!("  {step}\n")).collect();
    let below = if steps.is_empty() { steps } else { format!("\nNext:\n{steps}") };
    app.out.page(&node, &lines(&node, pool, app.ambient.now()), &below)
}

fn joined<T>(items: impl IntoIterator<Item = T>, line: impl Fn(T) -> String, between: &str) -> String {
    items.into_iter().map(line).collect::<Vec<_>>().join(between)
}

fn lines(node: &NodeDetail, pool: Option<String>, now: DateTime<Utc>) -> Vec<(&'static str, String)> {
    let since = |text: &str, at| {
        let reason = if text.is_empty() { String::new() } else { format!(": {text}") };
        format!("since {}{reason}", relative(now, at).trim_end_matches(" ago"))
    };
    let mut labels: Vec<String> =
        node.labels.iter().map(|(key, value)| format!("{key}={}", value.as_str())).collect();
    labels.sort();
    let contact = node.contact.as_ref();
    let contact_line =
        |line: &dyn Fn(&sdk::types::NodeContact) -> String| contact.map(line).unwrap_or_default();
    let onboarding = node.onboarding.as_ref().map(|onboarding| {
        let detail =
            if onboarding.detail.is_empty() { String::new() } else { format!(": {}", onboarding.detail) };
        format!("{}{detail}", onboarding.state)
    });
    vec![
        ("id", node.id.to_string()),
        ("hostname", node.hostname.clone()),
        ("simulated", if node.simulated { "yes".to_owned() } else { String::new() }),
        ("state", format!("{} {}", node.state, since(&node.state_reason, node.state_changed_at))),
        ("cordoned", node.cordon_reason.clone().unwrap_or_default()),
        ("onboarding", onboarding.unwrap_or_default()),
        ("region", node.region.clone()),
        ("pool", pool.or_else(|| node.pool_id.as_ref().map(|id| id.as_str().to_owned())).unwrap_or_default()),
        ("labels", labels.join(", ")),
        ("products", node.sku_eligibility.join(", ")),
        ("serves", node.serves.to_string()),
        ("slots", joined(&node.slots, |slot| format!("{} {}", slot.count, slot.state), ", ")),
        (
            "contact",
            match contact {
                Some(contact) => {
                    format!("{}, last seen {}", node.contact_state, relative(now, contact.last_seen_at))
                }
                None => node.contact_state.to_string(),
            },
        ),
        (
            "agent",
            contact_line(&|contact| format!("{} (contract {})", contact.agent_version, contact.contract)),
        ),
        (
            "certificate",
            contact_line(&|contact| {
                contact
                    .certificate_expires_at
                    .map(|at| format!("expires {}", relative(now, at)))
                    .unwrap_or_default()
            }),
        ),
        ("clock", contact_line(&|contact| format!("offset {} ms", contact.clock_offset_ms))),
        ("trust", contact_line(&|contact| format!("keyset {}", contact.keyset_serial))),
        ("findings", format!("{} open", node.open_findings)),
        ("tasks", format!("{} open", node.open_tasks)),
        ("allocations", occupants::allocations(&node.occupants, now).join("\n")),
        ("blockers", occupants::blockers(&node.blockers).join("\n")),
    ]
}

/// The next steps for an operator, as commands.
fn next_steps(node: &NodeDetail) -> Vec<String> {
    let name = &node.hostname;
    let step = |command: &str, why: &str| format!("{command}  # {why}");
    let mut steps = Vec::new();
    if node.open_findings > 0 {
        steps.push(step(&format!("gpuaas findings list --node {name}"), "list its health findings"));
    }
    let onboarding = node.onboarding.as_ref().map(|onboarding| onboarding.state);
    match node.state {
        State::BootstrapIssued => {
            steps.push(step(
                &format!("gpuaas nodes bootstrap-token {name}"),
                "if the first token has expired",
            ));
            return steps;
        }
        State::Offline => {
            steps.push(step(
                &format!("gpuaas nodes logs {name}"),
                "read its last log lines, then check the machine",
            ));
            steps.push(step(&format!("gpuaas nodes repair-token {name}"), "if its certificate has expired"));
        }
        State::Quarantined => {
            steps.push(step(&format!("gpuaas nodes history {name}"), "see why it was quarantined"));
            if onboarding == Some(Onboarding::Done) {
                steps.push(step(
                    &format!("gpuaas nodes release {name} --reason …"),
                    "put it back into service",
                ));
            }
        }
        State::Draining => {
            steps.push(step(
                &format!("gpuaas nodes retire {name} --reason …"),
                "remove it from service permanently",
            ));
            steps.push(step(&format!("gpuaas nodes undrain {name} --reason …"), "put it back into service"));
        }
        State::Retired => {
            steps.push(step(&format!("gpuaas nodes delete {name} --reason …"), "delete it from the fleet"));
        }
        State::Enrolling | State::Active => {}
        State::Removing | State::Deleted => return steps,
    }
    if node.cordon_reason.is_some() {
        steps.push(step(&format!("gpuaas nodes uncordon {name}"), "allow new placements"));
    }
    match onboarding {
        Some(Onboarding::AwaitingApproval) => {
            steps.push(step(&format!("gpuaas nodes slots {name}"), "list the discovered slots"));
            let approve = format!("gpuaas nodes approve-slots {name} --all-ready");
            steps.push(step(&approve, "probe the node, then sell its slots"));
        }
        Some(Onboarding::Failed) => {
            let validate = format!("gpuaas nodes validate {name} --profile onboarding --wait");
            steps.push(step(&format!("gpuaas nodes discover {name} --wait"), "repeat the discovery"));
            steps.push(step(&validate, "repeat the probe"));
        }
        Some(Onboarding::WaitingForAgent | Onboarding::Discovering | Onboarding::Validating) => {
            steps.push(step(&format!("gpuaas tasks list --node {name}"), "list its tasks"));
        }
        Some(Onboarding::Done) | None => {}
    }
    steps
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;

    const AT: &str = "2026-01-02T03:04:05Z";

    fn node(state: &str, onboarding: &str) -> NodeDetail {
        let id = "node_0193b3a0000070008000000000000001";
        serde_json::from_value(json!({
            "id": id, "hostname": "gpu-01", "region": "eu", "labels": { "b": "2", "a": "1" },
            "sku_eligibility": [], "serves": "any", "simulated": false, "state": state, "state_reason": "as it should be",
            "state_changed_at": AT, "desired_version": 0, "version": 1, "created_at": AT, "updated_at": AT,
            "contact_state": "never", "slots": [{ "state": "discovered", "count": 8 }], "blockers": [], "occupants": { "total": 0, "items": [] },
            "onboarding": { "node_id": id, "state": onboarding, "detail": "", "version": 1, "created_at": AT,
                "updated_at": AT },
            "open_findings": 0, "open_tasks": 0,
        }))
        .unwrap()
    }

    #[test]
    fn the_next_step_follows_from_where_the_node_stands() {
        let first = |state, onboarding| next_steps(&node(state, onboarding)).concat();
        assert!(
            first("bootstrap_issued", "waiting_for_agent")
                .starts_with("gpuaas nodes bootstrap-token gpu-01 ")
        );
        assert!(
            first("enrolling", "awaiting_approval")
                .contains("gpuaas nodes approve-slots gpu-01 --all-ready ")
        );
        assert!(first("quarantined", "failed").contains("validate gpu-01"));
        assert!(!first("quarantined", "failed").contains("release"), "it never proved that it is fit");
        assert!(first("quarantined", "done").contains("gpuaas nodes release gpu-01 "));
        assert!(first("draining", "done").contains("gpuaas nodes undrain gpu-01 "));
        assert_eq!(first("active", "done"), "");
        assert_eq!(first("deleted", "awaiting_approval"), "");
    }

    #[test]
    fn every_step_is_a_command_that_exists() {
        let states =
            ["bootstrap_issued", "enrolling", "active", "offline", "quarantined", "draining", "retired"];
        let stages =
            ["waiting_for_agent", "discovering", "awaiting_approval", "validating", "done", "failed"];
        for (state, stage) in states.iter().flat_map(|state| stages.map(|stage| (*state, stage))) {
            let node =
                NodeDetail { open_findings: 1, cordon_reason: Some("x".to_owned()), ..node(state, stage) };
            for step in next_steps(&node) {
                let command = step.split("  # ").next().unwrap().split(' ');
                assert!(crate::args::Args::try_parse_from(command).is_ok(), "{step}");
            }
        }
    }

    #[test]
    fn a_page_says_what_is_known_and_leaves_out_what_is_not() {
        let lines = lines(&node("active", "done"), None, AT.parse().unwrap());
        let of = |name: &str| lines.iter().find(|(n, _)| *n == name).map(|(_, text)| text.as_str()).unwrap();
        assert_eq!(of("state"), "active since 0s: as it should be");
        assert_eq!((of("labels"), of("slots"), of("agent")), ("a=1, b=2", "8 discovered", ""));
    }
}
