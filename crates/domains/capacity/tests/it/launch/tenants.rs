//! Tenants see their own, and nothing of the fleet.

use http::{Method, StatusCode};
use kernel::{CorrelationId, Permission, Role, ids::NodeId};
use pg::{Actor, ActorKind, Origin, Permit, Roles, Scope};
use serde_json::json;
use uuid::Uuid;

use super::world::{World, slice, whole};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_see_or_touch_what_another_has() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    let other = world.another_tenant("second").await;
    let made = world.launch(world.tenant, slice(1)).await.id();
    let path = format!("allocations/{made}");
    assert_eq!(world.get(other, "allocations").await.body["items"], json!([]));
    for path in [path.clone(), format!("{path}/events"), format!("{path}/stream")] {
        assert_eq!(world.get(other, &path).await.code(), "not_found", "{path}");
    }
    for action in ["release", "restart", "retry"] {
        let answer = world.post(other, &format!("{path}/{action}"), json!({})).await;
        assert_eq!(answer.code(), "not_found", "{action}");
    }
    // By the other's path they are not even told that the project exists.
    let theirs = format!("{}/allocations", world.tenant.project);
    for (method, body) in [(Method::GET, None), (Method::POST, Some(slice(1)))] {
        let answer = world.send(other.member, method, &theirs, Some("k"), body).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_itself_keeps_tenants_apart() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    let other = world.another_tenant("second").await;
    world.launch(world.tenant, slice(1)).await.id();
    let actor =
        Actor { kind: ActorKind::User, id: Some(other.member.uuid()), role: Role::ProjectMember.name() };
    let granted = Role::ProjectMember.permissions().authorize(Permission::AllocationRead).unwrap();
    let origin = Origin::internal(CorrelationId(world.test.db.ambient().uuid()));
    let permit = Permit::granted(actor, Scope::Project(other.org, other.project), origin, granted);
    let mut tx = world.test.db.read(&permit).await.unwrap();
    for table in ["allocations", "allocation_events", "allocation_groups", "capacity_holdings"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let seen: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(tx.conn()).await.unwrap();
        assert_eq!(seen, 0, "{table}");
    }
    for table in ["capacity_claims", "node_capacity", "nodes", "node_resource_slots", "saga_runs"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let refused = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(tx.conn()).await;
        assert!(refused.is_err(), "{table}");
    }
    drop(tx);
    // Keys of people are shown to the projects that they can enter, and to no other.
    let member = world.tenant.member;
    let mut tx = world.test.db.read(&permit).await.unwrap();
    for project in [other.project, world.tenant.project] {
        let keys = identity::api::member_ssh_keys(tx.conn(), project, &[member.uuid()]).await.unwrap();
        assert_eq!(keys, []);
    }
    let own = identity::api::member_ssh_keys(tx.conn(), other.project, &[other.member.uuid()]).await.unwrap();
    assert_eq!(own.len(), 1);
    drop(tx);
    // Nothing can be reserved in somebody else's name, even past the service.
    let mut tx = world.test.db.write(permit, "allocation.test").await.unwrap();
    let sql = format!(
        "SELECT capacity_reserve(now(), ROW('{}', '{}', 'user', '{}', NULL, NULL, 's', 'cpu_vm', 'eu', 0, '{{}}',
             'gpu_hour', 1, 'USD', 'user-revoke')::launch_terms, ROW(9, 9, 9)::reserve_limits,
             ROW('{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')::allocation_batch,
             ROW('{{}}', '{{}}', '{{}}')::claim_batch, ROW('user', NULL, gen_random_uuid())::write_origin)",
        world.tenant.org.uuid(),
        world.tenant.project.uuid(),
        member.uuid(),
    );
    let refused = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(tx.conn()).await.unwrap_err();
    assert!(refused.to_string().contains("own organization"), "{refused}");
    tx.roll_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_names_a_node_or_a_slot() {
    let world = World::new().await;
    world.region("eu").await;
    let mut nodes: Vec<NodeId> = Vec::new();
    for _ in 0..3 {
        nodes.push(world.node("eu", 8).await);
    }
    let machine = world.launch(world.tenant, whole()).await.id();
    world.launch(world.tenant, slice(4)).await.id();
    let mut group = slice(2);
    group["members"] = json!(2);
    let group = world.post(world.tenant, "allocation-groups", group).await.id();
    world.launch(world.tenant, slice(8)).await;
    world.launch(world.tenant, json!({ "sku": "mi300x" })).await;
    world.launch(world.tenant, whole()).await;
    for path in [
        "allocations".to_owned(),
        format!("allocations/{machine}"),
        format!("allocations/{machine}/events"),
        "allocation-groups".to_owned(),
        format!("allocation-groups/{group}"),
        "allocations/explain?sku=h200-sxm-slice&gpus=8".to_owned(),
    ] {
        world.get(world.tenant, &path).await;
    }
    world.post(world.tenant, &format!("allocations/{machine}/release"), json!({})).await;
    let mut admin = world.test.conn(Roles::Admin).await;
    let slots: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM node_resource_slots").fetch_all(&mut admin).await.unwrap();
    let answers = world.answers.lock().unwrap().clone();
    assert!(answers.len() > 5000, "something was answered");
    for id in nodes.iter().map(|node| node.uuid()).chain(slots) {
        for text in [id.to_string(), id.simple().to_string()] {
            assert!(!answers.contains(&text), "{text} is in an answer");
        }
    }
    for word in ["host-", "node_id", "slot_id", "slot_ids", "work_order", "0000:a0"] {
        assert!(!answers.contains(word), "{word} is in an answer");
    }
}
