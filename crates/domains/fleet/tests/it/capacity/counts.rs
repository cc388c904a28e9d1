//! node_capacity never disagrees with nodes and slots.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use uuid::Uuid;

use super::kit::{Dice, Kit, Wanted, in_time, take};

const STATES: [&str; 8] = [
    "discovered",
    "approved",
    "available",
    "reserved",
    "in_use",
    "cleaning",
    "cleanup_blocked",
    "quarantined",
];
const NODE_STATES: [&str; 5] = ["enrolling", "active", "active", "offline", "draining"];

/// One change of one node, of any kind there is.
fn change(dice: &mut Dice, node: Uuid) -> String {
    let index = dice.below(9);
    let slot = format!("WHERE node_id = '{node}' AND slot_index = {index}");
    let update = |what: &str| format!("UPDATE node_resource_slots SET {what} {slot}");
    match dice.below(12) {
        0..=3 => update(&format!("state = '{}'", dice.pick(&STATES))),
        4 => update(&format!("health = '{}'", dice.pick(&["healthy", "healthy", "failed", "unknown"]))),
        5 => update(&format!("blockers = '{}'", dice.pick(&["[]", "[]", "[{\"code\":\"missing\"}]"]))),
        6 => update(&format!("numa_node = {}", dice.pick(&["0", "1", "NULL"]))),
        7 => update(dice.pick::<&str>(&[
            "fabric_numa = 0",
            "fabric_numa = 1",
            "fabric_numa = NULL",
            "fabric_mode = 'none', fabric_vf = NULL",
        ])),
        8 => update(&format!("model = '{}'", dice.pick(&["H200", "H200", "H100"]))),
        9 => match dice.below(2) {
            0 => format!("DELETE FROM node_resource_slots {slot}"),
            _ => format!(
                "INSERT INTO node_resource_slots (id, node_id, slot_index, kind, model, fabric_mode, fabric_vf, state,
                     health, created_at, updated_at)
                 VALUES (gen_random_uuid(), '{node}', {index}, '{}', 'H200', 'vf', 'x', 'available', 'healthy', now(),
                     now()) ON CONFLICT DO NOTHING",
                dice.pick(&["gpu", "gpu", "cpu"])
            ),
        },
        10 => format!("UPDATE nodes SET state = '{}' WHERE id = '{node}'", dice.pick(&NODE_STATES)),
        _ => {
            let what = dice.pick(&[
                "cordon_reason = 'because'",
                "cordon_reason = NULL",
                "labels = '{\"rack\": \"r1\"}'",
                "sku_eligibility = '{a,b}'",
                "serves = 'baremetal'",
                "serves = 'any'",
                "region = 'there'",
            ]);
            format!("UPDATE nodes SET {what} WHERE id = '{node}'")
        }
    }
}

#[tokio::test]
async fn counts_equal_a_recount_after_thousands_of_changes() {
    let kit = Kit::new().await;
    kit.free_of_lifecycles().await;
    let nodes = kit.nodes(6, 8).await;
    kit.assert_counted().await;
    let mut admin = kit.admin().await;
    for seed in 0..10 {
        let mut dice = Dice::new(seed);
        for _ in 0..200 {
            let node = *dice.pick(&nodes);
            // Some of them together, and some not at all.
            let many: Vec<String> = (0..=dice.below(3)).map(|_| change(&mut dice, node)).collect();
            let end = dice.pick(&["COMMIT", "COMMIT", "ROLLBACK"]);
            let sql = format!("BEGIN; {}; {end}", many.join("; "));
            admin.execute(AssertSqlSafe(sql)).await.unwrap();
        }
        kit.assert_counted().await;
    }
    // Many at once in one statement, across nodes.
    kit.test.sql("UPDATE node_resource_slots SET state = 'in_use' WHERE slot_index % 2 = 0").await;
    kit.assert_counted().await;
    kit.test
        .sql("UPDATE node_resource_slots SET model = CASE slot_index % 2 WHEN 0 THEN 'H100' ELSE 'H200' END")
        .await;
    kit.assert_counted().await;
    kit.test.sql("DELETE FROM node_resource_slots").await;
    kit.assert_counted().await;
    assert_eq!(kit.text("SELECT count(*)::text FROM node_capacity".to_owned()).await, "0");
}

/// Slots change one by one, as workflows and operators do it; nodes are cordoned; work is placed: all at once.
async fn busy(mut conn: PgConnection, seed: u64, nodes: Vec<Uuid>) -> u64 {
    let mut dice = Dice::new(seed);
    let mut placed = 0;
    for _ in 0..200 {
        let node = *dice.pick(&nodes);
        let slots = |which: &str, to: &str| {
            format!(
                "WITH held AS (SELECT id FROM node_resource_slots WHERE node_id = '{node}' AND state = '{which}'
                     ORDER BY slot_index LIMIT 2 FOR NO KEY UPDATE)
                 UPDATE node_resource_slots s SET state = '{to}' FROM held WHERE s.id = held.id"
            )
        };
        let sql = match dice.below(8) {
            0..=1 => {
                let need = i32::try_from(1 + dice.below(4)).unwrap();
                let wanted = Wanted { wait: dice.below(2) == 0, ..Wanted::slots(need, 1) };
                placed += u64::from(take(&mut conn, wanted).await.unwrap());
                continue;
            }
            2..=3 => slots("reserved", "available"),
            4 => slots("available", "quarantined"),
            5 => slots("quarantined", "available"),
            6 => format!("UPDATE nodes SET cordon_reason = 'because' WHERE id = '{node}'"),
            _ => format!("UPDATE nodes SET cordon_reason = NULL WHERE id = '{node}'"),
        };
        conn.execute(AssertSqlSafe(sql)).await.unwrap();
    }
    placed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_do_not_drift_and_nobody_deadlocks_when_all_change_one_small_fleet_at_once() {
    let kit = Kit::new().await;
    kit.free_of_lifecycles().await;
    let nodes = kit.nodes(2, 8).await;
    // One that is mixed: its kinds must not wait for each other.
    kit.slots(&nodes[..1], 8, 12, "cpu", "epyc").await;
    let mut busies = Vec::new();
    for seed in 0..8 {
        busies.push(tokio::spawn(busy(kit.admin().await, seed, nodes.clone())));
    }
    let mut placed = 0;
    for one in busies {
        placed += in_time("placing and changing", one).await.unwrap();
    }
    assert!(placed > 0, "something was placed");
    kit.assert_counted().await;
}
