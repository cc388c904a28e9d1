use fleet::model::finding::FindingState;
use fleet::model::node::NodeState;
use fleet::model::slot::SlotHealth;
use fleet::model::slot::SlotState;
use fleet::{
    model::{health_rule::HealthAction, text::RulePattern},
    service::{
        contacts::{Contact, Contacts},
        findings::{finding_acknowledge, finding_get, finding_list, finding_resolve, report},
        health_rules::{health_rule_delete, health_rule_list, health_rule_put},
        validations::node_validate,
    },
};
use kernel::{
    Code, PageQuery,
    ids::{FindingId, NodeId},
};
use node_proto::{catalog::ProbeProfile, contract::Finding};

use super::world::{World, code, pci, reason, report as probe_report, succeeded};

fn finding(world: &World, code: &str, subject: &str) -> Finding {
    Finding {
        code: code.to_owned(),
        subject: subject.to_owned(),
        message: "it happened".to_owned(),
        observed_at: world.now(),
        evidence: serde_json::json!({ "line": 7 }),
    }
}

async fn findings_report(world: &World, node: NodeId, findings: &[Finding]) {
    report(&world.fleet, node, findings, Some(world.now()), &world.origin()).await.unwrap();
}

async fn only(world: &World) -> fleet::model::finding::Finding {
    let all =
        finding_list(&mut world.read().await, Default::default(), &PageQuery::default()).await.unwrap().items;
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_finding_is_opened_once_acted_on_once_and_counted() {
    let world = World::new().await;
    let node = world.active("gpu-01", 2).await;
    for _ in 0..3 {
        findings_report(&world, node.id, &[finding(&world, "xid.74", &pci(0))]).await;
    }
    let open = only(&world).await;
    assert_eq!((open.seen, open.action, open.state), (3, HealthAction::Cordon, FindingState::Open));
    assert_eq!(open.slot_id, Some(world.slots(node.id).await[0].id));
    let detail = world.detail(node.id).await;
    assert_eq!(detail.node.cordon_reason.as_deref(), Some("finding xid.74 on 0000:10:00.0"));
    assert_eq!((detail.node.state, detail.open_findings), (NodeState::Active, 1));
    assert_eq!(world.events("nodes.finding_opened").await.len(), 1);
    let version = detail.node.version;
    findings_report(&world, node.id, &[finding(&world, "xid.74", &pci(1))]).await;
    assert_eq!(world.detail(node.id).await.node.version, version, "it is cordoned already");
}

#[tokio::test]
async fn a_broken_gpu_that_is_free_is_quarantined_alone_and_one_in_use_takes_the_node_out() {
    let world = World::new().await;
    let node = world.active("gpu-01", 2).await;
    let slots = world.slots(node.id).await;
    findings_report(&world, node.id, &[finding(&world, "xid.48", &pci(0))]).await;
    let facts = async |n: usize| {
        let slot = world.slots(node.id).await.remove(n);
        (slot.state, slot.health)
    };
    assert_eq!(facts(0).await, (SlotState::Quarantined, SlotHealth::Failed));
    assert_eq!(world.state(node.id).await, "active");
    world
        .tamper(&format!(
            "UPDATE node_resource_slots SET state = 'in_use' WHERE id = '{}'",
            slots[1].id.uuid()
        ))
        .await;
    findings_report(&world, node.id, &[finding(&world, "xid.48", &pci(1))]).await;
    assert_eq!(facts(1).await, (SlotState::InUse, SlotHealth::Failed), "the work goes on");
    assert_eq!(world.state(node.id).await, "quarantined");
    assert_eq!(world.events("nodes.quarantined").await.len(), 1);
    // Another one about the node itself changes nothing more, and is kept.
    findings_report(&world, node.id, &[finding(&world, "dcgm.memory", "node")]).await;
    assert_eq!(world.count("SELECT count(*) FROM health_findings").await, 3);
}

#[tokio::test]
async fn a_credit_is_told_with_its_evidence() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    let slot = world.slots(node.id).await.remove(0);
    world.tamper("UPDATE node_resource_slots SET state = 'in_use'").await;
    findings_report(
        &world,
        node.id,
        &[finding(&world, "xid.79", &pci(0)), finding(&world, "xid.79", &pci(0))],
    )
    .await;
    let due = world.events("nodes.credit_due").await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0]["slot_id"], slot.id.to_string());
    assert_eq!(due[0]["evidence"]["line"], 7);
    let detail = world.detail(node.id).await;
    assert_eq!(detail.node.state, NodeState::Active);
    assert!(detail.node.cordon_reason.is_some());
    let slot = world.slots(node.id).await.remove(0);
    assert_eq!((slot.state, slot.health), (SlotState::InUse, SlotHealth::Failed));
}

