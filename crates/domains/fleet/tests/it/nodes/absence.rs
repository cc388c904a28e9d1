use chrono::{DateTime, TimeDelta, Utc};
use fleet::model::contact::ContactState;
use fleet::service::{
    census::census,
    certificates::certificates_notify,
    contact_loss::nodes_lose_contact,
    contacts::{Contact, Contacts, regained},
};

use super::world::World;

const LONG_AGO: TimeDelta = TimeDelta::days(1);

#[tokio::test]
async fn a_silent_node_is_offline_and_nothing_of_its_work_is_touched() {
    let world = World::new().await;
    let node = world.active("gpu-01", 2).await;
    let away = world.active("gpu-02", 2).await;
    world.tamper("UPDATE node_resource_slots SET state = 'in_use'").await;
    world.report_accept(node.id).await;
    world.report_accept(away.id).await;
    let mut tx = world.write("node.discover").await;
    fleet::service::onboarding::node_discover(&world.fleet, &mut tx, away.id).await.unwrap();
    tx.commit(None).await.unwrap();
    let work = "SELECT coalesce(sum(version), 0)::bigint FROM (SELECT version FROM node_tasks UNION ALL SELECT version FROM node_resource_slots) AS work";
    let before = world.count(work).await;
    let started = world.now() - LONG_AGO;
    world.pass(TimeDelta::seconds(29));
    world.report_accept(node.id).await;
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 0, "not yet");
    world.pass(TimeDelta::seconds(2));
    let turns = tokio::join!(
        nodes_lose_contact(&world.fleet, started, 10),
        nodes_lose_contact(&world.fleet, started, 10)
    );
    assert_eq!(turns.0.unwrap() + turns.1.unwrap(), 1, "two replicas, one step");
    assert_eq!(
        (world.state(node.id).await, world.state(away.id).await),
        ("active".to_owned(), "offline".to_owned())
    );
    assert_eq!(world.detail(away.id).await.contact_state, ContactState::Late);
    assert_eq!(world.count(work).await, before);
    world.report_accept(away.id).await;
    regained(&world.fleet, &[away.id, node.id]).await;
    assert_eq!(world.state(away.id).await, "active");
    assert_eq!(world.count(work).await, before, "nor when it is back");
    assert_eq!(
        (world.events("nodes.offline").await.len(), world.events("nodes.recovered").await.len()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_control_plane_that_was_down_does_not_blame_the_nodes() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    world.report_accept(node.id).await;
    world.pass(TimeDelta::hours(2));
    let started = world.now();
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 0);
    world.pass(TimeDelta::seconds(29));
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 0);
    world.pass(TimeDelta::seconds(2));
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn only_active_nodes_go_offline() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    world.report_accept(node.id).await;
    world.pass(TimeDelta::hours(1));
    for state in ["enrolling", "quarantined", "draining", "retired", "removing", "deleted", "offline"] {
        world.tamper(&format!("UPDATE nodes SET state = '{state}'")).await;
        assert_eq!(nodes_lose_contact(&world.fleet, world.now() - LONG_AGO, 10).await.unwrap(), 0, "{state}");
    }
}

#[tokio::test]
async fn whoever_watches_sees_how_many_nodes_are_lost_and_whose_certificate_is_not_renewed() {
    let world = World::new().await;
    let (node, away) = (world.active("gpu-01", 1).await, world.active("gpu-02", 1).await);
    world.report_accept(node.id).await;
    world.report_accept(away.id).await;
    world.tamper("UPDATE node_contacts SET certificate_expires_at = last_seen_at + interval '2 hours'").await;
    let quiet = census(&world.fleet).await.unwrap();
    assert!(quiet.states.contains(&("active", 2)) && quiet.states.contains(&("offline", 0)), "{quiet:?}");
    assert_eq!(quiet.certificates_ending, 0);
    let started = world.now() - LONG_AGO;
    world.pass(TimeDelta::minutes(91));
    world.report_accept(node.id).await;
    world.tamper("UPDATE node_contacts SET certificate_expires_at = '2100-01-01' WHERE last_seen_at = (SELECT max(last_seen_at) FROM node_contacts)").await;
    nodes_lose_contact(&world.fleet, started, 10).await.unwrap();
    let later = census(&world.fleet).await.unwrap();
    assert!(later.states.contains(&("active", 1)) && later.states.contains(&("offline", 1)), "{later:?}");
    assert_eq!(later.certificates_ending, 1);
    assert_eq!(certificates_notify(&world.fleet).await.unwrap(), 1);
    assert_eq!(certificates_notify(&world.fleet).await.unwrap(), 0, "once for each certificate");
    let told = world.events("nodes.certificate_ending").await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["node_id"], away.id.to_string());
}

#[tokio::test]
async fn a_node_that_reports_nonsense_does_not_silence_the_others() {
    let world = World::new().await;
    let (good, odd) = (world.active("gpu-01", 1).await, world.active("gpu-02", 1).await);
    let contacts = Contacts::new(&world.fleet);
    for (node, expires) in [(good.id, DateTime::UNIX_EPOCH), (odd.id, DateTime::<Utc>::MIN_UTC)] {
        let contact = Contact {
            node,
            seen_at: world.now(),
            agent_version: "1.0.0".to_owned(),
            contract: "1.1".to_owned(),
            certificate_expires_at: expires,
            applied_version: 0,
            keyset_serial: 1,
            authority_ids: Vec::new(),
            clock_offset_ms: 0,
            boot_id: "b".to_owned(),
            metrics: serde_json::json!({}),
            inventory: serde_json::json!({}),
        };
        contacts.note(contact, false).unwrap();
    }
    assert_eq!(contacts.flush(&world.fleet).await.unwrap(), 2);
    assert_eq!(world.count("SELECT count(*) FROM node_contacts").await, 2);
}
