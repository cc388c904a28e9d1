//! Where things live, and how soon a change is seen.

use crate::kit::{Kit, sql};
use endpoint::{Directory as _, OrgFacts};
use identity::authn::Places;
use kernel::{
    CorrelationId,
    ids::{InvitationId, OrgId, ProjectId},
};
use pg::{Origin, Permit, Roles};
use testkit::Browser;
use uuid::Uuid;

async fn id(kit: &Kit, query: &'static str) -> Uuid {
    sqlx::query_scalar(query).fetch_one(&mut kit.db.conn(Roles::Admin).await).await.unwrap()
}

#[tokio::test]
async fn places_are_found_and_changes_are_seen_within_three_seconds_or_at_once_when_announced() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let places = Places::new(kit.db.db.clone());
    let org = OrgId::from(id(&kit, "SELECT id FROM organizations").await);
    let project = ProjectId::from(id(&kit, "SELECT id FROM projects").await);
    assert_eq!(places.org(org).await.unwrap(), Some(OrgFacts { suspended: false }));
    assert_eq!(places.project(project).await.unwrap().map(|p| (p.org, p.suspended)), Some((org, false)));
    assert_eq!(places.org(OrgId::from(project.uuid())).await.unwrap(), None);

    sql(&kit.db, "UPDATE organizations SET suspended_at = now(), suspended_reason = 'unpaid'").await;
    assert_eq!(
        places.org(org).await.unwrap(),
        Some(OrgFacts { suspended: false }),
        "remembered for the moment"
    );
    kit.advance(3);
    assert_eq!(places.org(org).await.unwrap(), Some(OrgFacts { suspended: true }));
    assert!(places.project(project).await.unwrap().unwrap().suspended);

    sql(&kit.db, "UPDATE organizations SET suspended_at = NULL, suspended_reason = NULL").await;
    let origin = Origin::internal(CorrelationId(Uuid::nil()));
    let mut tx = kit.db.db.write(Permit::system("announce", origin), "test.announce").await.unwrap();
    tx.invalidate(format!("org:{}", org.uuid()));
    tx.commit(None).await.unwrap();
    assert_eq!(places.org(org).await.unwrap(), Some(OrgFacts { suspended: false }));
    assert!(!places.project(project).await.unwrap().unwrap().suspended);
}

#[tokio::test]
async fn only_pending_invitations_are_found() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let places = Places::new(kit.db.db.clone());
    sql(
        &kit.db,
        "INSERT INTO invitations (id, org_id, email, role, token_hash, invited_by, expires_at, created_at, updated_at)
         SELECT gen_random_uuid(), id, 'bob@example.org', 'member', '\\x00', gen_random_uuid(), now(), now(), now()
         FROM organizations",
    )
    .await;
    let org = OrgId::from(id(&kit, "SELECT id FROM organizations").await);
    let invitation = InvitationId::from(id(&kit, "SELECT id FROM invitations").await);
    assert_eq!(places.invitation(invitation).await.unwrap(), Some(org));
    sql(&kit.db, "UPDATE invitations SET state = 'revoked'").await;
    assert_eq!(places.invitation(invitation).await.unwrap(), None, "never remembered");
}
