//! Resolves arguments: the organization and the project of a command, and what people call by name.

use kernel::ids::TerminalSessionId;
use sdk::{Client, types};
use serde_json::Value;

use crate::{
    app::App,
    commands::{pages, send},
    failure::{Exit, Failure, Result, local},
    resources::{Kind, Within, find, kinds, pick},
    session::Origin,
};

/// The organization of the command line or the context; otherwise the only one.
pub async fn org(app: &App, client: &Client) -> Result<String> {
    match &app.org {
        Some(text) => org_named(client, text).await,
        None => {
            if let Some(who) = service_account(client).await?
                && let Some(org) = who.org_id
            {
                return Ok(org.as_str().to_owned());
            }
            let orgs: Vec<types::OrgMembership> =
                pages!(None, |page| client.org_list(page.cursor(), page.size()))?;
            only(orgs.iter().map(|org| (org.id.to_string(), org.slug.to_string())), "organization", "org")
        }
    }
}

/// Whose credentials the environment has, if not a person's: a service account has one project, and lists no others.
async fn service_account(client: &Client) -> Result<Option<types::WhoAmI>> {
    if matches!(Origin::of_environment()?, Origin::Stored) {
        return Ok(None);
    }
    let who = send!(client.whoami_get());
    Ok(Some(who).filter(|who| who.kind != types::PrincipalKind::User))
}

pub async fn org_named(client: &Client, text: &str) -> Result<String> {
    find(client, &kinds::ORG, &[], text).await
}

/// The project of the command line or the context; otherwise the only one of the organization.
pub async fn project(app: &App, client: &Client) -> Result<String> {
    match &app.project {
        Some(text) => project_named(app, client, text).await,
        None => {
            if let Some(who) = service_account(client).await?
                && let Some(project) = who.project_id
            {
                return Ok(project.as_str().to_owned());
            }
            let org = org(app, client).await?;
            let projects: Vec<types::Project> =
                pages!(None, |page| client.project_list(&org, page.cursor(), page.size()))?;
            only(projects.iter().map(|one| (one.id.to_string(), one.slug.to_string())), "project", "project")
        }
    }
}

pub async fn project_named(app: &App, client: &Client, text: &str) -> Result<String> {
    if kinds::PROJECT.is_id(text) {
        return Ok(text.to_owned());
    }
    within_org(app, client, &kinds::PROJECT, text).await
}

/// Something of the organization of the command line or the context.
pub async fn within_org(app: &App, client: &Client, kind: &Kind, text: &str) -> Result<String> {
    if kind.is_id(text) {
        return Ok(text.to_owned());
    }
    let org = org(app, client).await?;
    find(client, kind, &[("org", &org)], text).await
}

/// Something of the whole platform.
pub async fn on_platform(client: &Client, kind: &Kind, text: &str) -> Result<String> {
    find(client, kind, &[], text).await
}

pub async fn optional(
    client: &Client,
    kind: &Kind,
    within: Within<'_>,
    text: Option<&str>,
) -> Result<Option<String>> {
    match text {
        Some(text) => find(client, kind, within, text).await.map(Some),
        None => Ok(None),
    }
}

/// A node by its host name or id.
pub async fn node(client: &Client, text: &str) -> Result<String> {
    if kinds::NODE.is_id(text) {
        return Ok(text.to_owned());
    }
    // The server finds a host name; only tails need the list.
    let hostname = Some(text);
    let (label, pool_id, region, simulated, state) = (None, None, None, None, None);
    let found: Vec<types::NodeSummary> = pages!(Some(1), |page| client.node_list(
        page.cursor(),
        hostname,
        label,
        page.size(),
        pool_id,
        region,
        simulated,
        state
    ))?;
    match found.first() {
        Some(node) => Ok(node.id.to_string()),
        None => find(client, &kinds::NODE, &[], text).await,
    }
}

pub async fn optional_node(client: &Client, text: Option<String>) -> Result<Option<String>> {
    match text {
        Some(text) => node(client, &text).await.map(Some),
        None => Ok(None),
    }
}

/// A pool by its name or id; a name is unique only within a region.
pub async fn pool(client: &Client, text: &str, region: Option<&str>) -> Result<String> {
    if kinds::POOL.is_id(text) {
        return Ok(text.to_owned());
    }
    let pools: Vec<types::NodePool> =
        pages!(None, |page| client.pool_list(page.cursor(), page.size(), region))?;
    pick(&kinds::POOL, text, &values(&pools)?)
}

