//! Resolves arguments: an organization or project by id, slug, or as the only one; a node, pool, allocation or
//! user by id or name.

use sdk::{Client, types};

use crate::{
    app::App,
    commands::{pages, send},
    failure::{Exit, Failure, Result},
};

/// The organization of the command line or the context; otherwise the only one.
pub async fn org(app: &App, client: &Client) -> Result<String> {
    match &app.org {
        Some(text) => org_named(client, text).await,
        None => {
            let orgs: Vec<types::OrgMembership> =
                pages!(Some(2), |page| client.org_list(page.cursor(), page.size()))?;
            only(orgs.into_iter().map(|org| org.id.to_string()), "organization", "org")
        }
    }
}

pub async fn org_named(client: &Client, text: &str) -> Result<String> {
    if is_id(text, "org_") {
        return Ok(text.to_owned());
    }
    let orgs: Vec<types::OrgMembership> = pages!(None, |page| client.org_list(page.cursor(), page.size()))?;
    let found = orgs.into_iter().find(|org| org.slug.as_str() == text);
    found.map(|org| org.id.to_string()).ok_or_else(|| unknown("organization", text))
}

/// The project of the command line or the context; otherwise the only one of the organization.
pub async fn project(app: &App, client: &Client) -> Result<String> {
    match &app.project {
        Some(text) => project_named(app, client, text).await,
        None => {
            let org = org(app, client).await?;
            let projects: Vec<types::Project> =
                pages!(Some(2), |page| client.project_list(&org, page.cursor(), page.size()))?;
            only(projects.into_iter().map(|project| project.id.to_string()), "project", "project")
        }
    }
}

pub async fn project_named(app: &App, client: &Client, text: &str) -> Result<String> {
    if is_id(text, "proj_") {
        return Ok(text.to_owned());
    }
    let org = org(app, client).await?;
    let projects: Vec<types::Project> =
        pages!(None, |page| client.project_list(&org, page.cursor(), page.size()))?;
    let found = projects.into_iter().find(|project| project.slug.as_str() == text);
    found.map(|project| project.id.to_string()).ok_or_else(|| unknown("project", text))
}

/// A node by its id or host name.
pub async fn node(client: &Client, text: &str) -> Result<String> {
    if is_id(text, "node_") {
        return Ok(text.to_owned());
    }
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
    found.first().map(|node| node.id.to_string()).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no node {text:?}"))
            .suggest("List the nodes with `gpuaas nodes list`.")
    })
}

pub async fn optional_node(client: &Client, text: Option<String>) -> Result<Option<String>> {
    match text {
        Some(text) => node(client, &text).await.map(Some),
        None => Ok(None),
    }
}

/// A pool by its id or name; a name is unique only within a region.
pub async fn pool(client: &Client, text: &str, region: Option<&str>) -> Result<String> {
    if is_id(text, "pool_") {
        return Ok(text.to_owned());
    }
    let mut pools: Vec<types::NodePool> =
        pages!(None, |page| client.pool_list(page.cursor(), page.size(), region))?;
    pools.retain(|pool| pool.name.as_str() == text);
    match pools.as_slice() {
        [pool] => Ok(pool.id.to_string()),
        [] => Err(Failure::new(Exit::NotFound, format!("there is no pool {text:?}"))
            .suggest("List the pools with `gpuaas pools list`.")),
        _ => Err(Failure::client(format!(
            "the name {text:?} is ambiguous: several regions have a pool of this name"
        ))
        .suggest("Give its id.")),
    }
}

/// An allocation of a project by its id or name. Among several with the same name, the one that has not ended wins.
pub async fn allocation(client: &Client, project: &str, text: &str) -> Result<String> {
    if is_whole_id(text, "alloc_") {
        return Ok(text.to_owned());
    }
    let named = |list: Vec<types::Allocation>| -> Vec<String> {
        list.into_iter().filter(|one| one.name == text).map(|one| one.id.to_string()).collect()
    };
    let (group_id, state) = (None, None);
    let mut found = Vec::new();
    for live in [Some(types::AllocationListLive::True), None] {
        if found.is_empty() {
            found = named(pages!(None, |page| client.allocation_list(
                project,
                page.cursor(),
                group_id,
                live,
                page.size(),
                state
            ))?);
        }
    }
    one_of(&found, "allocation", text, "gpuaas allocations list --all")
}

/// A group of allocations by its id or name.
pub async fn group(client: &Client, project: &str, text: &str) -> Result<String> {
    if is_whole_id(text, "agrp_") {
        return Ok(text.to_owned());
    }
    let groups: Vec<types::AllocationGroup> =
        pages!(None, |page| client.allocation_group_list(project, page.cursor(), page.size()))?;
    let found: Vec<String> =
        groups.into_iter().filter(|group| group.name == text).map(|group| group.id.to_string()).collect();
    one_of(&found, "group", text, "gpuaas groups list")
}

/// A member of the organization by id or e-mail address.
pub async fn user(client: &Client, project: &str, text: &str) -> Result<String> {
    if is_whole_id(text, "user_") {
        return Ok(text.to_owned());
    }
    let same = |email: &Option<String>| email.as_ref().is_some_and(|email| email.eq_ignore_ascii_case(text));
    let own: Vec<types::ProjectMember> =
        pages!(None, |page| client.project_member_list(project, page.cursor(), page.size()))?;
    if let Some(member) = own.iter().find(|member| same(&member.email)) {
        return Ok(member.id.to_string());
    }
    let org = send!(client.project_get(project)).org_id;
    let members: Vec<types::Member> =
        pages!(None, |page| client.member_list(&org, page.cursor(), page.size()))?;
    let found = members.iter().find(|member| same(&member.email));
    found.map(|member| member.id.to_string()).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("the organization has no member {text:?}"))
            .suggest("List the members with `gpuaas members list`.")
    })
}

fn one_of(ids: &[String], kind: &str, text: &str, list: &str) -> Result<String> {
    match ids {
        [id] => Ok(id.clone()),
        [] => Err(Failure::new(Exit::NotFound, format!("there is no {kind} {text:?} in the project"))
            .suggest(format!("List them with `{list}`."))),
        _ => Err(Failure::client(format!("the name {text:?} is ambiguous: {}", ids.join(", ")))
            .suggest("Give its id.")),
    }
}

/// For resources whose names are free text: only text with the form of an id counts as an id.
fn is_whole_id(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// Neither slugs nor host names have an underscore, so an id cannot be mistaken for one.
fn is_id(text: &str, prefix: &str) -> bool {
    text.starts_with(prefix)
}

fn only(ids: impl Iterator<Item = String>, kind: &str, flag: &str) -> Result<String> {
    let ids: Vec<String> = ids.collect();
    match ids.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(Failure::new(Exit::NotFound, format!("you do not belong to any {kind}"))),
        _ => Err(Failure::client(format!("which {kind}?"))
            .suggest(format!("Give --{flag}, or choose one with `gpuaas context use --{flag} …`."))),
    }
}

fn unknown(kind: &str, text: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no {kind} {text:?} among those that you belong to"))
}
