//! After a restore from a backup: what differs between the records and the nodes, and what operators decide about it.

use chrono::{DateTime, Utc};
use kernel::{Code, Problem};
use schemars::JsonSchema;
use serde::Serialize;

use super::discrepancy::{Discrepancy, DiscrepancyKind, DiscrepancyState};

lifecycle::named_enum! {
    /// What becomes of a difference.
    Decision = "decision about a difference" {
        /// The records stay as they are.
        Keep = "keep",
        /// Nothing new is placed on the node, at once and until somebody uncordons it.
        Cordon = "cordon",
        /// The allocation is gone: it is released when work is resumed, and paid for until the time of the backup.
        End = "end",
    }
}

impl Decision {
    /// Whether this can be decided about the difference.
    pub fn check(self, about: &Discrepancy) -> Result<(), Problem> {
        if about.state != DiscrepancyState::Open {
            return Err(Problem::new(Code::InvalidTransition, "The difference no longer exists.")
                .suggest("List the differences again."));
        }
        let missing = about.kind == DiscrepancyKind::MissingOnNode;
        match self {
            Self::End if !missing || about.allocation_id.is_none() => Err(Problem::field(
                "decision",
                "only a difference of kind missing_on_node can be ended; keep it, or cordon the node",
            )),
            Self::Cordon if about.node_id.is_none() => {
                Err(Problem::field("decision", "the difference has no node to cordon; keep it"))
            }
            Self::Keep | Self::Cordon | Self::End => Ok(()),
        }
    }
}

lifecycle::named_enum! {
    RestoreMode = "mode of the installation" { Normal = "normal", Restore = "restore" }
}

/// Whether the installation was restored from a backup, and what is left to do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RestoreStatus {
    /// `normal`; or `restore`, in which nothing is launched, released or charged.
    pub mode: RestoreMode,
    pub generation: i64,
    /// When the restore was noticed, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The records are of this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_at: Option<DateTime<Utc>>,
    /// Nodes that have not reported since, and are not cordoned: what they have is not known. At most a hundred.
    pub nodes_unheard: Vec<kernel::ids::NodeId>,
    /// Nodes whose reports were not compared with the records yet, those that are cordoned too. One that is cordoned keeps
    /// nobody from resuming, and stays cordoned until it was compared. At most a hundred.
    pub nodes_uncompared: Vec<kernel::ids::NodeId>,
    /// Differences that are open, and how many of them nobody has decided about.
    pub differences: i64,
    pub undecided: i64,
}

/// A difference, and what was decided about it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RestoreDifference {
    #[serde(flatten)]
    pub discrepancy: Discrepancy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<DateTime<Utc>>,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn difference(kind: DiscrepancyKind) -> Discrepancy {
        Discrepancy {
            id: Uuid::from_u128(1).into(),
            kind,
            subject: String::new(),
            node_id: Some(Uuid::from_u128(2).into()),
            allocation_id: Some(Uuid::from_u128(3).into()),
            message: String::new(),
            suggestion: String::new(),
            state: DiscrepancyState::Open,
            first_seen_at: DateTime::UNIX_EPOCH,
            last_seen_at: DateTime::UNIX_EPOCH,
            resolved_at: None,
        }
    }

    #[test]
    fn only_what_is_missing_is_ended_and_nothing_is_decided_about_what_is_gone() {
        for kind in DiscrepancyKind::ALL {
            let about = difference(kind);
            assert_eq!(Decision::End.check(&about).is_ok(), kind == DiscrepancyKind::MissingOnNode);
            assert!(Decision::Keep.check(&about).is_ok() && Decision::Cordon.check(&about).is_ok());
            let nowhere = Discrepancy { node_id: None, ..about.clone() };
            assert!(Decision::Cordon.check(&nowhere).is_err());
            let gone = Discrepancy { state: DiscrepancyState::Resolved, ..about };
            assert!(Decision::Keep.check(&gone).is_err());
        }
    }
}
