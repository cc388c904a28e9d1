//! Who may log in.

use capacity::service::access::{access_refresh, desired_keys, grant_create, grant_delete, grant_list};
use kernel::{
    Code, PageQuery,
    ids::{AllocationId, UserId},
};
use testworld::ssh_key_named;

use super::world::{World, code, ended};

async fn grant(world: &World, id: AllocationId, user: UserId) -> Option<Code> {
    let mut tx = world.as_user(world.creator).await;
    let asked = world.asked(id);
    let result = grant_create(&world.capacity, &mut tx, asked, world.creator, user).await;
    code(ended(tx, result).await)
}

async fn keys(world: &World, id: AllocationId) -> Vec<String> {
    let mut tx = world.as_user(world.creator).await;
    let allocation = access_refresh(&world.capacity, &mut tx, world.asked(id)).await.unwrap();
    let keys = desired_keys(&mut tx, &allocation).await.unwrap();
    tx.roll_back().await;
    keys
}

async fn versions(world: &World, id: AllocationId) -> i64 {
    world.count(&format!("SELECT access_version FROM allocations WHERE id = '{}'", id.uuid())).await
}

#[tokio::test]
async fn the_key_set_is_that_of_the_creator_and_of_granted_members_each_key_once() {
    let world = World::new().await;
    let id = world.allocation("active").await;
    world.stores_key(world.creator, "BBB").await;
    world.stores_key(world.creator, "AAA").await;
    world.stores_key(world.other, "CCC").await;
    world.stores_key(world.other, "AAA").await;
    assert_eq!(keys(&world, id).await, ["AAA", "BBB"].map(ssh_key_named));
    assert_eq!(grant(&world, id, world.other).await, None);
    assert_eq!(keys(&world, id).await, ["AAA", "BBB", "CCC"].map(ssh_key_named));
    let gone = format!("DELETE FROM tenant_memberships WHERE user_id = '{}'", world.other.uuid());
    world.sql(&gone).await;
    assert_eq!(keys(&world, id).await, ["AAA", "BBB"].map(ssh_key_named), "no longer a member");
}

#[tokio::test]
async fn each_change_is_a_new_version_and_one_workflow_brings_the_newest() {
    let world = World::new().await;
    for shape in ["baremetal", "gpu_slice"] {
        let id = world.allocations("active", shape, 1).await[0];
        if shape == "baremetal" {
            world.stores_key(world.other, "CCC").await;
        }
        let subject = format!("{id}/access");
        assert_eq!(grant(&world, id, world.other).await, None);
        assert_eq!((versions(&world, id).await, world.live_runs(&subject).await), (2, 1));
        let mut tx = world.as_user(world.creator).await;
        let result = grant_delete(&world.capacity, &mut tx, world.asked(id), world.other).await;
        ended(tx, result).await.unwrap();
        assert_eq!((versions(&world, id).await, world.live_runs(&subject).await), (3, 1));
        let seen = format!(
            "SELECT count(*) FROM allocation_events WHERE kind = 'access' AND allocation_id = '{}'",
            id.uuid()
        );
        assert_eq!(world.count(&seen).await, 2);
    }
    let launching = world.allocation("provisioning").await;
    assert_eq!(grant(&world, launching, world.other).await, None);
    assert_eq!(world.live_runs(&format!("{launching}/access")).await, 0, "the launch itself takes it up");
}

#[tokio::test]
async fn a_grant_is_refused_to_strangers_to_the_creator_and_twice() {
    let world = World::new().await;
    let id = world.allocation("active").await;
    assert_eq!(grant(&world, id, world.other).await, Some(Code::Unprocessable), "has no key");
    world.stores_key(world.operator, "OPERATOR").await;
    assert_eq!(grant(&world, id, world.operator).await, Some(Code::Unprocessable), "is no member");
    assert_eq!(grant(&world, id, world.creator).await, Some(Code::ValidationError));
    world.stores_key(world.other, "CCC").await;
    assert_eq!(grant(&world, id, world.other).await, None);
    assert_eq!(grant(&world, id, world.other).await, Some(Code::AlreadyExists));
    assert_eq!(versions(&world, id).await, 2);
    let mut tx = world.as_user(world.other).await;
    let result = grant_delete(&world.capacity, &mut tx, world.asked(id), world.other).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::OwnershipRequired));
}

#[tokio::test]
async fn access_to_what_is_ending_cannot_be_changed() {
    let world = World::new().await;
    world.stores_key(world.other, "CCC").await;
    for state in ["releasing", "release_failed", "released", "failed"] {
        let id = world.allocation(state).await;
        assert_eq!(grant(&world, id, world.other).await, Some(Code::InvalidTransition), "{state}");
    }
}

#[tokio::test]
async fn grants_are_listed_in_pages() {
    let world = World::new().await;
    let id = world.allocation("active").await;
    world.stores_key(world.other, "CCC").await;
    assert_eq!(grant(&world, id, world.other).await, None);
    let permit = {
        let tx = world.as_user(world.creator).await;
        let permit = tx.permit().clone();
        tx.roll_back().await;
        permit
    };
    let mut tx = world.test.db.read(&permit).await.unwrap();
    let page = grant_list(&mut tx, world.project, id, &PageQuery::default()).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!((page.items[0].user_id, page.items[0].granted_by), (world.other, world.creator));
    assert!(page.next_cursor.is_none());
}
