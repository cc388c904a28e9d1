//! Counts the fleet for whoever watches it. Every replica that runs this counts the same.

use std::time::Duration;

use bus::periodic::every;

use crate::{Fleet, service::census::census};

const EVERY: Duration = Duration::from_secs(15);

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
