//! Nodes in a table, and changes of a node's description.

use std::{collections::HashMap, num::NonZeroU16};

use chrono::{DateTime, Utc};
use clap::Args as ClapArgs;
use sdk::{
    Client, RawRequest,
    reqwest::{
        Method,
        header::{HeaderValue, IF_MATCH},
    },
    types,
};
use serde_json::{Value, json};

use super::CHANGED;
use crate::{
    app::App,
    args::Limit,
    commands::{field, optional},
    failure::{Failure, Result, local},
    output::{Columns, relative},
    resolve,
};

#[derive(ClapArgs)]
pub struct List {
    /// Only nodes in this state; deleted nodes are listed only with --state deleted.
    #[arg(long, value_parser = [
        "bootstrap_issued", "enrolling", "active", "offline", "quarantined", "draining", "retired", "removing",
        "deleted",
    ])]
    state: Option<String>,
    /// Only nodes in this region.
    #[arg(long)]
    region: Option<String>,
    /// Only nodes of this pool, by name or id.
    #[arg(long)]
    pool: Option<String>,
    /// Only nodes with this label, as key=value.
    #[arg(long)]
    label: Option<String>,
    /// Only simulated nodes (true), or only real ones (false).
    #[arg(long)]
    simulated: Option<bool>,
    #[command(flatten)]
    limit: Limit,
}

const TABLE: Columns = &[
    ("HOSTNAME", "hostname"),
    ("STATE", "state"),
    ("SLOTS", "slots"),
    ("REGION", "region"),
    ("FINDINGS", "findings"),
    ("MARKS", "marks"),
    ("LAST SEEN", "seen"),
    ("POOL", "pool"),
    ("CERTIFICATE", "certificate"),
    ("AGENT", "agent"),
];
const CSV: Columns = &[
    ("ID", "id"),
    ("HOSTNAME", "hostname"),
    ("STATE", "state"),
    ("REGION", "region"),
    ("POOL", "pool_id"),
    ("SLOTS", "slots_total"),
    ("AVAILABLE", "slots_available"),
    ("AGENT", "agent_version"),
    ("LAST SEEN", "last_seen_at"),
    ("CERTIFICATE", "certificate_expires_at"),
    ("FINDINGS", "open_findings"),
    ("SIMULATED", "simulated"),
    ("CORDON", "cordon_reason"),
];

pub async fn list(app: &App, client: &Client, list: List) -> Result {
    let pool = match &list.pool {
        Some(pool) => Some(resolve::pool(client, pool, list.region.as_deref()).await?),
        None => None,
    };
    let (hostname, state) = (None, optional("state", list.state.as_ref())?);
    let nodes: Vec<types::NodeSummary> = pages!(list.limit.get(), |page| client.node_list(
        page.cursor(),
        hostname,
        list.label.as_deref(),
        page.size(),
        pool.as_deref(),
        list.region.as_deref(),
        list.simulated,
        state
    ))?;
    if !app.out.is_table() {
        return app.out.list(&nodes, CSV);
    }
    let pools = pool_names(client, nodes.iter().any(|node| node.pool_id.is_some())).await?;
    let now = app.ambient.now();
    let rows: Vec<Value> = nodes.iter().map(|node| row(node, &pools, now)).collect();
    app.out.list(&rows, TABLE)
}

async fn pool_names(client: &Client, wanted: bool) -> Result<HashMap<String, String>> {
    if !wanted {
        return Ok(HashMap::new());
    }
    let region = None;
    let pools: Vec<types::NodePool> =
        pages!(None, |page| client.pool_list(page.cursor(), page.size(), region))?;
    Ok(pools.into_iter().map(|pool| (pool.id.to_string(), pool.name.to_string())).collect())
}

fn row(node: &types::NodeSummary, pools: &HashMap<String, String>, now: DateTime<Utc>) -> Value {
    let pool =
        node.pool_id.as_ref().map(|id| pools.get(id.as_str()).cloned().unwrap_or_else(|| id.to_string()));
    let slots = (node.slots_total > 0).then(|| format!("{}/{} free", node.slots_available, node.slots_total));
    let marks: Vec<&str> = [
        (node.simulated, "simulated"),
        (node.serves.to_string() == "baremetal", "whole"),
        (node.cordon_reason.is_some(), "cordoned"),
    ]
    .into_iter()
    .filter_map(|(is, mark)| is.then_some(mark))
    .collect();
    json!({
        "hostname": node.hostname,
        "state": node.state,
        "region": node.region,
        "pool": pool,
        "slots": slots,
        "agent": node.agent_version,
        "seen": node.last_seen_at.map(|at| relative(now, at)),
        "certificate": node.certificate_expires_at.map(|at| relative(now, at)),
        "findings": node.open_findings,
        "marks": marks,
    })
}

