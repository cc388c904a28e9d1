//! Tenants see, change and infer nothing of each other's allocations, and nothing of the fleet.

use serde_json::{Value, json};
use sqlx::Row as _;
use testkit::{Answer, Tenant, World, invariants};

const SLICE: &str = "h200-sxm-slice";
const MACHINE: &str = "h200-sxm-baremetal-8g";

/// An id of the same kind that nothing has.
fn absent(id: &str) -> String {
    let (kind, rest) = id.split_at(id.len() - 12);
    format!("{kind}{}", rest.chars().map(|c| if c == '0' { '1' } else { '0' }).collect::<String>())
}

/// An answer without what differs by nature, and with the ids that were asked for taken out.
fn plain(answer: &Answer, asked: &[&str]) -> (u16, String) {
    let mut body = answer.body.clone();
    body["error"]["correlation_id"] = Value::Null;
    let text = asked.iter().fold(body.to_string(), |text, id| text.replace(*id, "ASKED"));
    (answer.status, text)
}

async fn every_request(
    who: &Tenant,
    project: &str,
    allocation: &str,
    group: &str,
    user: &str,
) -> Vec<Answer> {
    let one = format!("/api/v1/projects/{project}/allocations/{allocation}");
    let groups = format!("/api/v1/projects/{project}/allocation-groups");
    let api = who.api();
    let mut answers = Vec::new();
    for path in [
        one.clone(),
        format!("{one}?wait=1s"),
        format!("{one}/events"),
        format!("{one}/stream"),
        format!("{one}/grants"),
        format!("{groups}/{group}"),
    ] {
        answers.push(api.get(&path).await);
    }
    for path in [
        format!("{one}/release"),
        format!("{one}/retry"),
        format!("{one}/restart"),
        format!("{one}/access/refresh"),
        format!("{groups}/{group}/release"),
    ] {
        answers.push(api.post(&path, json!({})).await);
    }
    answers.push(api.post(&format!("{one}/grants"), json!({ "user_id": user })).await);
    answers.push(api.delete(&format!("{one}/grants/{user}")).await);
    answers
}

#[tokio::test]
async fn what_is_somebody_else_s_looks_like_what_does_not_exist() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let (ann, eve) = (world.tenant("ann").await, world.tenant("eve").await);
    let id = ann.active(json!({ "sku": SLICE, "gpus": 2, "name": "secret" })).await;
    let groups = format!("/api/v1/projects/{}/allocation-groups", ann.project);
    let group = ann.api().post_once("g", &groups, json!({ "members": 2, "sku": SLICE })).await.expect(202);
    let group = group["id"].as_str().unwrap().to_owned();
    let [no_alloc, no_group, no_project] = [&id, &group, &ann.project].map(|id| absent(id));

    // In the other project; and in one's own, with the other's ids.
    for (project, no_project) in [(&ann.project, &no_project), (&eve.project, &eve.project)] {
        let hidden = every_request(&eve, project, &id, &group, &eve.person.id).await;
        let missing = every_request(&eve, no_project, &no_alloc, &no_group, &eve.person.id).await;
        for (hidden, missing) in hidden.iter().zip(&missing) {
            assert_eq!(hidden.status, 404, "{}", hidden.text);
            let asked = [id.as_str(), &no_alloc, &group, &no_group, project, no_project];
            assert_eq!(plain(hidden, &asked), plain(missing, &asked));
            assert!(!hidden.text.contains("secret"));
        }
    }
    for rest in ["", "?live=true", "?state=active"] {
        let path = format!("/api/v1/projects/{}/allocations{rest}", ann.project);
        eve.api().get(&path).await.refused(404, "not_found");
        assert_eq!(eve.api().get(&eve.path(rest)).await.expect(200)["items"], json!([]));
    }
    let made = format!("/api/v1/projects/{}/allocations", ann.project);
    eve.api().post_once("k", &made, json!({ "sku": SLICE })).await.refused(404, "not_found");

    // Nobody lets a stranger in; whether the stranger exists is not told.
    let grants = ann.path(&format!("/{id}/grants"));
    let stranger = ann.api().post(&grants, json!({ "user_id": eve.person.id })).await;
    let nobody = absent(&eve.person.id);
    let ghost = ann.api().post(&grants, json!({ "user_id": nobody })).await;
    assert!((400..500).contains(&stranger.status), "{}", stranger.text);
    assert_eq!(plain(&stranger, &[&eve.person.id]), plain(&ghost, &[&nobody]));

    let seen = ann.get(&id).await;
    assert_eq!(
        (&seen["state"], &seen["access_current"]),
        (&json!("active"), &json!(true)),
        "nothing happened"
    );
    assert_eq!(ann.event_names(&id, "operation").await, [""; 0]);
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_member_operates_what_they_made_and_an_admin_what_anybody_made() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let org = world.org("acme").await;
    world.fund(&org, 10_000).await;
    let project = world.project(&org, "lab").await;
    let mut people = Vec::new();
    for (name, role) in [("bo", "member"), ("cy", "member"), ("vi", "viewer")] {
        let person = world.person(name).await;
        person.add_key("laptop", &testkit::made_up_key()).await;
        world.join(&person, &org, "member").await;
        let path = format!("/api/v1/projects/{project}/members/{}", person.id);
        world.admin.put(&path, json!({ "role": role })).await.expect(200);
        people.push(Tenant { person, project: project.clone() });
    }
    let [bo, cy, vi] = people.try_into().unwrap_or_else(|_| panic!("three people"));
    let id = bo.active(json!({ "sku": SLICE })).await;
    assert_eq!(cy.get(&id).await["id"], vi.get(&id).await["id"], "people of the project see it");
    for what in ["release", "restart", "access/refresh"] {
        cy.act(&id, what).await.refused(403, "ownership_required");
        vi.act(&id, what).await.refused(403, "insufficient_permissions");
    }
    vi.request(json!({ "sku": SLICE })).await.refused(403, "insufficient_permissions");
    let grants = bo.path(&format!("/{id}/grants"));
    cy.api().post(&grants, json!({ "user_id": cy.person.id })).await.refused(403, "ownership_required");
    bo.api().post(&grants, json!({ "user_id": cy.person.id })).await.expect(201);
    testkit::eventually("the machine has the keys", || async {
        (bo.get(&id).await["access_current"] == true).then_some(())
    })
    .await;
    // To be let in is not to own it.
    cy.act(&id, "release").await.refused(403, "ownership_required");
    let root = Tenant { person: world.person("root").await, project };
    root.release(&id).await;
    invariants::hold(&world.db).await;
}

