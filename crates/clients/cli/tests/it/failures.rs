//! The exit code says what kind of failure it was.

use crate::kit::{Gpuaas, Place};

#[tokio::test]
async fn mistakes_on_the_command_line_are_1_and_an_unreachable_server_is_2() {
    let nowhere = Gpuaas::new("http://127.0.0.1:1").env("GPUAAS_TOKEN", "x");
    for wrong in
        [&["orgs", "lst"][..], &["orgs", "list", "--limit", "0"], &["orgs", "list", "-o", "xml"], &[]]
    {
        nowhere.run(wrong).await.fails(1);
    }
    nowhere.run(&["orgs", "list", "--server", "not an address"]).await.fails(1);
    for answered in [&["--help"][..], &["--version"], &["audit", "verify", "--help"]] {
        nowhere.run(answered).await.ok();
    }
    let said = nowhere.run(&["orgs", "list"]).await.fails(2);
    assert!(said.contains("cannot be reached") && said.contains("Connection refused"), "{said}");
    let odd = Gpuaas::new("http://127.0.0.1:1").env("GPUAAS_SERVICE_ACCOUNT_KEY", "hunter2");
    let said = odd.run(&["orgs", "list"]).await.fails(3);
    assert!(!said.contains("hunter2"), "{said}");
    nowhere.run(&["auth", "login", "--no-input"]).await.fails(1);
}

#[tokio::test]
async fn refusals_have_the_exit_code_of_their_kind_and_say_what_to_do() {
    let place = Place::start().await;
    let (org, _) = place.org_and_project().await;
    let ghost = "org_0193b3a000007000800000000000dead";
    let said = place.admin.run(&["orgs", "get", ghost]).await.fails(4);
    assert!(
        said.starts_with("error: ") && said.contains("(not_found)") && said.contains("correlation id: "),
        "{said}"
    );
    place.admin.run(&["orgs", "get", "no-such-slug"]).await.fails(4);
    place.admin.run(&["orgs", "get", "org_bad"]).await.fails(4);
    let said = place.admin.run(&["projects", "create", "lab", "--org", &org]).await.fails(5);
    assert!(said.contains("(already_exists)"), "{said}");
    place.admin.run(&["projects", "create", "Not A Slug", "--org", &org]).await.fails(1);
    let stranger = place.gpuaas().env("GPUAAS_TOKEN", "nonsense");
    let said = stranger.run(&["orgs", "list"]).await.fails(3);
    assert!(said.contains("(token_invalid)"), "{said}");
    let bob = place.person("bob@example.org").await;
    bob.run(&["platform", "orgs", "list"]).await.fails(3);
    // Two organizations and none chosen: which one is meant is not guessed.
    let said = place.admin.run(&["projects", "list"]).await.fails(1);
    assert!(said.contains("which organization?") && said.contains("--org"), "{said}");
}

#[tokio::test]
async fn a_text_that_the_server_refuses_is_named_with_what_is_wrong() {
    let place = Place::start().await;
    let (org, _) = place.org_and_project().await;
    let wrong: [(&str, &[&str]); 2] = [
        ("slug: must be", &["projects", "create", "Not A Slug", "--org", &org]),
        ("name: must be", &["orgs", "rename", &org, ""]),
    ];
    for (expected, command) in wrong {
        let said = place.admin.run(command).await.fails(1);
        assert!(said.contains(expected) && said.contains("(validation_error)"), "{command:?}: {said}");
        assert!(said.contains("Correct --"), "the option is named: {said}");
    }
    // What is no whole id is looked up, and never sent as part of a path.
    let unknown: [(&str, &[&str]); 3] = [
        ("there is no organization", &["orgs", "show", "org_bad"]),
        ("there is no dead letter", &["ops", "dlq", "show", ""]),
        // A URL drops the segment `..`: the policy of the whole organization would be shown.
        (
            "there is no member",
            &["policy", "explain", "quota.gpus_per_org", "--org", &org, "--scope", "user", "--user", ".."],
        ),
    ];
    for (expected, command) in unknown {
        let said = place.admin.run(command).await.fails(4);
        assert!(said.contains(expected) && said.contains("List them with `gpuaas "), "{command:?}: {said}");
    }
}

#[tokio::test]
async fn an_error_is_json_where_json_is_wanted() {
    let place = Place::start().await;
    let said = place.admin.run(&["orgs", "show", "no-such-slug", "-o", "json"]).await.fails(4);
    let error: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(error["error"]["exit_code"], 4, "{said}");
    assert!(error["error"]["message"].as_str().unwrap().contains("no-such-slug"), "{said}");
}
