//! Certificates as earlier builds left them.

use fleet::service::{node_identity::first_use, node_trust::Worth};
use kernel::{Code, ids::NodeId};
use pg::Roles;
use testkit::TestDb;

use super::{
    enrolment::{renewal_of, standing},
    world::{REGION, World, code, csr},
};

/// The last migration before certificates were superseded, and the one that took all of them for used.
const BEFORE_IDENTITY: i64 = 19;
const ALL_TAKEN_FOR_USED: i64 = 30;

fn node(n: u128) -> NodeId {
    NodeId::from(uuid::Uuid::from_u128(n))
}

/// As the build of before gave them: several that count, for a day each, dated when they were given.
fn given(node: NodeId, serials: &[&str]) -> String {
    let row = |(n, serial): (usize, &&str)| {
        let node = node.uuid();
        format!(
            "INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, created_at)
             VALUES ('{serial}', '{node}', '{node}', '\\x00', '2031-05-06T0{n}:00:00Z', '2031-05-07T0{n}:00:00Z', '2031-05-06T0{n}:05:00Z');"
        )
    };
    serials.iter().enumerate().map(row).collect()
}

/// Of four nodes: one whose last answer was lost, one that lost two, one that lost none, one with a tenant since.
async fn world_upgraded_from(first: i64) -> World {
    let test = TestDb::empty().await;
    pg::bootstrap(&test.connect).await.unwrap();
    let mut owner = test.conn(Roles::Owner).await;
    pg::MIGRATOR.run_to(BEFORE_IDENTITY, &mut owner).await.unwrap();
    test.sql(&format!("INSERT INTO regions VALUES ('{REGION}', 'North', 1, now(), now())")).await;
    for n in 1..=4 {
        let id = node(n).uuid();
        test.sql(&format!(
            "INSERT INTO nodes (id, hostname, region, state, state_changed_at, created_at, updated_at, enrolled_at)
             VALUES ('{id}', 'gpu-0{n}', '{REGION}', 'active', now(), now(), now(), now())"
        ))
        .await;
    }
    for (n, serials) in
        [(1, ["a1", "b1"].as_slice()), (2, &["a2", "b2", "c2"]), (3, &["a3", "b3"]), (4, &["a4", "b4"])]
    {
        test.sql(&given(node(n), serials)).await;
    }
    pg::MIGRATOR.run_to(first, &mut owner).await.unwrap();
    if first > BEFORE_IDENTITY {
        // It ran as that build for a while.
        let id = node(4).uuid();
        test.sql(&format!("UPDATE nodes SET rekey_since = '2031-05-06T02:00:00Z' WHERE id = '{id}'")).await;
    }
    drop(owner);
    pg::migrate(&test.connect).await.unwrap();
    World::on(test).await
}

#[tokio::test]
async fn an_answer_that_was_lost_before_the_upgrade_is_not_taken_for_a_copy() {
    for first in [BEFORE_IDENTITY, ALL_TAKEN_FOR_USED] {
        let world = world_upgraded_from(first).await;
        // It may ask for the new one, and do nothing else.
        for (n, shown) in [(1, "a1"), (2, "a2"), (2, "b2"), (3, "a3")] {
            assert_eq!(standing(&world, node(n)).await.worth(shown), Worth::Renewing, "{shown} from {first}");
        }
        // It makes a new key: nobody kept the key before.
        for (n, shown) in [(1, "a1"), (2, "a2")] {
            renewal_of(&world, node(n), shown, &csr()).await.unwrap();
            let live = format!(
                "SELECT count(*) FROM node_certificates WHERE node_id = '{}' AND revoked_at IS NULL AND renewed_from = '{shown}'",
                node(n).uuid()
            );
            assert_eq!(world.count(&live).await, 1);
        }
        // The one in between was never the node's, and the one that asked has no other to follow it.
        assert!(matches!(standing(&world, node(2)).await.worth("b2"), Worth::Superseded { .. }));
        // A node that has its certificate is heard with it: from then on the one before is a copy.
        assert_eq!(standing(&world, node(3)).await.worth("b3"), Worth::FirstUse);
        first_use(&world.fleet, node(3), "b3").await.unwrap();
        assert!(matches!(standing(&world, node(3)).await.worth("a3"), Worth::Superseded { .. }));
        let refused = renewal_of(&world, node(3), "a3", &csr()).await;
        assert_eq!(code(refused), Some(Code::TokenRevoked));
    }
}

#[tokio::test]
async fn a_node_that_was_asked_for_a_new_key_before_the_upgrade_does_not_follow_an_earlier_one() {
    let world = world_upgraded_from(ALL_TAKEN_FOR_USED).await;
    assert!(matches!(standing(&world, node(4)).await.worth("a4"), Worth::Superseded { .. }));
    let refused = renewal_of(&world, node(4), "a4", &csr()).await;
    assert_eq!(code(refused), Some(Code::TokenRevoked));
}