#[derive(ClapArgs)]
pub struct Update {
    /// Node, by host name or id.
    node: String,
    /// Label to set, as key=value. Can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Label to remove, by key. Can be repeated.
    #[arg(long, value_name = "KEY")]
    remove_label: Vec<String>,
    /// Pool to assign the node to, by name or id.
    #[arg(long, conflicts_with = "leave_pool")]
    pool: Option<String>,
    /// Remove the node from its pool.
    #[arg(long)]
    leave_pool: bool,
    /// Product that the node may serve; replaces the current list. Can be repeated.
    #[arg(long, conflicts_with = "any_sku")]
    sku: Vec<String>,
    /// Let the node serve every product that its slots match.
    #[arg(long)]
    any_sku: bool,
    /// What the node is sold as: any product that its slots match, or only the whole machine.
    #[arg(long, value_parser = ["any", "baremetal"])]
    serves: Option<String>,
    /// Host name or address at which users reach the machine by SSH.
    #[arg(long, value_name = "HOST")]
    ssh_host: Option<String>,
    /// Port at which users reach the machine by SSH.
    #[arg(long, value_name = "PORT")]
    ssh_port: Option<NonZeroU16>,
}

pub async fn update(app: &App, client: &Client, update: Update) -> Result {
    let relabel = !update.label.is_empty() || !update.remove_label.is_empty();
    let placed = update.pool.is_some() || update.leave_pool;
    let sold = !update.sku.is_empty() || update.any_sku || update.serves.is_some();
    if !(relabel || placed || sold || update.ssh_host.is_some() || update.ssh_port.is_some()) {
        let hint = "Give --label, --pool, --sku, --serves, --ssh-host or --ssh-port.";
        return Err(Failure::client("nothing to change").suggest(hint));
    }
    let before = send!(client.node_get(&resolve::node(client, &update.node).await?));
    let mut labels: HashMap<String, String> = HashMap::new();
    if relabel {
        for (key, value) in &before.labels {
            labels.insert(key.clone(), value.clone());
        }
        labels.extend(parse_labels(&update.label)?);
        labels.retain(|key, _| !update.remove_label.contains(key));
    }
    let pool_id = match &update.pool {
        Some(pool) => Some(resolve::pool(client, pool, Some(&before.region)).await?),
        None => None,
    };
    let emptied = [(relabel && labels.is_empty(), "labels"), (update.any_sku, "sku_eligibility")];
    let body = types::NodeUpdate {
        labels,
        pool_id,
        leave_pool: update.leave_pool,
        sku_eligibility: update.sku,
        serves: update.serves.map(|serves| field("serves", serves)).transpose()?,
        ssh_host: update.ssh_host,
        ssh_port: update.ssh_port,
    };
    // Labels are merged here, so they must still be those that were read.
    let after = if emptied.iter().any(|(is, _)| *is) {
        send_emptied(client, &before, &body, emptied).await?
    } else {
        send!(client.with_if_match(before.version)?.node_update(&before.id, &body))
    };
    app.out.item(&after, CHANGED)
}

/// The generated client omits empty fields, and the server does not change omitted fields.
async fn send_emptied(
    client: &Client,
    before: &types::NodeDetail,
    body: &types::NodeUpdate,
    emptied: [(bool, &str); 2],
) -> Result<types::Node> {
    let mut body = json!(body);
    for (_, name) in emptied.into_iter().filter(|(is, _)| *is) {
        body[name] = if name == "labels" { json!({}) } else { json!([]) };
    }
    let version = HeaderValue::from_str(&before.version.to_string())
        .map_err(local("the version is not a valid header value"))?;
    let request = RawRequest {
        method: Method::PATCH,
        path: format!("/api/v1/platform/nodes/{}", before.id.as_str()),
        headers: vec![(IF_MATCH, version)],
        body: Some(body),
    };
    let answer = client.raw(request).await?.bytes().await.map_err(sdk::Error::Network)?;
    serde_json::from_slice(&answer).map_err(|error| sdk::Error::Protocol(error.to_string()).into())
}

pub fn parse_labels(given: &[String]) -> Result<HashMap<String, String>> {
    let parse = |text: &String| {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::client(format!("the label {text:?} is not of the form key=value")))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    given.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs() {
        let labels = parse_labels(&["rack=a=1".to_owned()]).unwrap();
        assert_eq!(labels["rack"], "a=1");
        assert!(parse_labels(&["rack".to_owned()]).is_err());
    }

    #[test]
    fn a_row_marks_what_is_special_and_counts_slots() {
        let id = "0193b3a0000070008000000000000001";
        let at = "2026-01-02T03:04:05Z";
        let node: types::NodeSummary = serde_json::from_value(json!({
            "id": format!("node_{id}"), "hostname": "gpu-01", "region": "eu", "labels": {}, "sku_eligibility": [],
            "serves": "baremetal", "pool_id": format!("pool_{id}"), "simulated": true, "state": "active",
            "state_reason": "", "state_changed_at": at, "cordon_reason": "dust", "desired_version": 0, "version": 1, "created_at": at,
            "updated_at": at, "last_seen_at": at, "open_findings": 2, "slots_total": 8, "slots_available": 3,
        }))
        .unwrap();
        let pools = HashMap::from([(format!("pool_{id}"), "h200".to_owned())]);
        let row = row(&node, &pools, at.parse().unwrap());
        assert_eq!(row["marks"], json!(["simulated", "whole", "cordoned"]));
        assert_eq!((&row["slots"], &row["pool"]), (&json!("3/8 free"), &json!("h200")));
        assert_eq!((&row["seen"], &row["certificate"]), (&json!("0s ago"), &Value::Null));
    }
}
