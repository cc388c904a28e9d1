//! Who may end and restart what, and what it does.

use capacity::{
    model::allocation::ReleaseCause,
    service::release::{
        allocation_release, allocation_restart, allocation_retry, force_release, release_for_depletion,
    },
};
use kernel::{Code, ids::AllocationId, text::Reason};
use pg::Scope;

use super::world::{World, code, ended};

async fn release_by(world: &World, user: kernel::ids::UserId, id: AllocationId, any: bool) -> Option<Code> {
    let mut tx = world.as_user(user).await;
    let asked = capacity::service::release::Asked { any, ..world.asked(id) };
    let result = allocation_release(&world.capacity, &mut tx, asked).await;
    code(ended(tx, result).await)
}

#[tokio::test]
async fn a_member_releases_their_own_and_an_admin_anybodys() {
    let world = World::new().await;
    let (own, others) = (world.allocation("active").await, world.allocation("active").await);
    assert_eq!(release_by(&world, world.other, own, false).await, Some(Code::OwnershipRequired));
    assert_eq!(world.state(own).await, "active");
    assert_eq!(release_by(&world, world.creator, own, false).await, None);
    assert_eq!(release_by(&world, world.other, others, true).await, None);
    for id in [own, others] {
        assert_eq!(world.state(id).await, "releasing");
        assert_eq!(world.meters(id, "close").await, 1);
        assert_eq!(world.live_runs(&id.to_string()).await, 1);
    }
}

#[tokio::test]
async fn other_tenants_and_other_projects_do_not_find_it() {
    let world = World::new().await;
    let id = world.allocation("active").await;
    let second = world.tenants.tenant("second").await;
    let sibling = world.tenants.project(world.org, "sibling").await.id;
    let mut tx = world.as_user_in(world.creator, Scope::Project(second.org, second.project)).await;
    let asked = capacity::service::release::Asked { any: true, ..world.asked(id) };
    let result = allocation_release(&world.capacity, &mut tx, asked).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::NotFound), "another organization");
    let mut tx = world.as_user_in(world.creator, Scope::Project(world.org, sibling)).await;
    let asked = capacity::service::release::Asked { project: sibling, ..asked };
    let result = allocation_release(&world.capacity, &mut tx, asked).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::NotFound), "another project");
    assert_eq!(world.state(id).await, "active");
}

#[tokio::test]
async fn a_release_that_is_asked_for_twice_has_one_effect() {
    let world = World::new().await;
    let id = world.allocation("active").await;
    for _ in 0..3 {
        assert_eq!(release_by(&world, world.creator, id, false).await, None);
    }
    assert_eq!((world.events(id, "release").await, world.meters(id, "close").await), (1, 1));
    assert_eq!(world.live_runs(&id.to_string()).await, 1);
    let over = world.allocation("released").await;
    assert_eq!(release_by(&world, world.creator, over, false).await, None);
    assert_eq!(world.events(over, "release").await, 0);
}

#[tokio::test]
async fn a_version_that_is_not_current_changes_nothing() {
    let world = World::new().await;
    let id = world.allocation("active").await;
    let mut tx = world.as_user(world.creator).await;
    let asked = capacity::service::release::Asked { if_match: Some(7), ..world.asked(id) };
    let result = allocation_release(&world.capacity, &mut tx, asked).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::Conflict));
    assert_eq!(world.state(id).await, "active");
}

#[tokio::test]
async fn a_launch_under_way_is_cancelled_and_stays_until_it_is_taken_back() {
    let world = World::new().await;
    for state in ["requested", "provisioning"] {
        let id = world.allocation(state).await;
        for _ in 0..2 {
            assert_eq!(release_by(&world, world.creator, id, false).await, None);
        }
        assert_eq!(world.state(id).await, state);
        let cancelled =
            format!("SELECT count(*) FROM saga_runs WHERE subject = '{id}' AND cancel_reason IS NOT NULL");
        assert_eq!(world.count(&cancelled).await, 1);
        assert_eq!((world.events(id, "cancel").await, world.meters(id, "close").await), (1, 0));
    }
}

