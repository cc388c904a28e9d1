//! What operators cannot do to a node or slot while somebody's work is there, and what placement is told of both.

use fleet::{
    model::{
        node::Node,
        text::{Reach, SshHost},
    },
    service::{
        agent_tasks::{node_drain, node_remove, node_retire},
        nodes::{NodeChange, node_update},
        onboarding::node_discover,
    },
};
use kernel::Code;
use node_proto::catalog::{Nic, NicFabric, VirtualFunction};

use super::world::{World, code, reason, succeeded, topology};

async fn drained(world: &World) -> Node {
    let node = world.active("gpu-01", 1).await;
    let mut tx = world.write("node.drain").await;
    node_drain(&world.fleet, &mut tx, node.id, &reason("repair"), None).await.unwrap();
    tx.commit(None).await.unwrap();
    node
}

#[tokio::test]
async fn a_drained_node_stays_draining_until_nobodys_work_is_left() {
    let world = World::new().await;
    let node = drained(&world).await;
    for state in ["reserved", "in_use", "cleaning", "cleanup_blocked"] {
        world.tamper(&format!("UPDATE node_resource_slots SET state = '{state}'")).await;
        let mut tx = world.write("node.retire").await;
        let retired = node_retire(&world.fleet, &mut tx, node.id, &reason("too soon"), None).await;
        assert_eq!(code(retired), Some(Code::InUse), "{state}");
        tx.roll_back().await;
        assert_eq!(world.state(node.id).await, "draining");
    }
    world.tamper("UPDATE node_resource_slots SET state = 'available'").await;
    let mut tx = world.write("node.retire").await;
    node_retire(&world.fleet, &mut tx, node.id, &reason("now"), None).await.unwrap();
    tx.commit(None).await.unwrap();
    // Whatever brought work there after that: it is not removed under it.
    world.tamper("UPDATE node_resource_slots SET state = 'cleanup_blocked'").await;
    let mut tx = world.write("node.remove").await;
    let removed = node_remove(&world.fleet, &mut tx, node.id, &reason("gone"), None).await;
    assert_eq!(code(removed), Some(Code::InUse));
}

#[tokio::test]
async fn users_reach_a_node_where_the_operator_says() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    assert_eq!((node.ssh_host.as_deref(), node.ssh_port), (None, None));
    let offered = async || {
        let sql = "SELECT ssh_host || ':' || ssh_port FROM fleet_candidates(
            ROW('gpu', 'H200', 'eu-north', 'any', NULL, '{}', 1, false)::slot_request, 1, false, 1, false) LIMIT 1";
        let mut admin = world.test.conn(pg::Roles::Admin).await;
        sqlx::query_scalar::<_, String>(sql).fetch_one(&mut admin).await.unwrap()
    };
    assert_eq!(offered().await, "gpu-01:22");
    for (host, port, seen) in
        [(Some("ssh.example.org"), None, "ssh.example.org:22"), (None, Some(2022), "ssh.example.org:2022")]
    {
        let ssh = Reach {
            host: host.map(|host| SshHost::parse(host).unwrap()),
            port: port.and_then(std::num::NonZeroU16::new),
        };
        let mut tx = world.write("node.update").await;
        let change = NodeChange { ssh, ..NodeChange::default() };
        node_update(&mut tx, node.id, change, None).await.unwrap();
        tx.commit(None).await.unwrap();
        assert_eq!(offered().await, seen);
    }
    for bad in ["", "Upper.example.org", "a b", "http://x", "-x"] {
        assert!(SshHost::parse(bad).is_err(), "{bad}");
    }
    assert!(SshHost::parse("2001:db8::7").is_ok());
}

#[tokio::test]
async fn a_slot_whose_fabric_is_on_another_numa_node_is_known_and_not_offered() {
    let world = World::new().await;
    let node = world.active("gpu-01", 2).await;
    let free = async || {
        let sql = "SELECT free FROM node_capacity";
        let mut admin = world.test.conn(pg::Roles::Admin).await;
        sqlx::query_scalar::<_, i32>(sql).fetch_one(&mut admin).await.unwrap()
    };
    assert_eq!(free().await, 2);
    let mut found = topology(2, 0);
    found.nics = (0..2)
        .map(|n| Nic {
            pci_address: format!("0000:a{n}:00.0"),
            interface: None,
            fabric: NicFabric::Infiniband,
            numa_node: Some(n),
            vfs_total: 1,
            vfs: vec![VirtualFunction {
                pci_address: found.candidates[usize::try_from(n).unwrap()].fabric_vf.clone().unwrap(),
                iommu_group: None,
                driver: None,
            }],
        })
        .collect();
    let mut tx = world.write("node.discover").await;
    node_discover(&world.fleet, &mut tx, node.id).await.unwrap();
    tx.commit(None).await.unwrap();
    world.answer(node.id, succeeded(&found)).await;
    let slots = world.slots(node.id).await;
    assert_eq!((slots[0].fabric_numa, slots[1].fabric_numa), (Some(0), Some(1)));
    assert_eq!((slots[0].numa_node, slots[1].numa_node), (Some(0), Some(0)));
    assert_eq!(free().await, 1);
}
