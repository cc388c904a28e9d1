//! What holds between the platform, its organizations and their projects, as clients meet it.

use serde_json::{Value, json};
use testkit::World;

async fn org_with_project(world: &World, owner: &testkit::Person) -> (String, String) {
    let body = json!({ "name": "Acme", "slug": "acme", "owner_user_id": owner.id });
    let org = world.admin.post("/api/v1/platform/orgs", body).await.expect(201);
    let org = org["id"].as_str().unwrap().to_owned();
    let body = json!({ "name": "Work", "slug": "work" });
    let project = owner.api.post(&format!("/api/v1/orgs/{org}/projects"), body).await.expect(201);
    (org, project["id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_project_is_deleted_when_nothing_lives_in_it_and_the_refusal_names_what_does() {
    let world = World::start().await;
    let owner = world.person("owner").await;
    let (_, project) = org_with_project(&world, &owner).await;
    let path = format!("/api/v1/projects/{project}");
    let account =
        owner.api.post(&format!("{path}/service-accounts"), json!({ "name": "bot" })).await.expect(201);
    let budget = json!({ "amount_minor": 100, "threshold_percent": 80, "action": "notify" });
    owner.api.put(&format!("{path}/budget"), budget).await.expect(200);

    let refused = owner.api.delete(&path).await.refused(409, "in_use");
    assert_eq!(
        refused["error"]["details"]["counts"],
        json!({ "budget": 1, "service_account": 1 }),
        "{refused}"
    );
    let named = refused["error"]["details"]["residents"].as_array().unwrap();
    assert!(named.iter().any(|one| one["id"] == account["id"] && one["name"] == "bot"), "{refused}");
    let suggestion = refused["error"]["suggestion"].as_str().unwrap();
    assert!(suggestion.contains("remove its budget"), "{suggestion}");

    let account = account["id"].as_str().unwrap();
    owner.api.delete(&format!("{path}/service-accounts/{account}")).await.expect(204);
    owner.api.delete(&path).await.refused(409, "in_use");
    owner.api.delete(&format!("{path}/budget")).await.expect(204);
    owner.api.delete(&path).await.expect(204);
}

#[tokio::test]
async fn a_limit_of_the_platform_is_lifted_from_below_only_when_it_is_a_default() {
    let world = World::start().await;
    let owner = world.person("owner").await;
    let (org, project) = org_with_project(&world, &owner).await;
    let key = "allocation.max_concurrent_per_user";
    let of_org = format!("/api/v1/orgs/{org}/policies/{key}");
    let of_project = format!("/api/v1/projects/{project}/policies/{key}");
    let effective = async || owner.api.get(&of_project).await.expect(200)["value"].clone();

    world.admin.put(&of_org, json!({ "value": 3 })).await.expect(200);
    let refused = owner.api.put(&of_org, json!({ "value": 50 })).await.refused(403, "admin_required");
    assert_eq!(refused["error"]["details"]["bound"], 3, "{refused}");
    owner.api.delete(&of_org).await.refused(403, "admin_required");
    owner.api.put(&of_project, json!({ "value": 50 })).await.refused(422, "unprocessable");
    assert_eq!(effective().await, json!(3));

    let explained: Value =
        world.admin.put(&of_org, json!({ "value": 3, "is_default": true })).await.expect(200);
    assert_eq!(explained["value"], 3);
    owner.api.put(&of_project, json!({ "value": 20 })).await.expect(200);
    assert_eq!(effective().await, json!(20));
    owner.api.put(&of_org, json!({ "value": 30 })).await.expect(200);
}
