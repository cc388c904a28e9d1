//! Policy resolution: which value holds, where it came from, and what it overrode.
//!
//! Values are considered from the widest scope to the narrowest: default, global, organization, project,
//! user. The narrowest acceptable one wins. A value out of bounds never counts; below the global scope, a
//! value of a `narrow_only` key counts only while it is at least as strict as what would hold without it,
//! so that tightening a wider scope takes effect everywhere at once.

use kernel::{
    Code, Problem, Role,
    policy::{Definition, Kind, Narrowing},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PolicyScope {
    Default,
    Global,
    Org,
    Project,
    User,
}

impl PolicyScope {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Global => "global",
            Self::Org => "org",
            Self::Project => "project",
            Self::User => "user",
        }
    }

    /// Reads a stored name; the default is never stored.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Global, Self::Org, Self::Project, Self::User].into_iter().find(|scope| scope.name() == name)
    }
}

/// What is stored at one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredValue {
    pub scope: PolicyScope,
    pub value: Value,
    pub version: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Outcome {
    /// This is the value that holds.
    Effective,
    /// A narrower scope says otherwise.
    Overridden,
    /// The key may only become stricter, and this would not be.
    NotStricter,
    /// Not a value that the key takes.
    OutOfBounds,
}

/// One value that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyCandidate {
    pub scope: PolicyScope,
    pub value: Value,
    pub outcome: Outcome,
    /// The version of the stored value, for `If-Match`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// A key's value in a place, without the story behind it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyEffective {
    pub key: String,
    pub value: Value,
    /// Where the value came from.
    pub scope: PolicyScope,
}

/// A key's value in a place, with everything that was considered, widest scope first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyExplanation {
    pub key: String,
    pub value: Value,
    /// Where the value came from.
    pub scope: PolicyScope,
    pub considered: Vec<PolicyCandidate>,
}

impl PolicyExplanation {
    pub fn brief(self) -> PolicyEffective {
        PolicyEffective { key: self.key, value: self.value, scope: self.scope }
    }
}

/// What a key means and takes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyDefinition {
    pub key: &'static str,
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["integer", "boolean", "choice"]))]
    pub kind: &'static str,
    pub default: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i64>,
    /// From the least strict to the strictest, when the key is `narrow_only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<&'static str>>,
    /// Narrower scopes may only make it stricter.
    pub narrow_only: bool,
    /// Organizations may set it for themselves; otherwise only a platform administrator sets it.
    pub tenant_settable: bool,
    pub purpose: &'static str,
}

impl From<&'static Definition> for PolicyDefinition {
    fn from(definition: &'static Definition) -> Self {
        let (kind, minimum, maximum, choices) = match definition.kind {
            Kind::Integer { min, max } => ("integer", Some(min), Some(max), None),
            Kind::Boolean => ("boolean", None, None, None),
            Kind::Choice(choices) => ("choice", None, None, Some(choices.to_vec())),
        };
        Self {
            key: definition.key,
            kind,
            default: definition.default_value(),
            minimum,
            maximum,
            choices,
            narrow_only: definition.narrowing == Narrowing::OnlyStricter,
            tenant_settable: tenant_may_set(definition.key),
            purpose: definition.purpose,
        }
    }
}

/// `values` in any order, at most one per scope.
pub fn resolve(definition: &Definition, values: &[StoredValue]) -> PolicyExplanation {
    let mut values: Vec<&StoredValue> = values.iter().collect();
    values.sort_by_key(|v| v.scope);
    let mut holds = 0;
    let mut considered = vec![PolicyCandidate {
        scope: PolicyScope::Default,
        value: definition.default_value(),
        outcome: Outcome::Effective,
        version: None,
    }];
    for stored in values {
        let outcome = acceptable(definition, stored.scope, &considered[holds].value, &stored.value);
        if outcome == Outcome::Effective {
            considered[holds].outcome = Outcome::Overridden;
            holds = considered.len();
        }
        considered.push(PolicyCandidate {
            scope: stored.scope,
            value: stored.value.clone(),
            outcome,
            version: Some(stored.version),
        });
    }
    let (value, scope) = (considered[holds].value.clone(), considered[holds].scope);
    PolicyExplanation { key: definition.key.to_owned(), value, scope, considered }
}

fn acceptable(definition: &Definition, scope: PolicyScope, outer: &Value, inner: &Value) -> Outcome {
    if definition.check(inner).is_err() {
        Outcome::OutOfBounds
    } else if scope > PolicyScope::Global && !definition.may_narrow(outer, inner) {
        Outcome::NotStricter
    } else {
        Outcome::Effective
    }
}

/// The value that would hold at `scope` if nothing were stored there or below.
pub fn outside(definition: &Definition, values: &[StoredValue], scope: PolicyScope) -> Value {
    let wider: Vec<StoredValue> = values.iter().filter(|v| v.scope < scope).cloned().collect();
    resolve(definition, &wider).value
}

/// Keys that an organization decides for itself. All are `narrow_only` or concern only itself, so that nothing
/// set here costs or endangers the platform.
const TENANT_KEYS: &[&str] = &[
    "allocation.isolation_model",
    "allocation.max_concurrent_per_user",
    "notification.balance_depleted_enabled",
    "notification.low_balance_enabled",
    "quota.gpus_per_project",
    "terminal.recording",
    "terminal.session_max_ttl_seconds",
];

pub fn tenant_may_set(key: &str) -> bool {
    TENANT_KEYS.contains(&key)
}

/// Keys that are asked for without an organization in mind: a value further down would never be looked at.
pub fn only_global(key: &str) -> bool {
    ["rate_limit.", "api.", "identity."].iter().any(|prefix| key.starts_with(prefix))
}

/// May somebody with `roles` store `value` at `scope`, where the `stored` values are those in force?
pub fn check_set(
    definition: &Definition,
    scope: PolicyScope,
    value: &Value,
    stored: &[StoredValue],
    roles: &[Role],
) -> Result<(), Problem> {
    check_authority(definition, scope, roles)?;
    definition.check(value).map_err(|message| Problem::field("value", message))?;
    let outer = outside(definition, stored, scope);
    if acceptable(definition, scope, &outer, value) == Outcome::NotStricter {
        let text = format!("{} may only be made stricter here; {outer} holds around it.", definition.key);
        return Err(Problem::new(Code::Unprocessable, text)
            .detail("outer_value", outer)
            .suggest("Choose a stricter value, or ask for the wider scope to be changed."));
    }
    Ok(())
}

/// May somebody with `roles` change the key at `scope` at all? What limits somebody is set from above them: an
/// organization's quota by the platform, a project's by its organization.
pub fn check_authority(definition: &Definition, scope: PolicyScope, roles: &[Role]) -> Result<(), Problem> {
    let key = definition.key;
    if scope == PolicyScope::Global {
        return Ok(());
    }
    if only_global(key) {
        let text = format!("{key} holds for the whole platform and is set at the global scope only.");
        return Err(Problem::new(Code::Unprocessable, text));
    }
    if roles.contains(&Role::PlatformAdmin) {
        return Ok(());
    }
    let quota = key.starts_with("quota.");
    if !tenant_may_set(key) || (quota && scope == PolicyScope::Org) {
        let text = format!("{key} is set by platform administrators only.");
        return Err(Problem::new(Code::AdminRequired, text));
    }
    if quota && !roles.iter().any(|role| matches!(role, Role::OrgOwner | Role::OrgAdmin)) {
        let text = format!("{key} is set by owners and admins of the organization only.");
        return Err(Problem::new(Code::InsufficientPermissions, text));
    }
    Ok(())
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
