use identity::{
    api::{Policies, Where},
    model::{policy::PolicyScope, role::MemberRole},
    service::{
        members::member_delete,
        policies::{NewPolicy, Place, policy_set, policy_unset},
    },
};
use kernel::{
    Permission, Role,
    policy::{IntegerKey, keys},
};
use pg::Scope;
use serde_json::json;

use super::world::World;

const LIMIT: IntegerKey = IntegerKey(&keys::ALLOCATION_MAX_CONCURRENT_PER_USER);

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
        policy_set(&mut tx, place, LIMIT.0.key, NewPolicy::bound(&json!(value)), None, &[Role::OrgOwner])
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
        LIMIT.0.key,
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
    policy_unset(&mut tx, Place::User(org, worker), LIMIT.0.key, Some(1), &[Role::OrgOwner]).await.unwrap();
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
    policy_set(&mut tx, place, LIMIT.0.key, NewPolicy::bound(&json!(3)), None, &[Role::OrgOwner])
        .await
        .unwrap();
    member_delete(&mut tx, org, worker, None, &[Role::OrgOwner]).await.unwrap();
    let again =
        policy_set(&mut tx, place, LIMIT.0.key, NewPolicy::bound(&json!(3)), None, &[Role::OrgOwner]).await;
    assert!(again.is_err(), "no value for somebody who is not a member");
    drop(tx);
}

#[tokio::test]
async fn a_global_value_cannot_be_written_from_within_an_organization() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("acme", owner).await.id;
    let mut tx = world.write_in(owner, org, "policy.set").await;
    let refused =
        policy_set(&mut tx, Place::Global, LIMIT.0.key, NewPolicy::bound(&json!(3)), None, &[Role::OrgOwner])
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
        policy_set(&mut tx, place, LIMIT.0.key, new, None, &[role]).await?;
        tx.commit(None).await?;
        Ok::<_, kernel::Failure>(())
    };
    let of_project = Place::Project(org, project);
    set(Place::Org(org), 10, false, Role::PlatformAdmin).await.unwrap();
    assert!(set(Place::Org(org), 50, false, Role::OrgOwner).await.is_err(), "replaced");
    assert!(set(of_project, 50, false, Role::OrgOwner).await.is_err(), "exceeded further down");
    let mut tx = world.write_in(owner, org, "policy.unset").await;
    let removed = policy_unset(&mut tx, Place::Org(org), LIMIT.0.key, None, &[Role::OrgOwner]).await;
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
