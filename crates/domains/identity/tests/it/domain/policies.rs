use identity::{
    api::{Policies, Where},
    model::{policy::PolicyScope, role::MemberRole},
    service::{
        members::member_delete,
        policies::{NewPolicy, Place, policy_explain, policy_list, policy_set, policy_unset},
    },
};
use kernel::{
    Code, PageQuery, Permission, Role,
    policy::{IntegerKey, PolicyKey as _, keys},
};
use pg::Scope;
use serde_json::json;

use super::world::World;

const LIMIT: IntegerKey = keys::ALLOCATION_MAX_CONCURRENT_PER_USER;

#[tokio::test]
async fn a_changed_policy_holds_at_once_and_the_narrowest_value_wins() {
    let world = World::new().await;
    let (owner, worker) = (world.user("owner").await, world.user("worker").await);
    let org = world.org("acme", owner).await.id;
    let other = world.org("other", owner).await.id;
    let project = world.project(owner, org, "work").await.id;
    world.member(org, worker, MemberRole::Member).await;
    let policies = Policies::new(world.db().clone());
    let of_worker = Where { org: Some(org), project: Some(project), user: Some(worker) };
    let now = async |place| policies.setting_at(LIMIT, place).await.unwrap().get();
    assert_eq!(now(of_worker).await, 50);

    let set = async |place, value: i64| {
        let mut tx = world.write_in(owner, org, "policy.set").await;
        policy_set(
            &mut tx,
            place,
            LIMIT.definition().key,
            NewPolicy::bound(&json!(value)),
            None,
            &[Role::OrgOwner],
        )
        .await
        .unwrap();
        tx.commit(None).await.unwrap();
    };
    set(Place::Org(org), 20).await;
    assert_eq!(now(of_worker).await, 20);
    set(Place::Project(org, project), 10).await;
    assert_eq!(now(of_worker).await, 10);
    set(Place::User(org, worker), 5).await;
    assert_eq!(now(of_worker).await, 5);
    assert_eq!(now(Where { user: Some(owner), ..of_worker }).await, 10, "somebody else");
    assert_eq!(now(Where { org: Some(other), ..Where::default() }).await, 50, "somewhere else");

    // The platform tightens: what organizations stored before cannot exceed it any more.
    let permit = world.permit(owner, Role::PlatformAdmin, Scope::Platform, Permission::PlatformPolicyManage);
    let mut tx = world.db().write(permit, "policy.set").await.unwrap();
    let seven = json!(7);
    let set = policy_set(
        &mut tx,
        Place::Global,
        LIMIT.definition().key,
        NewPolicy::bound(&seven),
        None,
        &[Role::PlatformAdmin],
    )
    .await;
    assert_eq!(set.unwrap().scope, PolicyScope::Global);
    tx.commit(None).await.unwrap();
    assert_eq!(now(Where { user: None, ..of_worker }).await, 7);
    assert_eq!(now(of_worker).await, 5);

    let mut tx = world.write_in(owner, org, "policy.unset").await;
    policy_unset(&mut tx, Place::User(org, worker), LIMIT.definition().key, Some(1), &[Role::OrgOwner])
        .await
        .unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(now(of_worker).await, 7);
}

#[tokio::test]
async fn values_set_for_a_member_go_with_the_membership() {
    let world = World::new().await;
    let (owner, worker) = (world.user("owner").await, world.user("worker").await);
    let org = world.org("acme", owner).await.id;
    world.member(org, worker, MemberRole::Member).await;
    let mut tx = world.write_in(owner, org, "test").await;
    let place = Place::User(org, worker);
    policy_set(&mut tx, place, LIMIT.definition().key, NewPolicy::bound(&json!(3)), None, &[Role::OrgOwner])
        .await
        .unwrap();
    member_delete(&mut tx, org, worker, None, &[Role::OrgOwner]).await.unwrap();
    let again = policy_set(
        &mut tx,
        place,
        LIMIT.definition().key,
        NewPolicy::bound(&json!(3)),
        None,
        &[Role::OrgOwner],
    )
    .await;
    assert!(again.is_err(), "no value for somebody who is not a member");
    drop(tx);
}

