//! `If-Match`: nobody overwrites a change that they have not seen.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Answer, Api, World};

use crate::held::{Held, requests_only};

async fn rename(api: &Api, path: &str, version: i64, name: &str) -> Answer {
    let request = api.request(Method::PATCH, path).header("if-match", format!("\"{version}\""));
    api.send(request.json(&json!({ "name": name }))).await
}

fn version(project: &Value) -> i64 {
    project["version"].as_i64().unwrap()
}

#[tokio::test]
async fn a_change_based_on_a_stale_version_is_refused_and_one_on_the_current_is_made() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/projects/{}", world.project(&org, "p").await);
    let read = version(&world.admin.get(&path).await.expect(200));
    let first = rename(&world.admin, &path, read, "First").await.expect(200);
    assert_eq!((version(&first), &first["name"]), (read + 1, &json!("First")));

    let stale = rename(&world.admin, &path, read, "Second").await.refused(409, "conflict");
    assert_eq!(stale["error"]["details"]["current_version"], read + 1);
    let future = rename(&world.admin, &path, read + 7, "Second").await.refused(409, "conflict");
    assert_eq!(future["error"]["details"]["current_version"], read + 1);
    let now = world.admin.get(&path).await.expect(200);
    assert_eq!((version(&now), &now["name"]), (read + 1, &json!("First")));

    let second = rename(&world.admin, &path, read + 1, "Second").await.expect(200);
    assert_eq!((version(&second), &second["name"]), (read + 2, &json!("Second")));
}

#[tokio::test]
async fn of_two_concurrent_changes_of_one_version_exactly_one_is_made() {
    let world = World::start_with(requests_only()).await;
    let org = world.org("acme").await;
    let project = world.project(&org, "p").await;
    let path = format!("/api/v1/projects/{project}");
    let read = version(&world.admin.get(&path).await.expect(200));
    let uuid = project.trim_start_matches("proj_");
    let mut held = Held::rows(&world.db, &format!("SELECT 1 FROM projects WHERE id = '{uuid}'")).await;
    let mut changes = tokio::task::JoinSet::new();
    for name in ["Mine", "Yours"] {
        let (api, path) = (world.admin.clone(), path.clone());
        changes.spawn(async move { (name, rename(&api, &path, read, name).await) });
    }
    held.until_waiting(2).await;
    held.release().await;

    let (made, refused): (Vec<_>, Vec<_>) =
        changes.join_all().await.into_iter().partition(|(_, answer)| answer.status == 200);
    assert_eq!(made.len(), 1, "{made:?} {refused:?}");
    for (_, answer) in refused {
        let said = answer.refused(409, "conflict");
        assert_eq!(said["error"]["details"]["current_version"], read + 1);
    }
    let now = world.admin.get(&path).await.expect(200);
    assert_eq!((version(&now), &now["name"]), (read + 1, &json!(made[0].0)));
}
