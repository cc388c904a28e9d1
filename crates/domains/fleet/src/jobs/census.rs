//! Counts the fleet for whoever watches it. Every replica that runs this counts the same.

use std::time::Duration;

use chrono::TimeDelta;
use kernel::Failure;
use lifecycle::{Lifecycle as _, Named as _};

use crate::{
    Fleet,
    model::node::{NodeLifecycle, NodeState},
    service::by_itself,
    store,
};
use bus::periodic::every;

const EVERY: Duration = Duration::from_secs(15);
/// Renewal begins an hour before the end: a certificate with less than this left is one that is not being renewed.
pub(super) const ENDING_WITHIN: TimeDelta = TimeDelta::minutes(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Every state but `deleted`, also those in which no node is.
    pub states: Vec<(&'static str, i64)>,
    /// Nodes that need a repair soon, or already.
    pub certificates_ending: i64,
}

pub async fn run(fleet: Fleet) {
    every(EVERY, "nodes were counted", || async {
        let census = census(&fleet).await?;
        for (state, count) in &census.states {
            metrics::gauge!("nodes", "state" => *state).set(*count as f64);
        }
        metrics::gauge!("node_certificates_ending").set(census.certificates_ending as f64);
        Ok(0)
    })
    .await;
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