#[tokio::test]
async fn a_global_value_cannot_be_written_from_within_an_organization() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("acme", owner).await.id;
    let mut tx = world.write_in(owner, org, "policy.set").await;
    let refused = policy_set(
        &mut tx,
        Place::Global,
        LIMIT.definition().key,
        NewPolicy::bound(&json!(3)),
        None,
        &[Role::OrgOwner],
    )
    .await;
    assert!(refused.is_err(), "row-level security stands behind the permission");
}

#[tokio::test]
async fn a_limit_that_the_platform_set_is_lifted_by_nobody_below_unless_it_is_a_default() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("acme", owner).await.id;
    let project = world.project(owner, org, "work").await.id;
    let policies = Policies::new(world.db().clone());
    let place = Where { org: Some(org), project: Some(project), user: None };
    let now = async || policies.setting_at(LIMIT, place).await.unwrap().get();
    let set = async |place, value: i64, is_default, role| {
        let mut tx = world.write_in(owner, org, "policy.set").await;
        let value = json!(value);
        let new = NewPolicy { value: &value, is_default };
        policy_set(&mut tx, place, LIMIT.definition().key, new, None, &[role]).await?;
        tx.commit(None).await?;
        Ok::<_, kernel::Failure>(())
    };
    let of_project = Place::Project(org, project);
    set(Place::Org(org), 10, false, Role::PlatformAdmin).await.unwrap();
    assert!(set(Place::Org(org), 50, false, Role::OrgOwner).await.is_err(), "replaced");
    assert!(set(of_project, 50, false, Role::OrgOwner).await.is_err(), "exceeded further down");
    let mut tx = world.write_in(owner, org, "policy.unset").await;
    let removed =
        policy_unset(&mut tx, Place::Org(org), LIMIT.definition().key, None, &[Role::OrgOwner]).await;
    assert!(removed.is_err(), "removed");
    drop(tx);
    assert_eq!(now().await, 10);
    set(of_project, 4, false, Role::OrgOwner).await.unwrap();
    assert_eq!(now().await, 4);
    assert!(set(of_project, 8, false, Role::ProjectOwner).await.is_err(), "the organization's bound");

    set(Place::Org(org), 10, true, Role::PlatformAdmin).await.unwrap();
    set(of_project, 30, true, Role::OrgOwner).await.unwrap();
    assert_eq!(now().await, 30, "a default is overridden");
    set(of_project, 40, false, Role::ProjectOwner).await.unwrap();
    assert_eq!(now().await, 40);
    set(Place::Org(org), 20, false, Role::OrgOwner).await.unwrap();
    assert_eq!(now().await, 20, "a bound holds for what was stored before it");
}

#[tokio::test]
async fn values_of_a_key_that_was_removed_are_neither_read_nor_in_the_way() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("acme", owner).await.id;
    let stored = format!(
        "INSERT INTO policy_values (id, scope, org_id, key, value, updated_by, created_at, updated_at, set_by, is_default)
         SELECT gen_random_uuid(), v.scope, v.org, 'billing.was_removed', v.value, '{owner}', now(), now(), 'platform', false
         FROM (VALUES ('global', NULL::uuid, '\"of another type\"'::jsonb), ('org', '{org}', '7')) AS v (scope, org, value)",
        owner = owner.uuid(),
        org = org.uuid(),
    );
    assert_eq!(world.tamper(&stored).await, 2);

    let policies = Policies::new(world.db().clone());
    let place = Where { org: Some(org), ..Where::default() };
    assert_eq!(policies.setting_at(LIMIT, place).await.unwrap().get(), 50);
    let mut tx = world.read_in(owner, org).await;
    let all: PageQuery = serde_json::from_value(json!({ "page_size": 200 })).unwrap();
    let listed = policy_list(&mut tx, Place::Org(org), &all).await.unwrap();
    assert_eq!(listed.items.len(), kernel::policy::ALL.len());
    assert!(listed.items.iter().all(|policy| policy.key != "billing.was_removed"));
    let explained = policy_explain(&mut tx, Place::Org(org), "billing.was_removed").await;
    assert!(matches!(explained, Err(kernel::Failure::Problem(problem)) if problem.code == Code::NotFound));
    drop(tx);
    let mut tx = world.write_in(owner, org, "policy.set").await;
    let (key, three) = (LIMIT.definition().key, json!(3));
    policy_set(&mut tx, Place::Org(org), key, NewPolicy::bound(&three), None, &[Role::OrgOwner])
        .await
        .unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(policies.setting_at(LIMIT, place).await.unwrap().get(), 3);
}
