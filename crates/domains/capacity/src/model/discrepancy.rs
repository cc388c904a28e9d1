//! Where records disagree: with each other, or with what nodes report.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::ids::{AllocationId, DiscrepancyId, NodeId};
use schemars::JsonSchema;
use serde::Serialize;

use super::allocation::Shape;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $suggestion:literal;)*) => {
        lifecycle::named_enum! {
            DiscrepancyKind = "kind of discrepancy" { $($(#[doc = $doc])* $variant = $name),* }
        }

        impl DiscrepancyKind {
            /// What a person can do about it.
            pub const fn suggestion(self) -> &'static str { match self { $(Self::$variant => $suggestion),* } }
        }
    };
}

kinds! {
    /// An allocation is over and still holds capacity.
    ClaimOfEnded = "claim_of_ended",
        "Check the allocation's workflow; once its machine is verified to be gone, retry or force the cleanup of its slots.";
    /// An allocation is not over and does not hold what it was given.
    ClaimMissing = "claim_missing",
        "Check the allocation; release it in agreement with its user, so that no capacity is sold twice.";
    /// A slot is taken and nobody holds it.
    SlotUnclaimed = "slot_unclaimed",
        "Check what runs on the slot, then retry its cleanup, or force it when nothing runs there.";
    /// A slot can be sold although somebody holds it.
    ClaimOnFreeSlot = "claim_on_free_slot",
        "Cordon the node so that the slot is not sold again, then check the allocation that claims it.";
    /// An allocation is on its way and nothing moves it.
    WorkflowMissing = "workflow_missing",
        "Release or retry the allocation; force the release when neither is possible.";
    /// What somebody holds is counted wrongly, so limits are too.
    HoldingsDiffer = "holdings_differ",
        "Report a bug: the database maintains the count itself. The quota usage is wrong by the difference.";
    /// What a node could take is counted wrongly.
    NodeCapacityDiffers = "node_capacity_differs",
        "Report a bug: the database maintains the count itself. A change of one of the node's slots recomputes it.";
    /// A task is open for a workflow that is over.
    TaskUnawaited = "task_unawaited",
        "Nothing, if it expires soon; otherwise cancel the task.";
    /// A machine has keys of people who may no longer log in.
    KeysNotRemoved = "keys_not_removed",
        "Bring the node back online, or update its agent if it does not support the task; release the allocation if neither is possible.";
    /// A node has a user or a machine that no allocation explains.
    UnknownOnNode = "unknown_on_node",
        "Determine its owner first. Retry the cleanup of its slot, or remove it manually.";
    /// An active allocation has no user or machine on its node.
    MissingOnNode = "missing_on_node",
        "Notify the allocation's project: it pays for a machine that it cannot use. Restart or release the allocation.";
}

/// Something that was found in one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is about; with the kind, what is the same when it is seen again.
    pub subject: String,
    pub node: Option<NodeId>,
    pub allocation: Option<AllocationId>,
    pub message: String,
}

lifecycle::named_enum! {
    DiscrepancyState = "state of a discrepancy" { Open = "open", Resolved = "resolved" }
}

/// Something that two records disagree about, as long as it lasts and afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Discrepancy {
    pub id: DiscrepancyId,
    pub kind: DiscrepancyKind,
    pub subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_id: Option<AllocationId>,
    pub message: String,
    /// What a person can do about it. Nothing is done by itself.
    pub suggestion: String,
    pub state: DiscrepancyState,
    pub first_seen_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<DateTime<Utc>>,
}

/// A node's report takes a moment to be made and to arrive: it is believed about a change only when it is this much
/// younger.
pub const REPORT_LAG: TimeDelta = TimeDelta::seconds(30);
/// A report older than this says nothing about now.
pub const REPORT_LIFETIME: TimeDelta = TimeDelta::minutes(10);
/// As many names as are kept of one report; beyond, absence cannot be told.
const MOST_NAMES: usize = 4096;

/// What one node last said is in use on it.
#[derive(Clone, Debug)]
pub struct Report {
    pub node: NodeId,
    pub at: DateTime<Utc>,
    pub users: Vec<String>,
    pub machines: Vec<String>,
}

/// What a node should have: of allocations that are not over, and of those that ended a moment ago.
#[derive(Clone, Debug)]
pub struct Expected {
    pub id: AllocationId,
    pub node: NodeId,
    pub shape: Shape,
    pub username: String,
    pub active: bool,
    pub over: bool,
    pub changed_at: DateTime<Utc>,
}

impl Expected {
    fn machine(&self) -> String {
        self.id.to_string()
    }

    /// True when a report of `at`, which takes up to `lag` to arrive, was made after the last change.
    fn is_settled(&self, at: DateTime<Utc>, lag: TimeDelta) -> bool {
        at >= self.changed_at + lag
    }
}

/// What is on nodes that nobody explains, and what should be there and is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    pub unknown: Vec<Found>,
    pub missing: Vec<Found>,
}

