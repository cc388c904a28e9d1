//! What the jobs of a process do whose clock is wrong.

use chrono::TimeDelta;
use kernel::{
    Ambient, ManualClock,
    ids::{NodeId, TerminalSessionId},
};
use serde_json::json;
use terminal::{
    jobs::run_tidy,
    service::{
        recording_upkeep::{recordings_delete_expired, recordings_seal_ended},
        upkeep::{sessions_end_lost, terminals_tidy},
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

/// A session to which somebody attached so long ago.
async fn insert_session(test: &TestDb, node: NodeId, tenant: Tenant, attached: &str) -> TerminalSessionId {
    let id = TerminalSessionId::from(Ambient::system().uuid());
    let (org, project, owner) = (tenant.org.uuid(), tenant.project.uuid(), tenant.owner.uuid());
    // Without the machine that it would be on.
    test.tamper(&format!(
        "INSERT INTO terminal_sessions (id, org_id, project_id, allocation_id, node_id, principal_kind, principal_id, created_at,
             expires_at, attachments, last_attached_at, end_grant)
         VALUES ('{}', '{org}', '{project}', gen_random_uuid(), '{}', 'user', '{owner}', now() - interval '1 hour',
             now() + interval '1 hour', 1, now() - interval '{attached}', '')",
        id.uuid(),
        node.uuid(),
    ))
    .await;
    id
}

#[tokio::test]
async fn the_end_of_a_session_that_nobody_saw_is_noted_as_its_node_reports_it() {
    let test = TestDb::create().await;
    let Kit { terminals, fleet, .. } = &Kit::start(&test, None).await;
    let tenant = Tenants::new(&test.db).tenant("acme").await;
    fleet.region("r1").await;
    let node = fleet.node_created("r1", "n1", true).await.0.id;
    let older = fleet.node_created("r1", "n2", true).await.0.id;
    let exited = insert_session(&test, node, tenant, "10 minutes").await;
    let idle = insert_session(&test, node, tenant, "10 minutes").await;
    let runs = insert_session(&test, node, tenant, "10 minutes").await;
    let gone = insert_session(&test, node, tenant, "10 minutes").await;
    let began_just_now = insert_session(&test, node, tenant, "10 seconds").await;
    let not_reported = insert_session(&test, older, tenant, "10 minutes").await;
    let inventory = json!({ "terminal_sessions": [
        { "session_id": exited, "end_reason": "exited", "exit_status": 3 },
        { "session_id": idle, "end_reason": "idle" },
        { "session_id": runs },
    ] });
    let mut contact = fleet.contact(node);
    contact.inventory = inventory;
    fleet.contact_keep(contact).await;
    fleet.contact_keep(fleet.contact(older)).await;
    terminals_tidy(terminals).await.unwrap();
    for (session, end) in [
        (exited, "exited 3"),
        (idle, "idle"),
        (runs, ""),
        (gone, "lost"),
        (began_just_now, ""),
        (not_reported, ""),
    ] {
        let sql = format!(
            "SELECT concat_ws(' ', end_reason, exit_status) FROM terminal_sessions WHERE id = '{}'",
            session.uuid()
        );
        assert_eq!(test.one::<String>(&sql).await, end);
    }
}
