//! Work that nobody signed, and results of work that nobody was given.

use kernel::Ambient;
use serde_json::json;
use testkit::{NodeClient, World, eventually};
use trust::signer::{FileCustody, KeyCustody as _};

use super::{drain_queue, node, payload, refusals};

/// As a superuser of the database: one more task row.
async fn insert_task(
    world: &World,
    node: &str,
    task: uuid::Uuid,
    payload: &[u8],
    signature: &[u8],
    signer: i32,
) {
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    sqlx::query(
        "INSERT INTO node_tasks (id, node_id, task_type, payload, signature, signer_version, correlation_id, issued_at, expires_at, created_at, updated_at)
         VALUES ($1, $2, 'node.reboot', $3, $4, $5, $6, now(), now() + interval '10 minutes', now(), now())",
    )
    .bind(task)
    .bind(uuid::Uuid::parse_str(node.trim_start_matches("node_")).unwrap())
    .bind(payload)
    .bind(signature)
    .bind(signer)
    .bind(uuid::Uuid::nil())
    .execute(&mut conn)
    .await
    .expect("a superuser can insert rows");
}

fn reboot(node: &str, task: uuid::Uuid, signer: u32) -> Vec<u8> {
    let now = Ambient::system().now();
    let task = node_proto::Task {
        task_id: task.into(),
        node_id: node.parse().unwrap(),
        task_type: "node.reboot".to_owned(),
        params: json!({ "reason": "because I can" }),
        attempt: 1,
        issued_at: now,
        expires_at: now + chrono::TimeDelta::minutes(10),
        correlation_id: uuid::Uuid::nil(),
        traceparent: None,
        signer_version: signer,
    };
    task.canonical().unwrap()
}

/// None of `ids` reaches the node; each ends as failed, and the attempt is recorded.
async fn never_delivered(world: &World, node: &NodeClient, ids: &[uuid::Uuid]) {
    let tasks = node.wait(2, "").await;
    assert!(tasks.is_empty(), "{tasks:?}");
    for id in ids {
        let state = eventually("the row is ended", || async {
            let answer = world.admin.get(&format!("/api/v1/platform/tasks/task_{}", id.simple())).await;
            (answer.body["state"] != "queued" && answer.body["state"] != "dispatched").then_some(answer.body)
        })
        .await;
        assert_eq!(state["state"], "failed", "{state}");
    }
    let recorded = refusals(world, "task.dispatch").await;
    assert!(recorded >= i64::try_from(ids.len()).unwrap(), "{recorded}");
}

