//! What others may ask of runs, and who may.

use kernel::{
    CorrelationId, Permission, Role,
    ids::{OrgId, UserId},
};
use pg::{Actor, ActorKind, Origin, Permit, Scope};
use saga::{RunLifecycle, StartError};
use serde_json::json;
use uuid::Uuid;

use crate::support::{Fixture, Recorder, SPEC};

#[tokio::test]
async fn there_is_one_live_run_per_subject_and_the_refused_transaction_goes_on() {
    let fixture = Fixture::create().await;
    let first = fixture.start("thing/1").await;
    let mut tx = fixture.db.write(fixture.permit(), "test.start").await.unwrap();
    let refused = saga::start(&mut tx, &SPEC, "thing/1", None, &json!({})).await;
    assert!(matches!(refused, Err(StartError::AlreadyRunning)), "{refused:?}");
    saga::start(&mut tx, &SPEC, "thing/2", None, &json!({})).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(fixture.count("SELECT count(*) FROM saga_runs").await, 2);
    assert!(fixture.cancel("thing/1").await);
    fixture.settle(&fixture.engine(&Recorder::good()), first).await;
    fixture.start("thing/1").await;
}

#[tokio::test]
async fn a_start_that_is_rolled_back_never_was() {
    let fixture = Fixture::create().await;
    let mut tx = fixture.db.write(fixture.permit(), "test.start").await.unwrap();
    saga::start(&mut tx, &SPEC, "thing/1", None, &json!({})).await.unwrap();
    tx.roll_back().await;
    assert_eq!(fixture.engine(&Recorder::good()).run_once().await.unwrap(), 0);
    fixture.start("thing/1").await;
}

#[tokio::test]
async fn a_tenant_acts_on_runs_of_its_own_organization_only() {
    let fixture = Fixture::create().await;
    let (ours, theirs) = (OrgId::from(Uuid::from_u128(1)), OrgId::from(Uuid::from_u128(2)));
    let permit = |org: OrgId| permit_of(&fixture, org);
    let mut tx = fixture.db.write(permit(ours), "test.start").await.unwrap();
    let id = saga::start(&mut tx, &SPEC, "thing/1", Some(ours), &json!({})).await.unwrap();
    tx.commit(None).await.unwrap();
    let mut tx = fixture.db.write(permit(ours), "test.start").await.unwrap();
    assert!(saga::start(&mut tx, &SPEC, "thing/2", Some(theirs), &json!({})).await.is_err());
    tx.roll_back().await;

    fixture.settle(&fixture.engine(&Recorder::good()), id).await;
    let key = fixture.key(id).await;
    let mut tx = fixture.db.write(permit(theirs), "test.cancel").await.unwrap();
    assert!(!saga::cancel(&mut tx, "thing/1", "not ours").await.unwrap());
    assert!(!saga::wake(&mut tx, &key, json!(1)).await.unwrap());
    assert!(saga::timeline(tx.conn(), "thing/1").await.unwrap().is_empty());
    tx.commit(None).await.unwrap();

    let mut tx = fixture.db.write(permit(ours), "test.cancel").await.unwrap();
    let timeline = saga::timeline(tx.conn(), "thing/1").await.unwrap();
    let steps: Vec<_> = timeline.iter().map(|e| (e.step.as_str(), e.state.name(), e.attempt)).collect();
    assert_eq!(steps, [("reserve", "done", 1), ("ask", "waiting", 1)]);
    assert!(saga::wake(&mut tx, &key, json!(1)).await.unwrap());
    assert!(saga::cancel(&mut tx, "thing/1", "ours").await.unwrap());
    tx.commit(None).await.unwrap();
    let mut read = fixture.db.read(&fixture.permit()).await.unwrap();
    assert_eq!(saga::timeline(read.conn(), "thing/1").await.unwrap().len(), 2, "the platform sees all");
    assert_eq!(
        fixture.count("SELECT count(*) FROM audit_logs WHERE org_id = '00000000-0000-0000-0000-000000000001' AND action = 'test.record'").await,
        2,
        "steps are audited in the organization's chain"
    );
}

fn permit_of(fixture: &Fixture, org: OrgId) -> Permit {
    let origin = Origin::internal(CorrelationId(fixture.db.ambient().uuid()));
    let user = UserId::from(Uuid::from_u128(9)).uuid();
    let actor = Actor { kind: ActorKind::User, id: Some(user), role: "owner" };
    let granted = Role::OrgOwner.permissions().authorize(Permission::OrgRead).unwrap();
    Permit::granted(actor, Scope::Org(org), origin, granted)
}

#[tokio::test]
async fn the_table_of_the_lifecycle_is_that_of_the_database() {
    let fixture = Fixture::create().await;
    fixture.test.assert_lifecycle::<RunLifecycle>().await;
}