fn contact(world: &World, node: NodeId) -> Contact {
    Contact {
        node,
        seen_at: world.now(),
        agent_version: "1.0.0".to_owned(),
        contract: "1.1".to_owned(),
        certificate_expires_at: world.now(),
        applied_version: 0,
        keyset_serial: 1,
        authority_ids: Vec::new(),
        clock_offset_ms: 0,
        boot_id: "b".to_owned(),
        metrics: serde_json::json!({}),
        inventory: serde_json::json!({}),
    }
}

#[tokio::test]
async fn a_finding_is_never_older_than_the_previous_report_less_the_policy_whichever_gateway_took_that() {
    let world = World::new().await;
    world.test.set_global_policy("fleet.finding_backdate_seconds", "60").await;
    let node = world.active("gpu-01", 1).await;
    let (here, elsewhere) = (Contacts::new(&world.fleet), Contacts::new(&world.fleet));
    let origin = world.origin();
    let mut n = 0;
    let mut backdated = async |contacts: &Contacts| {
        n += 1;
        let code = format!("old.n{n}");
        let old = Finding { observed_at: chrono::DateTime::UNIX_EPOCH, ..finding(&world, &code, "node") };
        contacts.accept(&world.fleet, contact(&world, node.id), false, &[old], &origin).await.unwrap();
        let age = format!(
            "SELECT extract(epoch FROM '{}' - first_seen_at)::bigint FROM health_findings WHERE code = '{code}'",
            world.now().to_rfc3339()
        );
        world.count(&age).await
    };
    assert_eq!(backdated(&here).await, 60, "a node that never reported says nothing of what was before");
    world.pass(chrono::TimeDelta::seconds(10));
    assert_eq!(backdated(&here).await, 70, "the report before waits to be written, and counts");
    here.flush(&world.fleet).await.unwrap();
    world.pass(chrono::TimeDelta::hours(5));
    assert_eq!(backdated(&elsewhere).await, 5 * 3600 + 60, "it was silent for five hours");
    elsewhere.flush(&world.fleet).await.unwrap();
    world.pass(chrono::TimeDelta::seconds(10));
    assert_eq!(backdated(&here).await, 70, "what another gateway heard counts");
}

