//! Whose machines are on a node, and what else stands in its way, as lines below each other.

use chrono::{DateTime, Utc};
use sdk::types::{NodeDetail, NodeOccupants, ReadinessBlocker};

use crate::output::{counted, relative};

/// Each column as wide as its widest text; the last one ends the line.
fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(text, width)| format!("{text:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Code, subject and message of each.
pub fn blockers(found: &[ReadinessBlocker]) -> Vec<String> {
    let row = |one: &ReadinessBlocker| [one.code.clone(), one.subject.clone(), one.message.clone()];
    aligned(&found.iter().map(row).collect::<Vec<_>>())
}

/// Name, organization and project, owner and state of each allocation.
pub fn allocations(found: &NodeOccupants, now: DateTime<Utc>) -> Vec<String> {
    let rows: Vec<[String; 4]> = found
        .items
        .iter()
        .map(|one| {
            let since = relative(now, one.since);
            [
                one.allocation_name.clone(),
                format!("{}/{}", one.org_name, one.project_name),
                one.owner.clone(),
                format!("{} since {}", one.state, since.trim_end_matches(" ago")),
            ]
        })
        .collect();
    let named = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let more = (found.total > named).then(|| format!("and {} more", found.total - named));
    aligned(&rows).into_iter().chain(more).collect()
}

/// What is left on a node that leaves service; nothing when it is empty.
pub fn in_the_way(node: &NodeDetail, occupied: i64, now: DateTime<Utc>) -> Option<String> {
    if occupied == 0 {
        return None;
    }
    let name = &node.hostname;
    let head = format!("{} of {name} still in use", counted(occupied, "slot"));
    let lines = allocations(&node.occupants, now);
    if lines.is_empty() {
        // For example slots whose cleanup failed.
        return Some(format!("{head}, by no allocation: `gpuaas nodes slots {name}` lists them."));
    }
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    Some(format!("{head}:{lines}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const AT: &str = "2026-01-02T03:04:05Z";

    fn occupant(name: &str, owner: &str) -> Value {
        let id = "0193b3a0000070008000000000000001";
        json!({
            "allocation_id": format!("alloc_{id}"), "allocation_name": name, "state": "active", "since": AT,
            "org_id": format!("org_{id}"), "org_name": "Acme", "project_id": format!("proj_{id}"),
            "project_name": "lab", "owner": owner,
        })
    }

    #[test]
    fn each_allocation_is_named_with_whom_to_ask_and_the_rest_is_counted() {
        let found = json!({
            "total": 7, "items": [occupant("train-1", "ann@example.org"), occupant("web", "ci")],
        });
        let found: NodeOccupants = serde_json::from_value(found).unwrap();
        assert_eq!(
            allocations(&found, AT.parse().unwrap()),
            [
                "train-1  Acme/lab  ann@example.org  active since 0s",
                "web      Acme/lab  ci               active since 0s",
                "and 5 more",
            ]
        );
    }

    #[test]
    fn blockers_stand_below_each_other() {
        let blocker = |code: &str, subject: &str| ReadinessBlocker {
            code: code.to_owned(),
            subject: subject.to_owned(),
            message: "Why.".to_owned(),
        };
        let lines = blockers(&[blocker("driver", "0000:1"), blocker("no_nvme", "a")]);
        assert_eq!(lines, ["driver   0000:1  Why.", "no_nvme  a       Why."]);
    }
}
