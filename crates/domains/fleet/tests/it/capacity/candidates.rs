//! Which nodes are offered, in which order, and what happens when others want the same.

use std::time::Duration;

use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use testkit::eventually;
use uuid::Uuid;

use super::kit::{Dice, Kit, Wanted, candidates, in_time, take};

/// The packing rule over all nodes, by hand: fits on one NUMA node, then fullest (or emptiest) first.
async fn by_hand(conn: &mut PgConnection, wanted: Wanted) -> Vec<Uuid> {
    let sql = "SELECT c.node_id, c.free, c.numa_fit, c.total, c.whole FROM node_capacity c
        WHERE c.placeable AND c.region = 'here' AND c.kind = 'gpu' AND c.model = 'H200'";
    let rows = sqlx::query(sql).fetch_all(conn).await.unwrap();
    let mut nodes: Vec<(bool, i32, i32, Uuid)> = Vec::new();
    for row in rows {
        let (node, free): (Uuid, i32) = (row.get("node_id"), row.get("free"));
        let (fit, total): (i32, i32) = (row.get("numa_fit"), row.get("total"));
        let whole: bool = row.get("whole");
        if wanted.whole && whole && total == wanted.need {
            nodes.push((false, 0, 0, node));
        } else if !wanted.whole && free >= wanted.need {
            nodes.push((fit < wanted.need, if wanted.spread { -free } else { free }, fit, node));
        }
    }
    nodes.sort_unstable();
    nodes.into_iter().take(usize::try_from(wanted.limit).unwrap()).map(|(.., node)| node).collect()
}

async fn shuffle(kit: &Kit, dice: &mut Dice, nodes: &[Uuid]) {
    let (seed, whole) = (dice.below(1_000_000), dice.pick(nodes));
    let sql = format!(
        "UPDATE node_resource_slots SET state = CASE WHEN node_id = '{whole}'
             OR (hashtext(node_id::text || {seed}) >> slot_index) & 1 = 1 THEN 'available' ELSE 'in_use' END;
         UPDATE nodes SET cordon_reason =
             CASE WHEN hashtext(id::text || {seed}) % 8 = 0 AND id <> '{whole}' THEN 'because' END"
    );
    kit.test.sql(&sql).await;
}

#[tokio::test]
async fn candidates_come_in_the_order_of_the_packing_rule_on_any_fleet() {
    let kit = Kit::new().await;
    kit.free_of_lifecycles().await;
    let nodes = kit.nodes(24, 8).await;
    for seed in 0..12 {
        let mut dice = Dice::new(seed);
        shuffle(&kit, &mut dice, &nodes).await;
        let mut conn = kit.admin().await;
        for need in [1, 2, 3, 4, 5, 8] {
            for spread in [false, true] {
                for limit in [1, 3, 50] {
                    let wanted = Wanted { spread, ..Wanted::slots(need, limit) };
                    check(&mut conn, wanted).await;
                }
            }
        }
        for limit in [1, 3] {
            check(&mut conn, Wanted { whole: true, ..Wanted::slots(8, limit) }).await;
        }
    }
}

async fn check(conn: &mut PgConnection, wanted: Wanted) {
    let mut tx = conn.begin().await.unwrap();
    let found = candidates(&mut tx, wanted).await.unwrap();
    tx.rollback().await.unwrap();
    let nodes: Vec<Uuid> = found.iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes, by_hand(conn, wanted).await, "{wanted:?}");
    assert!(found.iter().all(|(_, slots)| *slots >= usize::try_from(wanted.need).unwrap()), "{wanted:?}");
}

#[tokio::test]
async fn a_node_that_somebody_holds_is_passed_over_or_waited_for_and_never_given_twice() {
    let kit = Kit::new().await;
    kit.nodes(2, 4).await;
    let (mut one, mut two, mut three) = (kit.admin().await, kit.admin().await, kit.admin().await);
    let mut first = one.begin().await.unwrap();
    let held = candidates(&mut first, Wanted::slots(4, 1)).await.unwrap();
    let mut second = two.begin().await.unwrap();
    let other = candidates(&mut second, Wanted::slots(4, 1)).await.unwrap();
    assert_ne!(held[0].0, other[0].0);
    // Nothing is left for a third that does not wait; one that waits gets what is let go.
    assert!(candidates(&mut three, Wanted::slots(1, 1)).await.unwrap().is_empty());
    let waiting =
        tokio::spawn(async move { take(&mut three, Wanted { wait: true, ..Wanted::slots(4, 1) }).await });
    blocked(&kit).await;
    first.rollback().await.unwrap();
    second.rollback().await.unwrap();
    assert!(in_time("waiting", waiting).await.unwrap().unwrap());
    kit.assert_counted().await;
}

