//! Emits an event, once per certificate, when a node certificate expires soon and is not being renewed: such a node
//! needs a repair token.

use std::time::Duration;

use bus::periodic::every;

use crate::{Fleet, service::certificates::certificates_notify};

const EVERY: Duration = Duration::from_secs(60);

pub async fn run(fleet: Fleet) {
    every(EVERY, "certificates of nodes end and are not renewed", || certificates_notify(&fleet)).await;
}
