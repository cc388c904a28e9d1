//! What CI does: a service account that launches, by its key alone.

use crate::{
    allocations::{Cloud, SLICE},
    kit::{Gpuaas, text},
};

#[tokio::test]
async fn a_service_account_launches_uses_and_releases_by_its_key_alone() {
    let cloud = Cloud::start().await;
    let user = &cloud.user;
    let files = tempfile::tempdir().unwrap();
    let key = files.path().join("ci.pub");
    std::fs::write(&key, format!("{} ci\n", testkit::made_up_key())).unwrap();
    let create =
        ["service-accounts", "create", "ci", "--role", "launcher", "--ssh-key", key.to_str().unwrap()];
    user.run(&create).await.ok();
    let secret = text(&user.json(&["service-accounts", "keys", "create", "ci"]).await["secret"]);

    // Neither organization nor project are named: it has only its own.
    let ci = Gpuaas::new(&cloud.world.server.base).env("GPUAAS_SERVICE_ACCOUNT_KEY", &secret);
    let who = ci.json(&["auth", "whoami"]).await;
    assert_eq!(
        (&who["kind"], &who["roles"]),
        (&"service_account".into(), &serde_json::json!(["service_account_launcher"])),
        "{who}"
    );
    // What it can spend is bounded by the budget of its project: without one it launches nothing.
    let launch = ["launch", SLICE, "--gpus", "1", "--name", "job-1", "--wait"];
    let said = ci.run(&launch).await.fails(6);
    assert!(said.contains("budget"), "{said}");
    user.run(&["billing", "budgets", "set", "--amount", "50.00", "--action", "release"]).await.ok();
    ci.run(&launch).await.ok();
    let listed = ci.json(&["ls"]).await;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["creator_id"]), (1, &who["id"]), "{listed}");
    // What belongs to others is not its to release, and members are not its to manage.
    cloud.launch(1, "of-ann").await;
    ci.run(&["rm", "of-ann", "--yes"]).await.fails(3);
    ci.run(&["service-accounts", "keys", "create", "ci"]).await.fails(3);
    ci.run(&["rm", "job-1", "--yes", "--wait"]).await.ok();

    // A revoked account launches nothing.
    user.run(&["service-accounts", "disable", "ci"]).await.ok();
    ci.run(&["launch", SLICE, "--gpus", "1"]).await.fails(3);
}
