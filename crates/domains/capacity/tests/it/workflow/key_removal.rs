//! Whoever loses access loses it on machines: at once, when the node is back, or with the launch that is under way.

use capacity::{
    model::access::MachinesOf,
    service::{
        access::grant_create,
        key_removal::{keys_remove, keys_remove_all},
    },
};
use chrono::TimeDelta;
use kernel::ids::AllocationId;
use node_proto::{Task, Work};
use saga::Engine;

use super::{
    invariants,
    kit::{Kit, MACHINE, SLICE},
};

const THEIRS: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNyZWF0b3IAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const OTHERS: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRoZS1vdGhlcgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const RETAIN: [&str; 2] = ["allocation.retain_authorized_keys", "slice.vm_retain_authorized_keys"];
const INSTALL: [&str; 2] = ["allocation.install_authorized_keys", "slice.vm_authorized_keys"];

async fn grant(kit: &Kit, id: AllocationId) {
    let mut tx = kit.as_creator().await;
    grant_create(&kit.capacity, &mut tx, kit.asked(id), kit.creator, kit.other).await.unwrap();
    tx.commit(None).await.unwrap();
}

/// A machine to which two people can log in.
async fn shared(kit: &Kit, sku: &str) -> AllocationId {
    let id = kit.active(sku).await;
    grant(kit, id).await;
    assert_eq!(kit.drive(&format!("{id}/access")).await, "succeeded");
    id
}

/// The kind and the keys of the work that was queued last for the allocation.
async fn last_sent(kit: &Kit, id: AllocationId) -> (&'static str, Vec<String>) {
    let payload: Vec<u8> = kit
        .one(&format!(
            "SELECT payload FROM node_tasks t JOIN allocations a ON a.node_id = t.node_id
             WHERE a.id = '{}' AND task_type LIKE '%authorized_keys' ORDER BY t.id DESC LIMIT 1",
            id.uuid()
        ))
        .await;
    let work = serde_json::from_slice::<Task>(&payload).unwrap().work().unwrap();
    let kind = work.kind().name();
    match work {
        Work::InstallAuthorizedKeys(input) | Work::RetainAuthorizedKeys(input) => {
            (kind, input.authorized_keys)
        }
        Work::VmAuthorizedKeys(input) | Work::VmRetainAuthorizedKeys(input) => (kind, input.authorized_keys),
        other => panic!("{other:?}"),
    }
}

async fn recorded(kit: &Kit, id: AllocationId) -> String {
    kit.one(&format!(
        "SELECT coalesce(string_agg(public_key || CASE WHEN removed_version IS NULL THEN '' ELSE ' goes' END, ', '
             ORDER BY public_key), '') FROM allocation_keys WHERE allocation_id = '{}'",
        id.uuid()
    ))
    .await
}

async fn is_current(kit: &Kit, id: AllocationId) -> bool {
    kit.one(&format!("SELECT access_version = installed_access FROM allocations WHERE id = '{}'", id.uuid()))
        .await
}

async fn remove(kit: &Kit, of: MachinesOf) -> usize {
    keys_remove(&kit.capacity, of, &kit.origin()).await.unwrap()
}

async fn delete_their_key(kit: &Kit) {
    kit.sql(&format!("DELETE FROM user_ssh_keys WHERE public_key = '{OTHERS}'")).await;
}

/// What is so before, and how access is lost; `$other` is who loses it.
const LOSSES: &[(&str, &str)] = &[
    ("", "DELETE FROM project_memberships WHERE user_id = '$other'"),
    ("", "DELETE FROM tenant_memberships WHERE user_id = '$other'"),
    ("", "DELETE FROM user_ssh_keys WHERE user_id = '$other'"),
    (
        "DELETE FROM project_memberships WHERE user_id = '$other';
         UPDATE tenant_memberships SET role = 'admin' WHERE user_id = '$other'",
        "UPDATE tenant_memberships SET role = 'member' WHERE user_id = '$other'",
    ),
    (
        "INSERT INTO local_accounts (id, email, name, password_hash, must_change_password, created_at, updated_at)
             VALUES ('$other', 'o@test', 'Other', 'x', false, now(), now());
         UPDATE users SET subject = 'acct_' || replace('$other', '-', '') WHERE id = '$other'",
        "UPDATE local_accounts SET disabled_at = now()",
    ),
];

