//! What decides when a second person is needed, and who that can be, is changed by two people.

use identity::model::sensitive_change::SensitiveChangeState;
use identity::{
    api::{Policies, Where},
    model::{person::PlatformUser, role::PlatformRole, sensitive_change::SensitiveChange},
    service::{
        people::platform_roles_set,
        policies::{NewPolicy, Place, policy_set, policy_unset},
        sensitive_changes::{
            Decider, Wanted, sensitive_change_approve, sensitive_change_propose, sensitive_change_reject,
        },
    },
};
use kernel::{
    Code, Failure, Permission, Role,
    ids::{SensitiveChangeId, UserId},
    policy::{IntegerKey, keys},
    text::Reason,
};
use pg::{Scope, WriteTx};
use serde_json::{Value, json};

use super::world::World;

const KEY: &str = "billing.adjustment_approval_minor";
const LIMIT: IntegerKey = keys::BILLING_ADJUSTMENT_APPROVAL_MINOR;
const ADMIN: &[Role] = &[Role::PlatformAdmin];

async fn write(world: &World, who: UserId) -> WriteTx {
    let permit = world.permit(who, Role::PlatformAdmin, Scope::Platform, Permission::MoneyManage);
    world.db().write(permit, "test").await.unwrap()
}

async fn propose(world: &World, who: UserId, wanted: Wanted) -> Result<SensitiveChange, Failure> {
    let mut tx = write(world, who).await;
    let change = sensitive_change_propose(&mut tx, who, wanted, Reason::parse("we agreed").unwrap()).await?;
    tx.commit(None).await.unwrap();
    Ok(change)
}

fn decider(user: UserId) -> Decider<'static> {
    Decider { user, roles: ADMIN, permissions: Role::PlatformAdmin.permissions() }
}

async fn approve(world: &World, who: UserId, id: SensitiveChangeId) -> Result<SensitiveChange, Failure> {
    let mut tx = write(world, who).await;
    let done = sensitive_change_approve(&mut tx, decider(who), id).await?;
    tx.commit(None).await.unwrap();
    Ok(done)
}

async fn roles_set(
    world: &World,
    who: UserId,
    user: UserId,
    roles: &[PlatformRole],
) -> Result<PlatformUser, Failure> {
    let mut tx = write(world, who).await;
    let done = platform_roles_set(&mut tx, user, roles.to_vec()).await?;
    tx.commit(None).await.unwrap();
    Ok(done)
}

#[track_caller]
fn needs_two<T: std::fmt::Debug>(outcome: Result<T, Failure>) {
    match outcome.unwrap_err() {
        Failure::Problem(problem) => {
            assert_eq!(problem.code, Code::InsufficientPermissions);
            assert_eq!(problem.details["reason"], "second_approver_required");
            assert!(problem.suggestion.is_some());
        }
        other => panic!("{other:?}"),
    }
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Failure>) -> Code {
    match outcome.unwrap_err() {
        Failure::Problem(problem) => problem.code,
        other => panic!("{other:?}"),
    }
}

/// Two administrators, as a table of an earlier release may hold them.
async fn two_admins(world: &World) -> [UserId; 2] {
    let pair = [world.user("ada").await, world.user("ben").await];
    world.tamper("INSERT INTO platform_bindings SELECT id, 'platform_admin', now() FROM users").await;
    pair
}

#[tokio::test]
async fn the_amount_above_which_two_are_needed_is_changed_by_two() {
    let world = World::new().await;
    let [ada, ben] = two_admins(&world).await;
    let org = world.org("acme", ada).await.id;
    let policies = Policies::new(world.db().clone());
    let limit =
        async |org| policies.setting_at(LIMIT, Where { org, ..Where::default() }).await.unwrap().get();
    let before = limit(None).await;
    // Neither for the platform nor for one organization, neither up nor down, neither by setting nor by removing.
    for place in [Place::Global, Place::Org(org)] {
        for value in [json!(0), json!(1_000_000)] {
            let mut tx = write(&world, ada).await;
            needs_two(policy_set(&mut tx, place, KEY, NewPolicy::bound(&value), None, ADMIN).await);
            needs_two(policy_unset(&mut tx, place, KEY, None, ADMIN).await);
        }
    }
    let wanted = |value: Option<Value>, org| Wanted::Policy { key: KEY.to_owned(), org, value };
    let change = propose(&world, ada, wanted(Some(json!(777)), None)).await.unwrap();
    assert_eq!((change.state, limit(None).await), (SensitiveChangeState::Proposed, before));
    needs_two(approve(&world, ada, change.id).await);
    assert_eq!(limit(None).await, before);
    let done = approve(&world, ben, change.id).await.unwrap();
    assert_eq!((done.state, done.decided_by, done.alone), (SensitiveChangeState::Applied, Some(ben), false));
    assert_eq!(limit(None).await, 777);
    assert_eq!(code(approve(&world, ben, change.id).await), Code::InvalidTransition);
    // For one organization, and back.
    let change = propose(&world, ben, wanted(Some(json!(5)), Some(org))).await.unwrap();
    approve(&world, ada, change.id).await.unwrap();
    assert_eq!((limit(Some(org)).await, limit(None).await), (5, 777));
    let change = propose(&world, ben, wanted(None, Some(org))).await.unwrap();
    approve(&world, ada, change.id).await.unwrap();
    assert_eq!(limit(Some(org)).await, 777);
    // What is rejected never holds.
    let change = propose(&world, ada, wanted(Some(json!(1)), None)).await.unwrap();
    let mut tx = write(&world, ben).await;
    sensitive_change_reject(&mut tx, decider(ben), change.id).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(code(approve(&world, ben, change.id).await), Code::InvalidTransition);
    assert_eq!(limit(None).await, 777);
}

