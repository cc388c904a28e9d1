//! Trust of nodes, and old spellings of commands.

use serde_json::json;

use crate::fleet::Fleet;

#[tokio::test]
async fn trust_is_rotated_by_commands_and_force_is_asked_about() {
    let fleet = Fleet::start().await;
    let operator = &fleet.operator;
    fleet.enrolled("gpu-01").await;
    let staged = operator.json(&["trust", "signers", "stage", "--reason", "yearly"]).await;
    assert_eq!((&staged["signer_version"], &staged["state"]), (&json!(2), &json!("staged")));
    let table = operator.run(&["trust", "signers", "list", "--no-headers"]).await.ok();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert!(rows.contains(&vec!["2", "staged", "0", "1"]), "{table}");
    // The node has not taken it over.
    operator.run(&["trust", "signers", "activate", "2"]).await.fails(5);
    operator.run(&["trust", "signers", "activate", "2", "--force", "--yes"]).await.fails(1);
    let force = ["trust", "signers", "activate", "2", "--force", "--reason", "the node is gone"];
    let said = operator.run(&force).await.fails(1);
    assert!(said.contains("confirmation is required"), "{said}");
    assert_eq!(operator.json(&[&force[..], &["--yes"]].concat()).await["state"], "active");
    let keyset = operator.run(&["trust", "keyset"]).await.ok();
    assert!(keyset.contains("2 active") && keyset.contains("1 grace"), "{keyset}");
    operator.run(&["trust", "authorities", "stage"]).await.ok();
    let authorities = operator.json(&["trust", "authorities", "list"]).await;
    assert_eq!(authorities.as_array().unwrap().len(), 2, "{authorities}");
    assert_eq!(operator.json(&["agents", "list"]).await, json!([]));
    let said = operator.run(&["nodes", "agent-update", "gpu-01", "--to", "9.9.9"]).await.fails(4);
    assert!(said.contains("gpuaas agents list"), "{said}");
    operator.run(&["nodes", "show", "gpu-02"]).await.fails(4);
    operator.run(&["regions", "delete", "eu-north", "--yes"]).await.fails(5);
    operator.run(&["pools", "update", "h200", "--description", "eight each"]).await.ok();
    // Old spellings go on working.
    for (update, name) in
        [(&["update", "eu-north", "--name", "N"][..], "N"), (&["rename", "eu-north", "M"], "M")]
    {
        assert_eq!(operator.json(&[&["regions"], update].concat()).await["name"], name);
    }
    assert_eq!(operator.json(&["pools", "get", "h200"]).await["description"], "eight each");
    assert_eq!(operator.json(&["nodes", "get", "gpu-01"]).await["hostname"], "gpu-01");
}
