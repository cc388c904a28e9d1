//! What operators do about allocations, products and workflows by commands alone.

use serde_json::json;
use testkit::{REGION, eventually};

use crate::{
    allocations::{Cloud, SLICE},
    kit::text,
};

#[tokio::test]
async fn an_operator_sees_where_an_allocation_is_and_ends_it() {
    let cloud = Cloud::start().await;
    let operator = &cloud.operator;
    let id = text(&cloud.launch(2, "train-1").await["id"]);
    let node = cloud.nodes.hostnames[0].as_str();
    let listed =
        operator.json(&["platform", "allocations", "list", "--node", node, "--state", "active"]).await;
    assert_eq!(listed[0]["id"], json!(id));
    // Tenants choose names: across organizations an allocation is called by its id or a tail of it.
    operator.run(&["platform", "allocations", "show", "train-1"]).await.fails(4);
    let tail = &id[id.len() - 8..];
    let page = operator.run(&["platform", "allocations", "show", tail]).await.ok();
    assert!(
        page.contains("slot_") && page.contains("Timeline:") && page.contains("provision_slice"),
        "{page}"
    );
    assert!(page.contains(&id) && page.contains(node) && !page.contains("node_"), "{page}");
    let table = operator.run(&["platform", "allocations", "list"]).await.ok();
    assert!(table.contains(node) && !table.contains("org_"), "nodes and organizations are named: {table}");
    let runs = operator.json(&["ops", "sagas", "list", "--subject", &id]).await;
    let run = text(&runs[0]["id"]);
    let page = operator.run(&["ops", "sagas", "show", &run]).await.ok();
    assert!(page.contains("succeeded") && page.contains("provision_slice/machine #"), "{page}");
    operator.run(&["ops", "sagas", "cancel", &run, "--reason", "too late", "--yes"]).await.fails(5);
    assert_eq!(operator.json(&["ops", "discrepancies", "list"]).await, json!([]));
    operator.run(&["ops", "discrepancies", "show", "disc_0193b3a0000070008000000000000001"]).await.fails(4);

    let release = ["platform", "allocations", "force-release", &id, "--reason", "new disks"];
    let said = operator.run(&release).await.fails(1);
    assert!(said.contains(&format!("train-1 ({id}) of ann")), "the question says whose it is: {said}");
    operator.run(&[&release[..], &["--yes"]].concat()).await.ok();
    eventually("it is released", || async {
        (cloud.user.json(&["allocations", "get", &id]).await["state"] == "released").then_some(())
    })
    .await;
    assert_eq!(operator.json(&["platform", "allocations", "get", tail]).await["id"], json!(id));
    cloud.user.run(&["platform", "allocations", "list"]).await.fails(3);
}

#[tokio::test]
async fn a_drain_says_whose_machines_stand_in_its_way_and_a_retirement_is_refused_with_them() {
    let cloud = Cloud::start().await;
    let operator = &cloud.operator;
    cloud.launch(1, "train-1").await;
    let node = cloud.nodes.hostnames[0].as_str();
    let whose = |said: &str| {
        let named = said.lines().find(|line| line.trim_start().starts_with("train-1 "));
        let named = named.is_some_and(|line| line.contains("ann") && line.contains("active since"));
        assert!(named && said.contains(&format!("1 slot of {node} still in use:")), "{said}");
    };
    let drained = operator.run(&["nodes", "drain", node, "--reason", "new disks"]).await;
    whose(&drained.err);
    drained.ok();
    operator.run(&["nodes", "undrain", node, "--reason", "not yet"]).await.ok();
    let drain = ["nodes", "drain", node, "--reason", "new disks", "--wait", "--timeout", "5"];
    let said = operator.run(&drain).await.fails(2);
    whose(&said);
    assert!(said.contains(&format!("`gpuaas nodes show {node}`")), "{said}");
    let page = operator.run(&["nodes", "show", node]).await.ok();
    assert!(page.contains("train-1 "), "{page}");
    let said = operator.run(&["nodes", "retire", node, "--reason", "old"]).await.fails(5);
    whose(&said);
}

