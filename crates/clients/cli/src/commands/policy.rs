//! `gpuaas policy`.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use sdk::{Client, types};
use serde_json::Value;

use crate::{
    app::App,
    args::Limit,
    failure::{Failure, Result},
    output::{Columns, note},
    resolve,
    resources::{find, kinds},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the policy keys with their descriptions.
    Definitions {
        #[command(flatten)]
        limit: Limit,
    },
    /// List the effective values of a scope.
    List {
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        limit: Limit,
    },
    /// Print the effective value of a scope.
    Get {
        /// Policy key; see `gpuaas policy definitions`.
        key: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Show the effective value, the scope it comes from, and the values it overrides.
    Explain {
        /// Policy key; see `gpuaas policy definitions`.
        key: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Set the value of a scope: an integer, true, false, or one of the key's choices.
    Set {
        /// Policy key; see `gpuaas policy definitions`.
        key: String,
        /// The new value.
        value: String,
        /// A default that narrower scopes may override, instead of a bound.
        #[arg(long = "default")]
        is_default: bool,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Remove the value of a scope, so that the value of the wider scope applies.
    #[command(alias = "delete")]
    Unset {
        /// Policy key; see `gpuaas policy definitions`.
        key: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    Platform,
    Org,
    Project,
    User,
}

#[derive(ClapArgs)]
pub struct PlaceArgs {
    /// Scope: the platform, or the organization or project of the command line or context.
    #[arg(long, value_enum, default_value_t = Scope::Org)]
    scope: Scope,
    /// Member, by e-mail address or id, for `--scope user`.
    #[arg(long, value_name = "USER", required_if_eq("scope", "user"))]
    user: Option<String>,
}

/// A scope with its id.
enum Place {
    Platform,
    Org(String),
    Project(String),
    User { org: String, user: String },
}

impl PlaceArgs {
    async fn find(self, app: &App, client: &Client) -> Result<Place> {
        Ok(match (self.scope, self.user) {
            (Scope::User, Some(user)) => {
                let org = resolve::org(app, client).await?;
                let user = find(client, &kinds::MEMBER, &[("org", &org)], &user).await?;
                Place::User { org, user }
            }
            (Scope::User, None) | (_, Some(_)) => {
                return Err(Failure::client("--user and `--scope user` must be given together"));
            }
            (Scope::Platform, None) => Place::Platform,
            (Scope::Org, None) => Place::Org(resolve::org(app, client).await?),
            (Scope::Project, None) => Place::Project(resolve::project(app, client).await?),
        })
    }
}

const DEFINITIONS: Columns = &[
    ("KEY", "key"),
    ("DEFAULT", "default"),
    ("PURPOSE", "purpose"),
    ("TYPE", "type"),
    ("NARROW ONLY", "narrow_only"),
];
const EFFECTIVE: Columns = &[("KEY", "key"), ("VALUE", "value"), ("FROM", "scope")];
const CONSIDERED: Columns = &[
    ("SCOPE", "scope"),
    ("VALUE", "value"),
    ("SET BY", "set_by"),
    ("DEFAULT", "is_default"),
    ("OUTCOME", "outcome"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::Definitions { limit } => {
            let all: Vec<types::PolicyDefinition> =
                pages!(limit.get(), |page| client.policy_definition_list(page.cursor(), page.size()))?;
            app.out.list(&all, DEFINITIONS)
        }
        Command::List { place, limit } => {
            let place = place.find(app, &client).await?;
            app.out.list(&list(&client, &place, &limit).await?, EFFECTIVE)
        }
        Command::Get { key, place } => {
            let place = place.find(app, &client).await?;
            app.out.value(&explain(&client, &place, &key).await?, "value")
        }
        Command::Explain { key, place } => {
            let place = place.find(app, &client).await?;
            explained(app, &explain(&client, &place, &key).await?)
        }
        Command::Set { key, value, is_default, place } => {
            let place = place.find(app, &client).await?;
            explained(app, &set(&client, &place, &key, put(parsed(value), is_default)?).await?)
        }
        Command::Unset { key, place } => {
            let place = place.find(app, &client).await?;
            unset(&client, &place, &key).await?;
            note(&format!("Removed the value of {key}."));
            Ok(())
        }
    }
}

/// Integers and booleans; everything else is a choice.
pub fn parsed(text: String) -> Value {
    match serde_json::from_str(&text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text),
    }
}

/// A table shows what was considered; everything else shows the whole explanation.
fn explained(app: &App, explanation: &types::PolicyExplanation) -> Result {
    if app.out.is_table() {
        return app.out.list(&explanation.considered, CONSIDERED);
    }
    app.out.item(explanation, EFFECTIVE)
}

async fn list(client: &Client, place: &Place, limit: &Limit) -> Result<Vec<types::PolicyEffective>> {
    Ok(match place {
        Place::Platform => {
            pages!(limit.get(), |page| client.platform_policy_list(page.cursor(), page.size()))?
        }
        Place::Org(org) => {
            pages!(limit.get(), |page| client.org_policy_list(org, page.cursor(), page.size()))?
        }
        Place::Project(project) => {
            pages!(limit.get(), |page| client.project_policy_list(project, page.cursor(), page.size()))?
        }
        Place::User { .. } => {
            return Err(Failure::client("policies of a user cannot be listed")
                .suggest("Use `gpuaas policy explain KEY --scope user --user …`."));
        }
    })
}

async fn explain(client: &Client, place: &Place, key: &str) -> Result<types::PolicyExplanation> {
    Ok(match place {
        Place::Platform => send!(client.platform_policy_get(key)),
        Place::Org(org) => send!(client.org_policy_get(org, key)),
        Place::Project(project) => send!(client.project_policy_get(project, key)),
        Place::User { org, user } => {
            send!(client.member_policy_get(org, user, key))
        }
    })
}

/// The flag is sent only when it is set: a server of an earlier version does not know it.
fn put(value: Value, is_default: bool) -> Result<types::PolicyPut> {
    let mut body = serde_json::Map::from_iter([("value".to_owned(), value)]);
    if is_default {
        body.insert("is_default".to_owned(), Value::Bool(true));
    }
    let refused = |error| Failure::client(format!("the value cannot be sent: {error}"));
    serde_json::from_value(Value::Object(body)).map_err(refused)
}

async fn set(
    client: &Client,
    place: &Place,
    key: &str,
    body: types::PolicyPut,
) -> Result<types::PolicyExplanation> {
    Ok(match place {
        Place::Platform => send!(client.platform_policy_set(key, &body)),
        Place::Org(org) => send!(client.org_policy_set(org, key, &body)),
        Place::Project(project) => {
            send!(client.project_policy_set(project, key, &body))
        }
        Place::User { org, user } => {
            send!(client.member_policy_set(org, user, key, &body))
        }
    })
}

async fn unset(client: &Client, place: &Place, key: &str) -> Result {
    match place {
        Place::Platform => send!(client.platform_policy_unset(key)),
        Place::Org(org) => send!(client.org_policy_unset(org, key)),
        Place::Project(project) => send!(client.project_policy_unset(project, key)),
        Place::User { org, user } => {
            send!(client.member_policy_unset(org, user, key))
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_type_that_they_look_like() {
        assert_eq!(parsed("8".to_owned()), json!(8));
        assert_eq!(parsed("true".to_owned()), json!(true));
        assert_eq!(parsed("full-reimage".to_owned()), json!("full-reimage"));
        assert_eq!(parsed("null".to_owned()), json!("null"));
    }
}