/// An allocation of a project by its name or id. Among several with the same name, the one that has not ended wins.
pub async fn allocation(client: &Client, project: &str, text: &str) -> Result<String> {
    if kinds::ALLOCATION.is_id(text) {
        return Ok(text.to_owned());
    }
    let (group_id, state, live) = (None, None, Some(types::AllocationListLive::True));
    let list: Vec<types::Allocation> = pages!(None, |page| client.allocation_list(
        project,
        page.cursor(),
        group_id,
        live,
        page.size(),
        state
    ))?;
    match pick(&kinds::ALLOCATION, text, &values(&list)?) {
        Err(failure) if failure.exit == Exit::NotFound => {
            find(client, &kinds::ALLOCATION, &[("project", project)], text).await
        }
        found => found,
    }
}

/// A terminal session of an allocation by its id.
pub async fn terminal_session(
    client: &Client,
    project: &str,
    allocation: &str,
    text: &str,
) -> Result<TerminalSessionId> {
    let within = [("project", project), ("allocation", allocation)];
    let id = find(client, &kinds::TERMINAL_SESSION, &within, text).await?;
    id.parse().map_err(local("the server sent an invalid session"))
}

/// A group of allocations by its name or id.
pub async fn group(client: &Client, project: &str, text: &str) -> Result<String> {
    find(client, &kinds::GROUP, &[("project", project)], text).await
}

/// A member of the organization by e-mail address, name or id.
pub async fn user(client: &Client, project: &str, text: &str) -> Result<String> {
    if kinds::MEMBER.is_id(text) {
        return Ok(text.to_owned());
    }
    match find(client, &kinds::PROJECT_MEMBER, &[("project", project)], text).await {
        Err(failure) if failure.exit == Exit::NotFound => {
            let org = send!(client.project_get(project)).org_id;
            find(client, &kinds::MEMBER, &[("org", &org)], text).await
        }
        found => found,
    }
}

fn values<T: serde::Serialize>(items: &[T]) -> Result<Vec<Value>> {
    let read = items.iter().map(serde_json::to_value).collect::<std::result::Result<_, _>>();
    read.map_err(local("the list cannot be read"))
}

/// The only one of several: id and slug.
fn only(found: impl Iterator<Item = (String, String)>, kind: &str, flag: &str) -> Result<String> {
    let found: Vec<(String, String)> = found.collect();
    match found.as_slice() {
        [(id, _)] => Ok(id.clone()),
        [] => Err(none(kind)),
        several => {
            let mut slugs: Vec<&str> = several.iter().map(|(_, slug)| slug.as_str()).collect();
            slugs.sort_unstable();
            let named = slugs.iter().take(8).copied().collect::<Vec<_>>().join(", ");
            let more = if slugs.len() > 8 { format!(" and {} more", slugs.len() - 8) } else { String::new() };
            let first = slugs.first().copied().unwrap_or_default();
            Err(Failure::client(format!("which {kind}? You belong to {named}{more}")).suggest(format!(
                "Add --{flag} {first}, or choose one with `gpuaas context use --{flag} {first}`."
            )))
        }
    }
}

fn none(kind: &str) -> Failure {
    let failure = Failure::new(Exit::NotFound, format!("you do not belong to any {kind}"));
    if kind == "project" {
        failure.suggest(
            "Create one with `gpuaas projects create NAME`, or ask an administrator of the organization to add you: \
             `gpuaas members list` shows them.",
        )
    } else {
        failure.suggest("Ask for an invitation; `gpuaas invitations received` lists those that you have.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_named_when_there_are_several() {
        let pair = |slug: &str| (format!("id of {slug}"), slug.to_owned());
        assert_eq!(only([pair("a")].into_iter(), "project", "project").unwrap(), "id of a");
        let failure = only([pair("web"), pair("lab")].into_iter(), "project", "project").unwrap_err();
        assert_eq!(failure.message, "which project? You belong to lab, web");
        assert!(failure.suggestion.unwrap().contains("--project lab"));
        let failure = only(std::iter::empty(), "organization", "org").unwrap_err();
        assert_eq!(failure.exit, Exit::NotFound);
    }
}