#[tokio::test]
async fn what_one_person_may_set_and_values_that_do_not_fit_are_not_proposed() {
    let world = World::new().await;
    let [ada, _] = two_admins(&world).await;
    let user = world.user("cleo").await;
    let policy = |key: &str, value| Wanted::Policy { key: key.to_owned(), org: None, value: Some(value) };
    for (wanted, expected) in [
        (policy("billing.window_seconds", json!(60)), Code::Unprocessable),
        (policy("no.such_approval_minor", json!(60)), Code::NotFound),
        (policy(KEY, json!(-1)), Code::ValidationError),
        (policy(KEY, json!(null)), Code::ValidationError),
        (Wanted::PlatformRoles { user, roles: vec![PlatformRole::PlatformOps] }, Code::Unprocessable),
        (Wanted::PlatformRoles { user: UserId::from(uuid::Uuid::nil()), roles: vec![] }, Code::NotFound),
    ] {
        assert_eq!(code(propose(&world, ada, wanted.clone()).await), expected, "{wanted:?}");
    }
}

#[tokio::test]
async fn the_right_to_approve_is_given_by_two() {
    let world = World::new().await;
    let [ada, ben] = two_admins(&world).await;
    let puppet = world.user("puppet").await;
    let admin = [PlatformRole::PlatformAdmin];
    needs_two(roles_set(&world, ada, puppet, &admin).await);
    needs_two(
        roles_set(&world, ada, puppet, &[PlatformRole::PlatformOps, PlatformRole::PlatformAdmin]).await,
    );
    // Roles without that right are for one person to give.
    roles_set(&world, ada, puppet, &[PlatformRole::PlatformOps]).await.unwrap();
    let wanted = Wanted::PlatformRoles { user: puppet, roles: admin.to_vec() };
    let change = propose(&world, ada, wanted).await.unwrap();
    needs_two(approve(&world, ada, change.id).await);
    let has = "SELECT count(*) FROM platform_bindings WHERE role = 'platform_admin' AND user_id = $1";
    assert_eq!(world.count(has, puppet.uuid()).await, 0);
    let done = approve(&world, ben, change.id).await.unwrap();
    assert_eq!((done.state, world.count(has, puppet.uuid()).await), (SensitiveChangeState::Applied, 1));
    // Dismissing everybody else does not make one person enough.
    for other in [ben, puppet] {
        roles_set(&world, ada, other, &[]).await.unwrap();
    }
    needs_two(roles_set(&world, ada, puppet, &admin).await);
}

#[tokio::test]
async fn a_new_installation_appoints_its_second_administrator_alone_and_nobody_after_that() {
    let world = World::new().await;
    let first = world.user("first").await;
    world.tamper("INSERT INTO platform_bindings SELECT id, 'platform_admin', now() FROM users").await;
    let (second, third) = (world.user("second").await, world.user("third").await);
    let admin = [PlatformRole::PlatformAdmin];
    roles_set(&world, first, second, &admin).await.unwrap();
    let kept = "SELECT count(*) FROM sensitive_changes WHERE alone AND user_id = $1";
    assert_eq!(world.count(kept, second.uuid()).await, 1);
    needs_two(roles_set(&world, first, third, &admin).await);
    roles_set(&world, first, second, &[]).await.unwrap();
    needs_two(roles_set(&world, first, third, &admin).await);
    needs_two(roles_set(&world, first, second, &admin).await);
}

#[tokio::test]
async fn the_database_refuses_a_change_that_one_person_applied() {
    let world = World::new().await;
    let [ada, ben] = two_admins(&world).await;
    let wanted = Wanted::Policy { key: KEY.to_owned(), org: None, value: Some(json!(1)) };
    let change = propose(&world, ada, wanted).await.unwrap();
    let mut owner = world.test.conn(pg::Roles::Admin).await;
    for (by, alone, good) in [(ada, false, false), (ada, true, false), (ben, true, false), (ben, false, true)]
    {
        let done = sqlx::query(
            "UPDATE sensitive_changes SET state = 'applied', decided_by = $2, alone = $3 WHERE id = $1",
        )
        .bind(change.id.uuid())
        .bind(by.uuid())
        .bind(alone)
        .execute(&mut owner)
        .await;
        assert_eq!(done.is_ok(), good, "{by} {alone}");
    }
}