#[tokio::test]
async fn the_table_is_the_operators_and_open_findings_are_not_judged_again() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    findings_report(&world, node.id, &[finding(&world, "fan.speed", "node")]).await;
    assert_eq!(only(&world).await.action, HealthAction::Observe, "no line names it");
    let pattern = RulePattern::parse("fan.*").unwrap();
    let mut tx = world.write("health_rule.put").await;
    let said = (HealthAction::Cordon, reason("Fans do not turn."));
    let made = health_rule_put(&mut tx, &pattern, said.clone(), None, None).await.unwrap();
    let stale = health_rule_put(&mut tx, &pattern, said.clone(), Some(made.version + 1), None).await;
    assert_eq!(code(stale), Some(Code::Conflict));
    let nowhere = RulePattern::parse("pump.*").unwrap();
    assert_eq!(code(health_rule_put(&mut tx, &nowhere, said, Some(1), None).await), Some(Code::NotFound));
    tx.commit(None).await.unwrap();
    findings_report(&world, node.id, &[finding(&world, "fan.speed", "node")]).await;
    assert_eq!(world.detail(node.id).await.node.cordon_reason, None);
    findings_report(&world, node.id, &[finding(&world, "fan.gone", "node")]).await;
    assert!(world.detail(node.id).await.node.cordon_reason.is_some());
    let mut tx = world.write("health_rule.delete").await;
    health_rule_delete(&mut tx, &pattern, None, None).await.unwrap();
    assert_eq!(code(health_rule_delete(&mut tx, &pattern, None, None).await), Some(Code::NotFound));
    tx.commit(None).await.unwrap();
    let mut patterns = Vec::new();
    let mut query = serde_json::json!({ "page_size": 5 });
    loop {
        let page: fleet::model::page::KeyPageQuery = serde_json::from_value(query).unwrap();
        let page = health_rule_list(&mut world.read().await, &page).await.unwrap();
        patterns.extend(page.items.into_iter().map(|rule| rule.pattern));
        let Some(cursor) = page.next_cursor else { break };
        query = serde_json::json!({ "page_size": 5, "cursor": cursor });
    }
    let count = world.count("SELECT count(*) FROM health_rules").await;
    assert_eq!(i64::try_from(patterns.len()).unwrap(), count);
    patterns.sort();
    patterns.dedup();
    assert_eq!(i64::try_from(patterns.len()).unwrap(), count, "each once");
}

#[tokio::test]
async fn a_resolved_finding_puts_its_slot_in_doubt_until_a_probe_passes_and_what_comes_again_is_new() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    findings_report(&world, node.id, &[finding(&world, "xid.79", &pci(0))]).await;
    let first = only(&world).await;
    let mut tx = world.write("finding.resolve").await;
    assert_eq!(
        finding_acknowledge(&mut tx, first.id, None, None).await.unwrap().state,
        FindingState::Acknowledged
    );
    assert_eq!(code(finding_acknowledge(&mut tx, first.id, None, None).await), Some(Code::InvalidTransition));
    let resolved = finding_resolve(&mut tx, first.id, &reason("The card was reseated."), None).await.unwrap();
    assert_eq!((resolved.state, resolved.note.as_str()), (FindingState::Resolved, "The card was reseated."));
    let unknown: FindingId = world.test.db.ambient().id();
    assert_eq!(code(finding_resolve(&mut tx, unknown, &reason("what"), None).await), Some(Code::NotFound));
    tx.commit(None).await.unwrap();
    assert_eq!(world.slots(node.id).await[0].health, SlotHealth::Unknown);
    let mut tx = world.write("node.validate").await;
    node_validate(&world.fleet, &mut tx, node.id, ProbeProfile::Light).await.unwrap();
    tx.commit(None).await.unwrap();
    world.answer(node.id, succeeded(&probe_report(true))).await;
    assert_eq!(world.slots(node.id).await[0].health, SlotHealth::Healthy);
    findings_report(&world, node.id, &[finding(&world, "xid.79", &pci(0))]).await;
    assert_eq!(world.count("SELECT count(*) FROM health_findings").await, 2);
    assert_eq!(finding_get(&mut world.read().await, first.id).await.unwrap().seen, 1);
}

#[tokio::test]
async fn a_node_cannot_fill_the_table() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    for batch in 0..10 {
        let many: Vec<Finding> = (0..64).map(|n| finding(&world, "noise", &format!("{batch}.{n}"))).collect();
        findings_report(&world, node.id, &many).await;
    }
    assert_eq!(world.count("SELECT count(*) FROM health_findings").await, 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_gateways_that_hear_of_it_at_once_open_it_once() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    let findings = [finding(&world, "xid.79", &pci(0)), finding(&world, "xid.48", &pci(0))];
    let many = (0..8).map(|_| findings_report(&world, node.id, &findings));
    futures_util::future::join_all(many).await;
    assert_eq!(world.count("SELECT count(*) FROM health_findings").await, 2);
    assert_eq!(world.events("nodes.finding_opened").await.len(), 2);
    assert_eq!(world.events("nodes.credit_due").await.len(), 1);
}
