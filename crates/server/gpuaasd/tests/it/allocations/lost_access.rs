//! Whoever loses access loses it on the machine: a real host with a real sshd, the real agent, and the real API.

use serde_json::json;
use testkit::{World, eventually, invariants};

use super::real_host::{Host, SKU, colleagues, sell, user_of};

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_disabled_is_refused_by_the_machine() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let mut host = Host::boot();
    sell(&world, &mut host).await;
    let (his, hers, dees) = (host.key("his"), host.key("hers"), host.key("dees"));
    let [bo, _] = colleagues(&world, [&his, &hers]).await;
    let id = bo.active(json!({ "sku": SKU })).await;
    let user = user_of(&bo, &id, &host).await;

    let (dee, account) = world.local_person("dee").await;
    dee.add_key("laptop", &dees.public).await;
    let orgs = bo.api().get("/api/v1/orgs").await.expect(200);
    let acme = orgs["items"].as_array().unwrap().iter().find(|org| org["slug"] == "acme").unwrap();
    world.join(&dee, acme["id"].as_str().unwrap(), "member").await;
    let member = format!("/api/v1/projects/{}/members/{}", bo.project, dee.id);
    world.admin.put(&member, json!({ "role": "member" })).await.expect(200);
    let grant = json!({ "user_id": dee.id });
    bo.api().post(&bo.path(&format!("/{id}/grants")), grant).await.expect(201);
    eventually("the machine has the keys", || async {
        (bo.get(&id).await["access_current"] == true).then_some(())
    })
    .await;
    assert_eq!(host.ssh(&user, &dees, "whoami").unwrap(), user);

    world.admin.post(&format!("/api/v1/platform/accounts/{account}/disable"), json!({})).await.expect(200);
    eventually("the key is gone", || async {
        let said = host.ssh(&user, &dees, "true");
        said.is_err_and(|said| said.contains("Permission denied")).then_some(())
    })
    .await;
    assert_eq!(dee.api.get("/api/v1/me").await.status, 401);
    assert_eq!(host.ssh(&user, &his, "whoami").unwrap(), user, "nobody else lost anything");
    bo.release(&id).await;
    invariants::hold(&world.db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_loses_access_is_refused_by_the_machine_at_once_or_when_its_node_is_back() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let mut host = Host::boot();
    sell(&world, &mut host).await;
    let (his, hers) = (host.key("his"), host.key("hers"));
    let [bo, cy] = colleagues(&world, [&his, &hers]).await;
    let id = bo.active(json!({ "sku": SKU })).await;
    let user = user_of(&bo, &id, &host).await;
    let current = || async {
        eventually("the machine has the keys", || async {
            (bo.get(&id).await["access_current"] == true).then_some(())
        })
        .await;
    };
    let grant = json!({ "user_id": cy.person.id });
    bo.api().post(&bo.path(&format!("/{id}/grants")), grant).await.expect(201);
    current().await;
    assert_eq!(host.ssh(&user, &hers, "whoami").unwrap(), user);

    // She deletes her key.
    let keys = cy.api().get("/api/v1/me/ssh-keys").await.expect(200);
    let key = keys["items"][0]["id"].as_str().unwrap().to_owned();
    cy.api().delete(&format!("/api/v1/me/ssh-keys/{key}")).await.expect(204);
    eventually("her key is gone", || async {
        let said = host.ssh(&user, &hers, "true");
        said.is_err_and(|said| said.contains("Permission denied")).then_some(())
    })
    .await;
    assert_eq!(host.ssh(&user, &his, "whoami").unwrap(), user);

    // She has another, and is removed from the project while the node is away.
    cy.person.add_key("desktop", &hers.public).await;
    let refresh = bo.path(&format!("/{id}/access/refresh"));
    bo.api().post(&refresh, json!({})).await.expect(202);
    current().await;
    assert_eq!(host.ssh(&user, &hers, "whoami").unwrap(), user);
    host.kill_agent();
    let member = format!("/api/v1/projects/{}/members/{}", cy.project, cy.person.id);
    world.admin.delete(&member).await.expect(204);
    eventually("it is known that she must go", || async {
        (bo.get(&id).await["access_current"] == false).then_some(())
    })
    .await;
    assert_eq!(host.ssh(&user, &hers, "whoami").unwrap(), user, "nobody could tell the machine");
    host.run_agent();
    eventually("her key is gone", || async {
        let said = host.ssh(&user, &hers, "true");
        said.is_err_and(|said| said.contains("Permission denied")).then_some(())
    })
    .await;
    current().await;
    assert_eq!(host.ssh(&user, &his, "whoami").unwrap(), user);
    bo.release(&id).await;
    invariants::hold(&world.db).await;
}
