//! Every example in the help, typed as it stands there, in the order of its story.

#[path = "../../src/examples/lines.rs"]
mod lines;

use crate::{
    allocations::{Cloud, SLICE},
    kit::text,
};

#[tokio::test]
async fn every_example_in_the_help_works() {
    let cloud = Cloud::start().await;
    let root = &cloud.operator;
    let files = tempfile::tempdir().unwrap();
    let key = files.path().join("id_ed25519.pub");
    std::fs::write(&key, format!("{} root@home\n", testkit::made_up_key())).unwrap();
    let node = text(&root.json(&["nodes", "list"]).await[0]["hostname"]);
    let there = |word: String| {
        let word = word.replace("$NODE", &node).replace("$SKU", SLICE);
        let word = word.replace("~/.ssh/id_ed25519.pub", key.to_str().unwrap());
        if word == "ledger.ndjson" { files.path().join(word).to_str().unwrap().to_owned() } else { word }
    };
    for line in lines::EXAMPLES.iter().flat_map(|(_, lines)| lines.iter()) {
        let typed: Vec<String> = lines::words(line).into_iter().skip(1).map(there).collect();
        let ran = root.run(&typed.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(ran.code, Some(0), "{line}: {ran:#?}");
        if line.contains("adjustments create") {
            // The administrator gave much away today already: a second one would have to approve.
            let org = text(&root.json(&["orgs", "show", "acme"]).await["id"]);
            cloud.world.fund(&org, 2_000).await;
        }
    }
}