/// Everything by which the fleet could be told apart.
async fn layout(world: &World) -> Vec<String> {
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    let rows = sqlx::query(
        "SELECT id::text AS t FROM nodes UNION SELECT hostname FROM nodes UNION SELECT id::text FROM node_resource_slots
         UNION SELECT pci_address FROM node_resource_slots UNION SELECT fabric_vf FROM node_resource_slots
         UNION SELECT mac_address FROM node_resource_slots UNION SELECT nvme_device FROM node_resource_slots
         UNION SELECT id::text FROM node_tasks",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let words = rows.iter().filter_map(|row| row.get::<Option<String>, _>("t")).filter(|word| word.len() > 5);
    words.flat_map(|word| [word.replace('-', ""), word]).collect()
}

#[tokio::test]
async fn nothing_that_a_tenant_reads_tells_of_nodes_slots_or_tasks() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 2), ("cpu", 1)]).await;
    let ann = world.tenant("ann").await;
    let mut read = Vec::new();
    let groups = format!("/api/v1/projects/{}/allocation-groups", ann.project);
    let asked =
        [json!({ "sku": SLICE, "gpus": 4 }), json!({ "sku": MACHINE }), json!({ "sku": "compute-vm-small" })];
    let mut ids = Vec::new();
    for body in asked {
        let made = ann.request(body).await;
        read.push(made.text.clone());
        let id = made.expect(202)["id"].as_str().unwrap().to_owned();
        ann.until(&id, "active").await;
        ids.push(id);
    }
    let pair = ann.api().post_once("g", &groups, json!({ "members": 2, "sku": SLICE })).await;
    let group = pair.body["id"].as_str().unwrap().to_owned();
    read.push(pair.text);
    // Refusals, a launch that fails, one that is cancelled, a restart.
    for body in [json!({ "sku": SLICE, "gpus": 8 }), json!({ "sku": MACHINE }), json!({ "sku": "h100" })] {
        let refused = ann.request(body).await;
        assert_eq!((refused.status, refused.code()), (409, "sku_unavailable"), "{}", refused.text);
        read.push(refused.text);
    }
    for query in ["sku=h200-sxm-slice&gpus=8", "sku=h200-sxm-baremetal-8g", "sku=compute-vm-small&count=64"] {
        read.push(ann.api().get(&ann.path(&format!("/explain?{query}"))).await.text);
    }
    nodes.script(
        "[[script]]\ntask = 'slice.vm_provision'\nmessage = 'simnode-h200-8-1 task_1 0000:17:00.0'\n",
    );
    let doomed = ann.launch(json!({ "sku": SLICE })).await;
    ann.until(&doomed, "failed").await;
    nodes.script("");
    ann.act(&ids[0], "restart").await.expect(202);
    testkit::eventually("the restart is over", || async {
        ann.event_names(&ids[0], "operation").await.iter().any(|name| name == "restarted").then_some(())
    })
    .await;
    ids.push(doomed);
    read.push(ann.api().get("/api/v1/catalog").await.text);
    read.push(ann.api().get(&ann.path("")).await.text);
    read.push(ann.api().get(&groups).await.text);
    read.push(ann.api().get(&format!("{groups}/{group}")).await.text);
    for id in &ids {
        read.push(ann.api().get(&ann.path(&format!("/{id}"))).await.text);
        let released = ann.act(id, "release").await;
        read.push(released.text);
        ann.until_within(std::time::Duration::from_secs(30), id, &["released", "failed"]).await;
        for rest in ["", "/events", "/stream", "/grants"] {
            let answer = ann.api().get(&ann.path(&format!("/{id}{rest}"))).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            read.push(answer.text);
        }
    }
    let audit = ann.api().get(&format!("/api/v1/orgs/{}/audit", ann.person.org_id)).await;
    assert_eq!(audit.status, 200, "{}", audit.text);
    read.push(audit.text);
    let layout = layout(&world).await;
    assert!(layout.len() > 40, "there is a fleet to tell of");
    let all = read.join("\n");
    for word in
        layout.iter().map(String::as_str).chain(["node_id", "slot_id", "slot_index", "task_id", "numa"])
    {
        assert!(!all.contains(word), "a tenant reads {word} in {:?}", read.iter().find(|t| t.contains(word)));
    }
    invariants::hold(&world.db).await;
}
