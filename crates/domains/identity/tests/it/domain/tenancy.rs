//! Row-level security: the second line of defence, tried without the first.

use identity::{
    model::{invitation::InvitationLimits, role::MemberRole},
    service::{
        invitations::{Invite, invitation_create},
        policies::{NewPolicy, Place, policy_set},
        service_accounts::{NewAccount, service_account_create, service_account_key_create},
    },
};
use kernel::{
    Permission, Role,
    ids::{OrgId, UserId},
    policy::{PolicyKey as _, keys},
    text::{Email, Name},
};
use pg::Scope;
use uuid::Uuid;

use super::world::World;

/// An organization with a row in every tenant table of identity. That nobody sees those of others, in the tables of all
/// domains, is tried where all domains are (`tenant_rows` of gpuaasd).
async fn furnished(world: &World, slug: &str) -> (UserId, OrgId) {
    let owner = world.user(&format!("owner-of-{slug}")).await;
    let org = world.org(slug, owner).await.id;
    let project = world.project(owner, org, "work").await;
    let mut tx = world.write_in(owner, org, "test.furnish").await;
    let invite = Invite {
        email: Email::parse("guest@example.org").unwrap(),
        role: MemberRole::Member,
        project: None,
        invited_by: owner,
    };
    invitation_create(&mut tx, org, invite, InvitationLimits::default(), &[Role::OrgOwner]).await.unwrap();
    let bot = NewAccount::reader(Name::parse("bot").unwrap());
    let account = service_account_create(&mut tx, org, project.id, bot).await.unwrap();
    let limit = keys::KEYS_PER_SERVICE_ACCOUNT.default_setting();
    service_account_key_create(&mut tx, (org, project.id), account.id, None, limit).await.unwrap();
    policy_set(
        &mut tx,
        Place::Org(org),
        "quota.gpus_per_org",
        NewPolicy::bound(&4.into()),
        None,
        &[Role::PlatformAdmin],
    )
    .await
    .unwrap();
    tx.commit(None).await.unwrap();
    (owner, org)
}

#[tokio::test]
async fn an_update_without_a_tenant_filter_changes_only_its_own_organization() {
    let world = World::new().await;
    let (alice, a) = furnished(&world, "a").await;
    let (_, b) = furnished(&world, "b").await;
    let mut tx = world.write_in(alice, a, "test.careless").await;
    sqlx::query("UPDATE projects SET name = 'mine now'").execute(tx.conn()).await.unwrap();
    sqlx::query("DELETE FROM policy_values").execute(tx.conn()).await.unwrap();
    tx.commit(None).await.unwrap();
    let taken = "SELECT count(*) FROM projects WHERE org_id = $1 AND name = 'mine now'";
    assert_eq!(world.count(taken, a.uuid()).await, 2);
    assert_eq!(world.count(taken, b.uuid()).await, 0);
    assert_eq!(world.count("SELECT count(*) FROM policy_values WHERE org_id = $1", b.uuid()).await, 1);
}

#[tokio::test]
async fn a_row_cannot_be_put_into_another_organization() {
    let world = World::new().await;
    let (alice, a) = furnished(&world, "a").await;
    let (_, b) = furnished(&world, "b").await;
    for sql in [
        "INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at) VALUES ($1, $2, 'owner', now(), now())",
        "UPDATE projects SET org_id = $1 WHERE org_id <> $2",
    ] {
        let mut tx = world.write_in(alice, a, "test.intrude").await;
        let refused = sqlx::query(sql).bind(b.uuid()).bind(alice.uuid()).execute(tx.conn()).await;
        assert!(refused.is_err_and(|e| e.to_string().contains("row-level security")), "{sql}");
    }
}

#[tokio::test]
async fn a_person_without_an_organization_sees_themselves_and_their_own_places() {
    let world = World::new().await;
    let (alice, a) = furnished(&world, "a").await;
    furnished(&world, "b").await;
    let permit = world.permit(alice, Role::Person, Scope::Person, Permission::SelfRead);
    let mut read = world.db().read(&permit).await.unwrap();
    for (sql, expected) in [
        ("SELECT id FROM users", vec![alice.uuid()]),
        ("SELECT id FROM organizations", vec![a.uuid()]),
        ("SELECT org_id FROM tenant_memberships", vec![a.uuid()]),
        ("SELECT id FROM projects", vec![]),
        ("SELECT id FROM invitations", vec![]),
        ("SELECT id FROM service_account_keys", vec![]),
        ("SELECT id FROM audit_logs", vec![]),
    ] {
        let seen: Vec<Uuid> = sqlx::query_scalar(sql).fetch_all(read.conn()).await.unwrap();
        assert_eq!(seen, expected, "{sql}");
    }
}
