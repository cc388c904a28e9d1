//! What the jobs of a process do whose clock is wrong.

use chrono::TimeDelta;
use kernel::{Ambient, ManualClock};
use terminal::{
    jobs::run_tidy,
    service::{
        recording_upkeep::{recordings_delete_expired, recordings_seal_ended},
        upkeep::sessions_end_lost,
    },
};
use testkit::{TestDb, eventually};
use testworld::{Tenant, Tenants};

use crate::kit::Kit;

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
    let Kit { terminals, .. } = &Kit::start(&test, Some(clock)).await;
    insert_recordings(&test, Tenants::new(&test.db).tenant("acme").await).await;

    assert_eq!(recordings_seal_ended(terminals).await.unwrap(), 0, "its gateway has time to seal it");
    assert_eq!(recordings_delete_expired(terminals).await.unwrap(), 0, "it is to be kept for an hour");
    test.tamper("UPDATE terminal_sessions SET ended_at = now() - interval '1 minute'").await;
    test.tamper(
        "UPDATE terminal_recordings SET expires_at = now() - interval '1 second' WHERE sealed_at IS NOT NULL",
    )
    .await;
    assert_eq!(recordings_seal_ended(terminals).await.unwrap(), 1);
    assert_eq!(recordings_delete_expired(terminals).await.unwrap(), 1);
}

#[tokio::test]
async fn tokens_are_forgotten_although_it_cannot_be_said_who_lost_access() {
    let test = TestDb::create().await;
    let kit = Kit::start(&test, None).await;
    test.tamper(
        "INSERT INTO terminal_tokens (token_hash, org_id, project_id, allocation_id, kind, account_session_id, sealed_grant,
             created_at, expires_at)
         VALUES (sha256('x'), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'ssh', gen_random_uuid(), '', now(), now());
         ALTER TABLE platform_bindings RENAME TO platform_bindings_away",
    )
    .await;
    assert!(sessions_end_lost(&kit.terminals).await.is_err());
    let tidying = tokio::spawn(run_tidy(kit.terminals.clone()));
    eventually("the token is forgotten", || async {
        (test.one::<i64>("SELECT count(*) FROM terminal_tokens").await == 0).then_some(())
    })
    .await;
    tidying.abort();
}
