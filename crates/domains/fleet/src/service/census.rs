//! The fleet in numbers: nodes by state, and certificates that are not being renewed.

use chrono::TimeDelta;
use kernel::Failure;
use lifecycle::{Lifecycle as _, Named as _};

use super::by_itself;
use crate::{
    Fleet,
    model::node::{NodeLifecycle, NodeState},
    store,
};

/// Renewal begins an hour before the end: a certificate with less than this left is one that is not being renewed.
pub(super) const ENDING_WITHIN: TimeDelta = TimeDelta::minutes(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Every state but `deleted`, also those in which no node is.
    pub states: Vec<(&'static str, i64)>,
    /// Nodes that need a repair soon, or already.
    pub certificates_ending: i64,
}

pub async fn census(fleet: &Fleet) -> Result<Census, Failure> {
    let now = fleet.db().ambient().now();
    let mut read = fleet.db().read(&by_itself(fleet.db(), "count the fleet")).await?;
    let counted = store::census::states(read.conn()).await?;
    let of = |state: &NodeState| {
        let count = counted.iter().find(|(known, _)| known == state).map_or(0, |(_, count)| *count);
        (state.name(), count)
    };
    let states = NodeLifecycle::STATES.iter().filter(|state| **state != NodeState::Deleted).map(of).collect();
    let certificates_ending = store::census::certificates_ending(read.conn(), now + ENDING_WITHIN).await?;
    Ok(Census { states, certificates_ending })
}