#[tokio::test]
async fn only_a_failed_release_is_tried_again_and_the_meter_stays_closed() {
    let world = World::new().await;
    let failed = world.allocation("release_failed").await;
    for state in ["active", "releasing", "released"] {
        let id = world.allocation(state).await;
        let mut tx = world.as_user(world.creator).await;
        let result = allocation_retry(&mut tx, world.asked(id)).await;
        assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition), "{state}");
    }
    let mut tx = world.as_system().await;
    let result = release_for_depletion(&world.capacity, &mut tx, failed).await;
    ended(tx, result).await.unwrap();
    assert_eq!(world.state(failed).await, "release_failed", "nobody who pays is left, so nobody retries");
    let mut tx = world.as_user(world.creator).await;
    let result = allocation_retry(&mut tx, world.asked(failed)).await;
    ended(tx, result).await.unwrap();
    assert_eq!(world.state(failed).await, "releasing");
    assert_eq!(world.live_runs(&failed.to_string()).await, 1);
    assert_eq!(world.meters(failed, "close").await, 0);
}

#[tokio::test]
async fn a_restart_needs_an_active_allocation_and_nothing_else_under_way() {
    let world = World::new().await;
    for shape in ["baremetal", "gpu_slice"] {
        let id = world.allocations("active", shape, 1).await[0];
        let mut tx = world.as_user(world.creator).await;
        let result = allocation_restart(&world.capacity, &mut tx, world.asked(id)).await;
        assert!(ended(tx, result).await.unwrap().restart_order.is_some());
        let restarting = format!("{id}/restart");
        assert_eq!((world.live_runs(&restarting).await, world.events(id, "restart").await), (1, 1));
        let mut tx = world.as_user(world.creator).await;
        let result = allocation_restart(&world.capacity, &mut tx, world.asked(id)).await;
        assert_eq!(code(ended(tx, result).await), Some(Code::Conflict), "a restart is under way");
        assert_eq!(
            release_by(&world, world.creator, id, false).await,
            None,
            "nobody pays for a restart that hangs"
        );
        assert_eq!((world.state(id).await.as_str(), world.meters(id, "close").await), ("releasing", 1));
        let cancelled = "SELECT count(*) FROM saga_runs WHERE cancel_reason IS NOT NULL AND subject =";
        assert_eq!(world.count(&format!("{cancelled} '{restarting}'")).await, 1);
    }
    let id = world.allocation("provisioning").await;
    let mut tx = world.as_user(world.creator).await;
    let result = allocation_restart(&world.capacity, &mut tx, world.asked(id)).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition));
}

#[tokio::test]
async fn what_an_operator_does_stands_in_the_tenants_audit_trail() {
    let world = World::new().await;
    let id = world.allocation("active").await;
    let reason = Reason::parse("the machine is on fire").unwrap();
    let mut tx = world.as_operator().await;
    let result = force_release(&world.capacity, &mut tx, id, &reason, None).await;
    let after = ended(tx, result).await.unwrap();
    assert!(after.state_reason.contains("on fire"), "{}", after.state_reason);
    assert_eq!(after.release_cause, Some(ReleaseCause::Admin));
    let audited = format!(
        "SELECT count(*) FROM audit_logs WHERE org_id = '{}' AND target_id = '{id}' AND action = 'allocation.test'",
        world.org.uuid()
    );
    assert_eq!(world.count(&audited).await, 1);
    for event in ["provisioning.releasing.requested", "provisioning.force_release_requested"] {
        let told = format!(
            "SELECT count(*) FROM outbox_events WHERE event_type = '{event}' AND payload ->> 'allocation_id' = '{id}'"
        );
        assert_eq!(world.count(&told).await, 1, "{event}");
    }
}