#[tokio::test]
async fn whoever_loses_access_loses_it_on_the_machine_however_that_came() {
    for (before, loss) in LOSSES {
        let kit = Kit::new().await;
        let other = kit.other.uuid().to_string();
        kit.sql(&before.replace("$other", &other)).await;
        let ids = [shared(&kit, MACHINE).await, shared(&kit, SLICE).await];
        assert_eq!(remove(&kit, MachinesOf::Everybody).await, 0, "nobody has lost anything");
        kit.sql(&loss.replace("$other", &other)).await;
        assert_eq!(remove(&kit, MachinesOf::Person(kit.other)).await, 2, "{loss}");
        assert_eq!(remove(&kit, MachinesOf::Everybody).await, 0, "it is under way");
        for (id, kind) in ids.into_iter().zip(RETAIN) {
            assert_eq!(recorded(&kit, id).await, format!("{THEIRS}, {OTHERS} goes"));
            assert!(!is_current(&kit, id).await);
            assert_eq!(kit.drive(&format!("{id}/access")).await, "succeeded", "{loss}");
            assert_eq!(last_sent(&kit, id).await, (kind, vec![THEIRS.to_owned()]));
            assert_eq!((recorded(&kit, id).await.as_str(), is_current(&kit, id).await), (THEIRS, true));
        }
        invariants::hold(&kit).await;
    }
}

#[tokio::test]
async fn a_machine_that_was_away_gives_keys_up_when_it_is_back() {
    let kit = Kit::new().await;
    let id = shared(&kit, MACHINE).await;
    let node: uuid::Uuid =
        kit.one(&format!("SELECT node_id FROM allocations WHERE id = '{}'", id.uuid())).await;
    *kit.silent.lock().unwrap() = true;
    delete_their_key(&kit).await;
    assert_eq!(remove(&kit, MachinesOf::Person(kit.other)).await, 1);
    assert_eq!(kit.drive(&format!("{id}/access")).await, "undone");
    kit.sql(&format!("UPDATE nodes SET state = 'offline' WHERE id = '{node}'")).await;
    kit.clock.advance(TimeDelta::hours(1));
    assert_eq!(remove(&kit, MachinesOf::Everybody).await, 0, "nobody asks a node that is away");
    let checked = capacity::jobs::consistency::check_once(&kit.capacity).await.unwrap();
    let names: Vec<_> = checked.new.iter().map(|(kind, _)| kind.name()).collect();
    assert!(names.contains(&"keys_not_removed"), "somebody is told: {names:?}");

    *kit.silent.lock().unwrap() = false;
    kit.sql(&format!("UPDATE nodes SET state = 'active' WHERE id = '{node}'")).await;
    assert_eq!(remove(&kit, MachinesOf::Node(node.into())).await, 1);
    assert_eq!(kit.drive(&format!("{id}/access")).await, "succeeded");
    assert_eq!(last_sent(&kit, id).await, (RETAIN[0], vec![THEIRS.to_owned()]));
    assert_eq!((recorded(&kit, id).await.as_str(), is_current(&kit, id).await), (THEIRS, true));
    let checked = capacity::jobs::consistency::check_once(&kit.capacity).await.unwrap();
    assert!(checked.resolved > 0);
}

