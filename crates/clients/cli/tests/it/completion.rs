//! What the shell offers after the tab key.

use crate::{kit::Gpuaas, sample::Sample};

/// As the script for bash asks: the words, and which of them is being typed.
async fn offered(person: &Gpuaas, words: &[&str]) -> Vec<String> {
    let index = (words.len() - 1).to_string();
    let asked =
        person.with(&[("GPUAAS_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n")]);
    let out = asked.run(&[&["--"], words].concat()).await.ok();
    out.lines().map(|line| line.trim().to_owned()).collect()
}

fn person(server: &str) -> Gpuaas {
    let digits = "0".repeat(32);
    Gpuaas::new(server)
        .env("GPUAAS_TOKEN", "sample")
        .env("GPUAAS_ORG", &format!("org_{digits}"))
        .env("GPUAAS_PROJECT", &format!("proj_{digits}"))
}

#[tokio::test]
async fn scripts_are_small_and_printed_without_a_server() {
    let nowhere = Gpuaas::new("http://127.0.0.1:1");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = nowhere.run(&["completion", shell]).await.ok();
        assert!(script.contains("GPUAAS_COMPLETE"), "{shell}: {script}");
        assert!(script.len() < 4_000, "{shell}: {} bytes", script.len());
    }
    nowhere.run(&["completion", "basic"]).await.fails(1);
}

#[tokio::test]
async fn commands_are_completed_without_a_server_and_values_from_it() {
    let nowhere = person("http://127.0.0.1:1");
    assert!(offered(&nowhere, &["gpuaas", "servi"]).await.contains(&"service-accounts".to_owned()));
    // A server that does not answer is no error: there is nothing to offer.
    let none = offered(&nowhere, &["gpuaas", "launch", "h"]).await;
    assert!(!none.contains(&"h200-sxm-8x".to_owned()), "{none:?}");

    let person = person(&Sample::serve().await);
    for (words, wanted) in [
        (vec!["gpuaas", "launch", "h"], "h200-sxm-8x"),
        (vec!["gpuaas", "ssh", "Web"], "Web"),
        (vec!["gpuaas", "nodes", "drain", "gpu-"], "gpu-rack12-node07"),
        (vec!["gpuaas", "--project", "prot"], "protein-folding"),
        (vec!["gpuaas", "policy", "explain", "quota"], "quota.gpus_per_org"),
        (vec!["gpuaas", "members", "show", "ada"], "ada.lovelace@example.org"),
    ] {
        let found = offered(&person, &words).await;
        assert!(found.contains(&wanted.to_owned()), "{words:?}: {found:?}");
    }
}

#[tokio::test]
async fn what_was_fetched_is_offered_again_while_it_is_fresh() {
    let server = Sample::serve_some(1).await;
    let person = person(&server);
    for _ in 0..2 {
        let found = offered(&person, &["gpuaas", "launch", "cpu"]).await;
        assert_eq!(found, ["cpu-small"], "the server answers once only");
    }
}
