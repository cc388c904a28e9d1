//! Names for the ids in a table.
//!
//! A convenience: whoever may not list what an id belongs to, or waits too long for it, sees the id.

use std::{collections::HashSet, time::Duration};

use sdk::Client;
use serde::Serialize;
use serde_json::Value;

use super::{Kind, Within, fetch::fetch, kinds};
use crate::app::App;

const PATIENCE: Duration = Duration::from_secs(5);

/// Whose resources the ids of a table belong to.
pub enum Scope<'a> {
    Org(&'a str),
    Project(&'a str),
    Platform,
}

/// Lets the next table show the ids in `rows` by name.
pub async fn learn<T: Serialize>(app: &App, client: &Client, scope: &Scope<'_>, rows: &[T]) {
    if !app.out.is_table() {
        return;
    }
    let mut prefixes = HashSet::new();
    for row in rows.iter().filter_map(|row| serde_json::to_value(row).ok()) {
        collect(&row, &mut prefixes);
    }
    let wanted: Vec<_> =
        lists(scope).into_iter().filter(|(kind, _)| prefixes.contains(kind.prefix)).collect();
    let read = async {
        for (kind, within) in wanted {
            learn_list(app, client, kind, &within).await;
        }
        // Administrators of the organization work in projects without being members of them.
        if let Scope::Project(project) = scope
            && prefixes.contains(kinds::MEMBER.prefix)
            && let Ok(project) = Box::pin(client.project_get(project)).await
        {
            let org = project.into_inner().org_id;
            learn_list(app, client, &kinds::MEMBER, &[("org", org.as_str())]).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, read).await;
}

async fn learn_list(app: &App, client: &Client, kind: &Kind, within: Within<'_>) {
    for item in fetch(client, kind, within, "").await.unwrap_or_default() {
        let name = shown(kind).find_map(|name| item[name].as_str().filter(|name| !name.is_empty()));
        if let (Some(id), Some(name)) = (item["id"].as_str(), name) {
            app.out.learn(id, name);
        }
    }
}

/// Members of an organization by their name, everything else by what commands take first.
fn shown(kind: &Kind) -> impl Iterator<Item = &'static str> {
    let member = kind.prefix == "user_" && !kind.path.starts_with("/platform/");
    let first = member.then_some("name");
    first.into_iter().chain(kind.names.iter().copied())
}

/// Where names are looked up: what stands further down replaces what stands above it.
fn lists<'a>(scope: &Scope<'a>) -> Vec<(&'static Kind, Vec<(&'a str, &'a str)>)> {
    match *scope {
        Scope::Org(org) => vec![
            (&kinds::PROJECT, vec![("org", org)]),
            (&kinds::MEMBER, vec![("org", org)]),
            (&kinds::ORG, Vec::new()),
        ],
        Scope::Project(project) => vec![
            (&kinds::PROJECT_MEMBER, vec![("project", project)]),
            (&kinds::SERVICE_ACCOUNT, vec![("project", project)]),
            (&kinds::ALLOCATION, vec![("project", project)]),
            (&kinds::GROUP, vec![("project", project)]),
        ],
        Scope::Platform => vec![
            (&kinds::NODE, Vec::new()),
            (&kinds::POOL, Vec::new()),
            (&kinds::PLATFORM_ORG, Vec::new()),
            (&kinds::PLATFORM_USER, Vec::new()),
            (&kinds::PLATFORM_ALLOCATION, Vec::new()),
        ],
    }
}

/// The prefixes of the ids that a row refers to; its own id is shown as it is.
fn collect(row: &Value, prefixes: &mut HashSet<String>) {
    for (_, value) in row.as_object().into_iter().flatten().filter(|(name, _)| *name != "id") {
        if let Some((prefix, digits)) = value.as_str().and_then(|text| text.rsplit_once('_'))
            && digits.len() == 32
        {
            prefixes.insert(format!("{prefix}_"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_looked_up_and_a_rows_own_id_is_not() {
        let digits = "0".repeat(32);
        let row =
            json!({ "id": format!("task_{digits}"), "node_id": format!("node_{digits}"), "name": "a_b" });
        let mut prefixes = HashSet::new();
        collect(&row, &mut prefixes);
        assert_eq!(prefixes, HashSet::from(["node_".to_owned()]));
    }
}