/// Until somebody waits for a lock.
async fn blocked(kit: &Kit) {
    let sql = "SELECT count(*)::text FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE NOT l.granted AND a.datname = current_database()";
    eventually("somebody waits", || async { (kit.text(sql.to_owned()).await != "0").then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_who_want_the_last_slots_as_many_win_as_there_are() {
    let kit = Kit::new().await;
    let nodes = kit.nodes(3, 4).await;
    kit.free_of_lifecycles().await;
    let (full, part) = (nodes[0], nodes[1]);
    kit.test
        .sql(&format!(
            "UPDATE node_resource_slots SET state = 'in_use'
             WHERE node_id = '{full}' OR node_id = '{part}' AND slot_index > 0"
        ))
        .await;
    let mut all = Vec::new();
    for _ in 0..50 {
        let mut conn = kit.admin().await;
        all.push(tokio::spawn(
            async move { take(&mut conn, Wanted { wait: true, ..Wanted::slots(1, 1) }).await },
        ));
    }
    let mut won = 0;
    for one in all {
        won += u32::from(in_time("taking", one).await.unwrap().unwrap());
    }
    assert_eq!(won, 5);
    assert_eq!(
        kit.text("SELECT count(*)::text FROM node_resource_slots WHERE state = 'reserved'".to_owned()).await,
        "5"
    );
    kit.assert_counted().await;
}

#[tokio::test]
async fn placement_neither_waits_for_slots_that_an_operator_holds_nor_takes_them() {
    let kit = Kit::new().await;
    let nodes = kit.nodes(1, 4).await;
    let (mut operator, mut placing) = (kit.admin().await, kit.admin().await);
    let mut tx = operator.begin().await.unwrap();
    tx.execute(
        "SELECT id FROM node_resource_slots WHERE slot_index < 3 ORDER BY slot_index FOR NO KEY UPDATE",
    )
    .await
    .unwrap();
    let mut launch = placing.begin().await.unwrap();
    let found = tokio::time::timeout(Duration::from_secs(20), candidates(&mut launch, Wanted::slots(1, 1)));
    assert_eq!(found.await.unwrap().unwrap(), [(nodes[0], 1)]);
    launch.rollback().await.unwrap();
    tx.rollback().await.unwrap();
    kit.assert_counted().await;
}

#[tokio::test]
async fn a_node_that_serves_only_whole_is_offered_whole_without_fabric_and_never_in_parts() {
    let kit = Kit::new().await;
    let nodes = kit.nodes(2, 4).await;
    kit.test
        .sql(&format!(
            "UPDATE nodes SET serves = 'baremetal' WHERE id = '{0}';
             UPDATE node_resource_slots SET fabric_mode = 'none', fabric_vf = NULL, numa_node = NULL
                 WHERE node_id = '{0}';
             UPDATE nodes SET cordon_reason = 'because' WHERE id = '{1}'",
            nodes[0], nodes[1]
        ))
        .await;
    kit.assert_counted().await;
    let (whole, part) = (Wanted { whole: true, ..Wanted::slots(4, 2) }, Wanted::slots(1, 2));
    let mut conn = kit.admin().await;
    assert_eq!(candidates(&mut conn, whole).await.unwrap(), [(nodes[0], 4)]);
    assert!(candidates(&mut conn, part).await.unwrap().is_empty());
    // What the catalog and a refusal are told of it, for the whole machine and for a part.
    let told = async |total: &str, size: &str| {
        let sql = format!(
            "SELECT concat_ws(' ', a.total, a.free, a.launchable) || ' / ' || (SELECT string_agg(o.free::text, ' ')
                 FROM fleet_outlook('gpu', 'H200', 'any', NULL, '{{}}', {total}, 8) o WHERE o.placeable)
             FROM fleet_availability('{{any}}', '{{gpu}}', '{{H200}}', '{{4}}', '{{{size}}}') a"
        );
        kit.text(format!("SELECT coalesce(({sql}), 'nothing')")).await
    };
    assert_eq!(told("4", "0").await, "8 4 1 / 4");
    assert_eq!(told("NULL", "1").await, "nothing");
    // One that is sick is not whole.
    kit.test.sql("UPDATE node_resource_slots SET health = 'failed' WHERE slot_index = 3").await;
    assert!(candidates(&mut conn, whole).await.unwrap().is_empty());
    kit.assert_counted().await;
}