/// Compares reports with what should be. A name counts as explained as long as the end of its allocation may be
/// younger than the report, and as missing only when the report is certainly younger than the allocation.
pub fn strays(reports: &[Report], expected: &[Expected], lag: TimeDelta) -> Strays {
    let mut by_node: HashMap<NodeId, Vec<&Expected>> = HashMap::new();
    for allocation in expected {
        by_node.entry(allocation.node).or_default().push(allocation);
    }
    let mut strays = Strays::default();
    for report in reports {
        let here = by_node.remove(&report.node).unwrap_or_default();
        let explained = |allocation: &&&Expected| !allocation.over || !allocation.is_settled(report.at, lag);
        let on_host = |allocation: &&&Expected| allocation.shape == Shape::Baremetal;
        let users: HashSet<&str> =
            here.iter().filter(explained).filter(on_host).map(|a| a.username.as_str()).collect();
        let machines: HashSet<String> =
            here.iter().filter(explained).filter(|a| !on_host(a)).map(|a| a.machine()).collect();
        for user in report.users.iter().filter(|user| !users.contains(user.as_str())) {
            strays.unknown.push(unknown(report.node, "user", user));
        }
        for machine in report.machines.iter().filter(|machine| !machines.contains(*machine)) {
            strays.unknown.push(unknown(report.node, "machine", machine));
        }
        for allocation in here.iter().filter(|a| a.active && a.is_settled(report.at, lag)) {
            let (names, name, what) = match allocation.shape {
                Shape::Baremetal => (&report.users, allocation.username.clone(), "user"),
                Shape::GpuSlice | Shape::CpuVm => (&report.machines, allocation.machine(), "machine"),
            };
            if names.len() < MOST_NAMES && !names.contains(&name) {
                strays.missing.push(Found {
                    subject: allocation.id.to_string(),
                    node: Some(report.node),
                    allocation: Some(allocation.id),
                    message: format!(
                        "{} is active, but its node {} reports no {what} {name}.",
                        allocation.id, report.node
                    ),
                });
            }
        }
    }
    strays
}

fn unknown(node: NodeId, what: &str, name: &str) -> Found {
    Found {
        subject: format!("{node}/{what}/{name}"),
        node: Some(node),
        allocation: name.parse().ok(),
        message: format!("{node} reports the {what} {name}, which belongs to no live allocation."),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn strays(reports: &[Report], expected: &[Expected]) -> Strays {
        super::strays(reports, expected, REPORT_LAG)
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_900_000_000 + seconds, 0).unwrap()
    }

    fn report(users: &[&str], machines: &[String]) -> Report {
        Report {
            node: NodeId::from(Uuid::from_u128(1)),
            at: at(1000),
            users: users.iter().map(|user| (*user).to_owned()).collect(),
            machines: machines.to_vec(),
        }
    }

    fn allocation(n: u128, shape: Shape, changed_at: DateTime<Utc>) -> Expected {
        Expected {
            id: AllocationId::from(Uuid::from_u128(n)),
            node: NodeId::from(Uuid::from_u128(1)),
            shape,
            username: format!("u{n}"),
            active: true,
            over: false,
            changed_at,
        }
    }

    #[test]
    fn what_is_expected_and_reported_is_no_discrepancy() {
        let slice = allocation(2, Shape::GpuSlice, at(0));
        let report = report(&["u1"], &[slice.id.to_string()]);
        assert_eq!(strays(&[report], &[allocation(1, Shape::Baremetal, at(0)), slice]), Strays::default());
    }

    #[test]
    fn strangers_and_absentees_are_both_found() {
        let here = [allocation(1, Shape::Baremetal, at(0)), allocation(2, Shape::GpuSlice, at(0))];
        let found = strays(&[report(&["stranger"], &["vm".to_owned()])], &here);
        assert_eq!((found.unknown.len(), found.missing.len()), (2, 2));
        // The guest's user is not one of the host's.
        assert_eq!(strays(&[report(&["u2"], &[])], &here[1..]).unknown.len(), 1);
    }

    #[test]
    fn a_report_is_not_believed_about_what_changed_after_it() {
        let young = allocation(1, Shape::Baremetal, at(990));
        assert_eq!(strays(&[report(&[], &[])], std::slice::from_ref(&young)), Strays::default());
        let ended = Expected { active: false, over: true, ..young.clone() };
        assert_eq!(strays(&[report(&["u1"], &[])], &[ended]), Strays::default());
        let ended = Expected { active: false, over: true, changed_at: at(0), ..young };
        assert_eq!(strays(&[report(&["u1"], &[])], &[ended]).unknown.len(), 1);
    }

    #[test]
    fn a_node_that_says_nothing_is_not_judged() {
        assert_eq!(strays(&[], &[allocation(1, Shape::Baremetal, at(0))]), Strays::default());
    }
}
