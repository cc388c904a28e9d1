//! The audit trail: listed, exported, and checked without the server.

use crate::kit::{Place, text};

#[tokio::test]
async fn a_flipped_byte_in_an_export_is_found_and_its_row_named() {
    let place = Place::start().await;
    place.org_and_project().await;
    let trail = place.admin.json(&["audit", "list", "--org", "acme", "--action", "project.create"]).await;
    assert_eq!(trail.as_array().unwrap().len(), 1, "{trail}");
    place.admin.run(&["audit", "verify", "--org", "acme"]).await.ok();
    place.admin.run(&["audit", "verify", "--platform"]).await.ok();

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("export.ndjson");
    let file = file.to_str().unwrap();
    place.admin.run(&["audit", "export", "--org", "acme", "--out", file]).await.ok();
    let export = std::fs::read_to_string(file).unwrap();
    assert_eq!(place.admin.run(&["audit", "export", "--org", "acme"]).await.ok(), export);

    // Offline: a program that knows no server.
    let offline = crate::kit::Gpuaas::new("http://127.0.0.1:1");
    assert_eq!(offline.json(&["audit", "verify", "--file", file]).await["ok"], true);
    std::fs::write(file, export.replacen("project.create", "project.createX", 1)).unwrap();
    let seq = trail[0]["seq"].to_string();
    let said = offline.run(&["audit", "verify", "--file", file]).await.fails(1);
    assert!(said.contains(&format!("row {seq} ")) && said.contains("changed"), "{said}");
    let without: String =
        export.lines().filter(|line| !line.contains("project.create")).map(|l| format!("{l}\n")).collect();
    std::fs::write(file, without).unwrap();
    let said = offline.run(&["audit", "verify", "--file", file]).await.fails(1);
    assert!(said.contains(&format!("row {seq}")), "{said}");
}

#[tokio::test]
async fn a_row_changed_in_the_database_is_found_by_the_server() {
    let place = Place::start().await;
    place.org_and_project().await;
    let trail = place.admin.json(&["audit", "list", "--org", "acme", "--action", "project.create"]).await;
    let row = format!("row {} ({})", trail[0]["seq"], text(&trail[0]["id"]));
    let change = "SET session_replication_role = replica;
        UPDATE audit_logs SET actor_role = 'nobody' WHERE action = 'project.create'";
    place.db.sql(change).await;
    let ran = place.admin.run(&["audit", "verify", "--org", "acme"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains(&format!("{row}: its content was changed")), "{row}: {ran:?}");
}