#[tokio::test]
async fn what_could_not_be_cleaned_is_cleaned_again_or_vouched_for() {
    let cloud = Cloud::start().await;
    let (user, operator) = (&cloud.user, &cloud.operator);
    let id = text(&cloud.launch(1, "train-1").await["id"]);
    cloud.nodes.script("[[script]]\ntask = 'slice.vm_release'\n");
    let said = user.run(&["allocations", "release", "train-1", "--yes", "--wait"]).await.fails(2);
    assert!(
        said.contains("the release failed") && said.contains("gpuaas allocations retry alloc_"),
        "{said}"
    );
    let blocked = operator.json(&["slots", "list", "--state", "cleanup_blocked"]).await;
    let slot = text(&blocked[0]["id"]);
    // While its allocation holds it, the allocation is what is tried again.
    operator.run(&["slots", "cleanup-retry", &slot]).await.fails(5);
    let force = ["slots", "force-cleanup", &slot, "--reason", "looked", "--yes"];
    let said = operator.run(&force).await.fails(1);
    assert!(said.contains("--runtime-verified-absent"), "{said}");
    operator.run(&[&force[..], &["--runtime-verified-absent"]].concat()).await.fails(5);
    user.run(&["allocations", "retry", "train-1", "--wait"]).await.fails(2);
    let force = ["platform", "allocations", "force-cleanup", &id, "--reason", "new disks", "--yes"];
    operator.run(&[&force[..], &["--runtime-verified-absent"]].concat()).await.ok();
    assert_eq!(user.json(&["allocations", "get", &id]).await["state"], "released");

    // A launch that can neither be made nor taken back leaves its slots behind.
    cloud.nodes.script(
        "[[script]]\ntask = 'slice.vm_provision'\nat = 'after'\n[[script]]\ntask = 'slice.vm_release'\n",
    );
    user.run(&["allocations", "create", "--sku", SLICE, "--wait"]).await.fails(2);
    cloud.nodes.script("");
    let blocked = operator.json(&["slots", "list", "--state", "cleanup_blocked"]).await;
    let slot = text(&blocked[0]["id"]);
    let begun = operator.json(&["slots", "cleanup-retry", &slot]).await;
    assert_eq!(begun["slot_ids"], json!([slot]));
    eventually("it is clean", || async {
        (operator.json(&["slots", "show", &slot]).await["state"] == "available").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_product_is_made_priced_sized_and_withdrawn() {
    let cloud = Cloud::start().await;
    let operator = &cloud.operator;
    let create = [
        "skus",
        "create",
        "h200-own",
        "--vendor",
        "nvidia",
        "--name",
        "Our own",
        "--shape",
        "gpu_slice",
        "--slot-model",
        "H200",
        "--gpus-total",
        "8",
        "--gpu-counts",
        "1,2",
        "--price",
    ];
    let said = operator.run(&[&create[..], &["1.005"]].concat()).await.fails(1);
    assert!(said.contains("is not a price in USD"), "{said}");
    operator.run(&[&create[..], &["1.25"]].concat()).await.ok();
    let size = ["skus", "profiles", "create", "h200-own", "small", "--gpus", "1", "--vcpus", "8"];
    operator.run(&[&size[..], &["--memory-mib", "65536", "--default"]].concat()).await.ok();
    let later = (kernel::Ambient::system().now() + chrono::TimeDelta::days(30)).to_rfc3339();
    operator.run(&["skus", "prices", "set", "h200-own", "--price", "1.50", "--from", &later]).await.ok();
    assert_eq!(operator.json(&["skus", "prices", "list", "h200-own"]).await[0]["unit_price_minor"], 150);
    let page = operator.run(&["skus", "show", "h200-own"]).await.ok();
    assert!(
        page.contains("1.25 USD") && page.contains("1.50 USD") && page.contains("small: 1 GPU, 8 vCPUs"),
        "{page}"
    );
    operator.run(&["skus", "update", "h200-own"]).await.fails(1);
    operator.run(&["skus", "update", "h200-own", "--name", "Ours"]).await.ok();
    let listed = operator.json(&["skus", "list"]).await;
    let ours = listed.as_array().unwrap().iter().find(|sku| sku["sku"] == "h200-own").unwrap();
    assert_eq!((&ours["display_name"], &ours["allowed_gpu_counts"]), (&json!("Ours"), &json!([1, 2])));
    operator.run(&["skus", "profiles", "delete", "h200-own", "small", "--yes"]).await.ok();
    operator.run(&["skus", "update", "h200-own", "--active", "false"]).await.ok();
    eventually("it is sold no more", || async {
        let catalog = cloud.user.run(&["catalog", "--region", REGION]).await.ok();
        (!catalog.contains("h200-own")).then_some(())
    })
    .await;
    cloud.user.run(&["skus", "list"]).await.fails(3);
}

#[tokio::test]
async fn changes_of_a_project_are_shown_as_they_come() {
    let cloud = Cloud::start().await;
    let mut child = cloud.user.start(&["allocations", "watch"]);
    let id = text(&cloud.launch(1, "seen").await["id"]);
    let mut out = tokio::io::BufReader::new(child.stdout.take().unwrap());
    let seen = async {
        loop {
            let mut line = String::new();
            tokio::io::AsyncBufReadExt::read_line(&mut out, &mut line).await.unwrap();
            assert!(!line.is_empty(), "it ended");
            if line.contains(&id) && line.contains("active") {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), seen).await.unwrap();
    child.kill().await.unwrap();
}
