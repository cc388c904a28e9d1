//! What the jobs of a process do whose clock is wrong.

use std::sync::Arc;

use chrono::TimeDelta;
use identity::api::Policies;
use kernel::{Ambient, ManualClock, Secret};
use terminal::{
    RecordingStorage, Terminals,
    service::recording_upkeep::{recordings_delete_expired, recordings_seal_ended},
};
use testfleet::TestFleet;
use testkit::TestDb;
use testworld::{Tenant, Tenants};

/// A recording that is sealed and kept for another hour, and one of a session that has just ended.
async fn insert_recordings(test: &TestDb, Tenant { org, project, owner }: Tenant) {
    let columns = "session_id, org_id, project_id, allocation_id, principal_kind, principal_id, mode, started_at, expires_at";
    let values = format!(
        "gen_random_uuid(), '{}', '{}', gen_random_uuid(), 'user', '{}', 'output', now(), now() + interval '1 hour'",
        org.uuid(),
        project.uuid(),
        owner.uuid()
    );
    let sessions = "id, org_id, project_id, allocation_id, node_id, principal_kind, principal_id, created_at, expires_at, ended_at, \
         end_reason, end_grant";
    // Without the machine that they would be of.
    test.tamper(&format!(
        "INSERT INTO terminal_recordings ({columns}, sealed_at, complete) VALUES ({values}, now(), true);
         INSERT INTO terminal_recordings ({columns}) VALUES ({values});
         INSERT INTO terminal_sessions ({sessions})
             SELECT session_id, org_id, project_id, allocation_id, gen_random_uuid(), principal_kind, principal_id, now(),
                 now() + interval '1 hour', now(), 'exited', ''
             FROM terminal_recordings WHERE sealed_at IS NULL"
    ))
    .await;
}

#[tokio::test]
async fn a_process_whose_clock_is_ahead_seals_and_deletes_no_recording_early() {
    let clock = ManualClock::starting_at(Ambient::system().now() + TimeDelta::days(400));
    let test = TestDb::create_with(clock.ambient()).await;
    let policies = Policies::new(test.db.clone());
    let parts = testfleet::Parts {
        clock: Some(clock),
        policies: Arc::new(policies.clone()),
        completions: Vec::new(),
        auto_approve_simulated: false,
    };
    let fleet = TestFleet::start(&test.db, parts).await;
    let dir = tempfile::tempdir().unwrap();
    let objects = objects::Objects::in_directory(dir.path().to_owned());
    let recordings = RecordingStorage::new(objects, &Secret::new([7; 32])).unwrap();
    let terminals = Terminals::new(fleet.fleet.clone(), policies, recordings);
    insert_recordings(&test, Tenants::new(&test.db).tenant("acme").await).await;

    assert_eq!(recordings_seal_ended(&terminals).await.unwrap(), 0, "its gateway has time to seal it");
    assert_eq!(recordings_delete_expired(&terminals).await.unwrap(), 0, "it is to be kept for an hour");
    test.tamper("UPDATE terminal_sessions SET ended_at = now() - interval '1 minute'").await;
    test.tamper(
        "UPDATE terminal_recordings SET expires_at = now() - interval '1 second' WHERE sealed_at IS NOT NULL",
    )
    .await;
    assert_eq!(recordings_seal_ended(&terminals).await.unwrap(), 1);
    assert_eq!(recordings_delete_expired(&terminals).await.unwrap(), 1);
}
