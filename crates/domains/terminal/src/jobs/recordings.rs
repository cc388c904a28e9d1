//! Upkeep of recordings, beside a gateway.

use std::time::Duration;

use crate::{
    Terminals,
    service::recording_upkeep::{recordings_delete_expired, recordings_seal_ended},
};

const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Seals what nobody sealed, and deletes what is old. Never ends itself.
pub async fn run_recordings(terminals: Terminals) {
    bus::periodic::every(LOOK_EVERY, "recordings were sealed or deleted", move || {
        let terminals = terminals.clone();
        async move {
            // Whoever has the storage does it: what is tried in vain is left alone for a while, also by those.
            if terminals.recordings.is_held() {
                return Ok(0);
            }
            Ok(recordings_seal_ended(&terminals).await? + recordings_delete_expired(&terminals).await?)
        }
    })
    .await
}