#[tokio::test]
async fn a_superuser_of_the_database_cannot_make_a_node_do_anything() {
    let world = World::start().await;
    let (one, other) = (node(&world, "one").await, node(&world, "other").await);
    drain_queue(&one).await;
    drain_queue(&other).await;
    let ambient = Ambient::system();
    let ids: Vec<uuid::Uuid> = (0..4).map(|_| ambient.uuid()).collect();

    // A row without a signature; one with a signature that somebody made with a key of theirs.
    let mine = tempfile::tempdir().unwrap();
    let custody = FileCustody::open(mine.path().join("keys")).unwrap();
    let public = custody.generate(1).unwrap();
    let forged = reboot(&one.id, ids[1], 1);
    let signature = custody.sign(1, &node_proto::task::signing_bytes(&forged)).unwrap();
    insert_task(&world, &one.id, ids[0], &reboot(&one.id, ids[0], 1), &[0; 64], 1).await;
    insert_task(&world, &one.id, ids[1], &forged, &signature, 1).await;

    // A signer of their own, in the table and in a list of their own making.
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    sqlx::query("INSERT INTO signer_keys (signer_version, state, public_key, created_at, updated_at) VALUES (99, 'grace', $1, now(), now())")
        .bind(&public[..])
        .execute(&mut conn)
        .await
        .unwrap();
    let keyset = node_proto::Keyset {
        serial: 1000,
        issued_at: ambient.now(),
        signers: vec![node_proto::SignerKey {
            signer_version: 99,
            state: node_proto::SignerState::Active,
            public_key: node_proto::text::Base64(public.to_vec()),
        }],
    };
    let document = node_proto::canonical::encode(&keyset).unwrap();
    let list_signature = custody.sign_keyset(1000, &node_proto::keyset::signing_bytes(&document)).unwrap();
    sqlx::query(
        "INSERT INTO signer_keysets (serial, document, signature, created_at) VALUES (1000, $1, $2, now())",
    )
    .bind(&document)
    .bind(&list_signature[..])
    .execute(&mut conn)
    .await
    .unwrap();
    sqlx::Executor::execute(&mut conn, "SELECT pg_notify('gpuaas_invalidate', '*')").await.unwrap();
    let forged = reboot(&one.id, ids[2], 99);
    let signature = custody.sign(1, &node_proto::task::signing_bytes(&forged)).unwrap();
    insert_task(&world, &one.id, ids[2], &forged, &signature, 99).await;

    // A real task of another node, moved here.
    let drain = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", other.id), json!({})).await;
    assert!(drain.status < 300, "{}", drain.text);
    let sql = "UPDATE node_tasks SET state = 'cancelled' WHERE state = 'queued' AND task_type = 'slice.topology_discover' RETURNING payload, signature";
    let (real, signature): (Vec<u8>, Vec<u8>) = sqlx::query_as(sql).fetch_one(&mut conn).await.unwrap();
    insert_task(&world, &one.id, ids[3], &real, &signature, 1).await;

    never_delivered(&world, &one, &ids).await;
    // What was signed cannot be changed either.
    let altered = sqlx::Executor::execute(&mut conn, "UPDATE node_tasks SET payload = 'x'").await;
    assert!(altered.is_err());
    // And the real control plane still works.
    let again = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", one.id), json!({})).await;
    assert!(again.status < 300, "{}", again.text);
    assert_eq!(one.wait(5, "").await.len(), 1);
}

#[tokio::test]
async fn work_of_a_retired_signer_is_not_handed_out() {
    let world = World::start().await;
    let one = node(&world, "one").await;
    drain_queue(&one).await;
    let queued = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", one.id), json!({})).await;
    assert!(queued.status < 300, "{}", queued.text);
    let signers = "/api/v1/platform/trust/signers";
    let force = json!({ "force": true, "reason": "test" });
    let staged = world.admin.post(signers, json!({})).await;
    assert!(staged.status < 300, "{}", staged.text);
    for step in ["2/activate", "1/retire"] {
        let done = world.admin.post(&format!("{signers}/{step}"), force.clone()).await;
        assert!(done.status < 300, "{step}: {}", done.text);
    }
    assert!(one.wait(2, "").await.is_empty(), "signed by a retired signer");
    assert!(refusals(&world, "task.dispatch").await >= 1);
    // New work is signed by the new one, without a restart of anything.
    let queued = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", one.id), json!({})).await;
    assert!(queued.status < 300, "{}", queued.text);
    let tasks = one.wait(5, "").await;
    assert_eq!(tasks[0]["signer_version"], 2, "{tasks:?}");
}

#[tokio::test]
async fn a_result_counts_only_from_the_node_that_was_given_the_task_and_only_once() {
    let world = World::start().await;
    let (one, other) = (node(&world, "one").await, node(&world, "other").await);
    let task = &one.wait(10, "").await[0];
    let id = payload(task)["task_id"].as_str().unwrap().to_owned();
    let result = |text: &str| json!({ "ending": { "status": "failed", "failure": { "code": "driver", "message": text } } });
    let path = |node: &NodeClient| node.path(&format!("tasks/{id}/result"));
    other.api.post(&path(&other), result("forged")).await.refused(404, "not_found");
    let unknown = one.path(&format!("tasks/task_{:032x}/result", 5));
    one.api.post(&unknown, result("made up")).await.refused(404, "not_found");
    assert!(refusals(&world, "task.result").await >= 1);
    one.api.post(&path(&one), result("true")).await.expect(200);
    one.api.post(&path(&one), result("true")).await.expect(200);
    one.api.post(&path(&one), result("changed my mind")).await.refused(409, "conflict");
    let written = world
        .count("SELECT count(*) FROM audit_logs WHERE action = 'task.result' AND result = 'allowed'")
        .await;
    assert_eq!(written, 1, "the same result again has no effect");
}