#[tokio::test]
async fn a_key_that_is_deleted_while_the_machine_is_made_is_not_on_it_when_it_is_active() {
    let kit = Kit::new().await;
    let second = kit.tenants.ssh_key(kit.creator, "second").await;
    for ((sku, saga), kind) in
        [(MACHINE, "provision_machine"), (SLICE, "provision_slice")].into_iter().zip(RETAIN)
    {
        let id = kit.launch(sku).await;
        let engine = Engine::new(kit.test.db.clone(), kit.wake.clone(), vec![kit.saga(saga)]);
        engine.run_once().await.unwrap();
        if sku == MACHINE {
            kit.sql(&format!("DELETE FROM user_ssh_keys WHERE public_key = '{second}'")).await;
            assert_eq!(keys_remove_all(&kit.capacity).await.unwrap(), 1);
        } else {
            kit.sql(&format!("DELETE FROM user_ssh_keys WHERE public_key = '{THEIRS}'")).await;
            assert_eq!(remove(&kit, MachinesOf::Person(kit.creator)).await, 2, "and the other machine");
        }
        assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
        let left = if sku == MACHINE { vec![THEIRS.to_owned()] } else { Vec::new() };
        assert_eq!(last_sent(&kit, id).await, (kind, left));
        assert!(is_current(&kit, id).await);
    }
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_grant_that_is_on_its_way_does_not_bring_who_lost_access_since() {
    let kit = Kit::new().await;
    let id = kit.active(SLICE).await;
    grant(&kit, id).await;
    kit.sql(&format!("DELETE FROM user_ssh_keys WHERE public_key = '{THEIRS}'")).await;
    assert_eq!(remove(&kit, MachinesOf::Person(kit.creator)).await, 1);
    assert_eq!(kit.drive(&format!("{id}/access")).await, "succeeded");
    assert_eq!(last_sent(&kit, id).await, (INSTALL[1], vec![OTHERS.to_owned()]), "what was ordered, reduced");
    assert_eq!((recorded(&kit, id).await.as_str(), is_current(&kit, id).await), (OTHERS, true));
}

#[tokio::test]
async fn keys_go_also_when_the_order_to_bring_others_is_too_old() {
    let kit = Kit::new().await;
    let id = kit.active(SLICE).await;
    grant(&kit, id).await;
    kit.clock.advance(TimeDelta::hours(25));
    kit.sql(&format!("DELETE FROM user_ssh_keys WHERE public_key = '{THEIRS}'")).await;
    assert_eq!(remove(&kit, MachinesOf::Person(kit.creator)).await, 1);
    assert_eq!(kit.drive(&format!("{id}/access")).await, "undone", "the grant must be asked for again");
    assert_eq!(last_sent(&kit, id).await, (RETAIN[1], vec![OTHERS.to_owned()]), "nothing is added by that");
    assert_eq!((recorded(&kit, id).await.as_str(), is_current(&kit, id).await), (OTHERS, false));
    assert_eq!(keys_remove_all(&kit.capacity).await.unwrap(), 0, "there is nothing left to take away");
}

/// Somebody who writes into the database can have keys taken away. They cannot have any brought.
#[tokio::test]
async fn rows_that_nobody_ordered_bring_no_key_to_a_machine() {
    let kit = Kit::new().await;
    let id = shared(&kit, SLICE).await;
    let before = kit.tasks(id, INSTALL[1]).await;
    let mine = kit.tenants.ssh_key(kit.creator, "mine").await;
    kit.sql(&format!(
        "INSERT INTO allocation_keys (allocation_id, public_key, org_id, ordered_version)
             SELECT id, '{mine}', org_id, access_version FROM allocations WHERE id = '{}';
         DELETE FROM user_ssh_keys WHERE public_key = '{OTHERS}'",
        id.uuid()
    ))
    .await;
    assert_eq!(remove(&kit, MachinesOf::Everybody).await, 1);
    assert_eq!(kit.drive(&format!("{id}/access")).await, "succeeded");
    assert_eq!(
        last_sent(&kit, id).await.0,
        RETAIN[1],
        "the node keeps of this what it has, and adds nothing"
    );
    assert_eq!(kit.tasks(id, INSTALL[1]).await, before);
    // With the old order put back and a version that was never installed the time of the order is over.
    kit.clock.advance(TimeDelta::hours(25));
    kit.sql(&format!(
        "UPDATE allocation_keys SET ordered_version = 99 WHERE allocation_id = '{0}';
         UPDATE allocations SET access_version = 99 WHERE id = '{0}';
         DELETE FROM user_ssh_keys WHERE public_key = '{mine}'",
        id.uuid()
    ))
    .await;
    assert_eq!(remove(&kit, MachinesOf::Everybody).await, 1);
    kit.drive(&format!("{id}/access")).await;
    assert_eq!(last_sent(&kit, id).await, (RETAIN[1], vec![THEIRS.to_owned()]));
    assert_eq!(kit.tasks(id, INSTALL[1]).await, before);
}
