//! Bootstrap tokens in the wrong hands.

use testkit::{CreatedNode, NodeKeys, World};

use super::refusals;

#[tokio::test]
async fn a_bootstrap_token_is_worth_one_enrolment_of_one_node_in_its_time() {
    let world = World::start().await;
    let (mine, other) = (world.created_node("mine").await, world.created_node("other").await);
    let listener = world.node_listener().await;
    let enroll = async |node: &CreatedNode| {
        let body = World::enroll_body(node, &NodeKeys::generate());
        listener.post("/internal/v1/nodes/enroll", body).await
    };
    let before = refusals(&world, "node.enroll").await;
    let stolen = [
        CreatedNode { id: other.id.clone(), hostname: other.hostname.clone(), ..mine.clone() },
        CreatedNode { hostname: "elsewhere".to_owned(), ..mine.clone() },
        CreatedNode { token: "guessed".to_owned(), ..mine.clone() },
    ];
    for attempt in &stolen {
        enroll(attempt).await.refused(401, "token_invalid");
    }
    enroll(&mine).await.expect(200);
    enroll(&mine).await.refused(401, "token_invalid");
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    let late = "UPDATE node_tokens SET created_at = created_at - interval '20 minutes', expires_at = expires_at - interval '20 minutes'";
    sqlx::Executor::execute(&mut conn, late).await.expect("time passes");
    enroll(&other).await.refused(401, "token_invalid");
    assert!(refusals(&world, "node.enroll").await >= before + 5);
    assert_eq!(world.node_state(&other.id).await, "bootstrap_issued");
    // Nothing of a token lies readable in the database.
    let found = world
        .count(&format!(
            "SELECT count(*) FROM node_tokens WHERE encode(token_hash, 'escape') LIKE '%{}%'",
            mine.token
        ))
        .await;
    assert_eq!(found, 0);
}

#[tokio::test]
async fn of_many_that_enrol_with_one_token_at_once_one_becomes_the_node() {
    let world = World::start().await;
    let mine = world.created_node("mine").await;
    let listener = world.node_listener().await;
    let attempts = (0..20).map(|_| {
        let (listener, body) = (listener.clone(), World::enroll_body(&mine, &NodeKeys::generate()));
        tokio::spawn(async move { listener.post("/internal/v1/nodes/enroll", body).await.status })
    });
    let mut admitted = 0;
    for attempt in attempts.collect::<Vec<_>>() {
        let status = attempt.await.unwrap();
        assert!(matches!(status, 200 | 401 | 429 | 503), "{status}");
        admitted += usize::from(status == 200);
    }
    assert_eq!(admitted, 1);
    assert_eq!(world.count("SELECT count(*) FROM node_certificates").await, 1);
}
