//! Policy resolution: which value holds, where it came from, and what it overrode.
//!
//! Values are considered from the widest scope to the narrowest: default, global, organization, project,
//! user. The narrowest acceptable one wins. A value out of bounds never counts.
//!
//! A value is a bound for narrower scopes unless it is marked as a default. Of a `narrow_only` key everything
//! further down must be at least as strict as the bound, so that tightening a wider scope takes effect
//! everywhere at once. Of other keys, what a higher authority set is fixed for lower ones: the platform stands
//! above organizations, and these above their projects.

use kernel::{
    Code, Problem, Role,
    policy::{Definition, Kind, Narrowing},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

lifecycle::named_enum! {
    PolicyScope = "policy scope" {
        /// Never stored.
        Default = "default",
        Global = "global",
        Org = "org",
        Project = "project",
        User = "user",
    }
}

lifecycle::named_enum! {
    /// On whose authority a value stands, from the highest down.
    PolicyAuthority = "policy authority" { Platform = "platform", Org = "org", Project = "project" }
}

impl PolicyAuthority {
    /// The highest authority that somebody with `roles` acts with.
    pub fn from_roles(roles: &[Role]) -> Self {
        if roles.contains(&Role::PlatformAdmin) {
            Self::Platform
        } else if roles.iter().any(|role| matches!(role, Role::OrgOwner | Role::OrgAdmin)) {
            Self::Org
        } else {
            Self::Project
        }
    }
}

/// What is stored at one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredValue {
    pub scope: PolicyScope,
    pub value: Value,
    pub version: i64,
    pub set_by: PolicyAuthority,
    pub is_default: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Outcome {
    /// This is the value that holds.
    Effective,
    /// A narrower scope says otherwise.
    Overridden,
    /// A wider scope, or a higher authority, set a bound that this is not within.
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
    /// Who set it; nobody set the product's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<PolicyAuthority>,
    /// Narrower scopes may choose otherwise: it is no bound for them.
    pub is_default: bool,
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

lifecycle::named_enum! {
    PolicyType = "policy type" { Integer = "integer", Boolean = "boolean", Choice = "choice" }
}

/// What a key means and takes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyDefinition {
    pub key: &'static str,
    #[serde(rename = "type")]
    pub kind: PolicyType,
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
            Kind::Integer { min, max, .. } => (PolicyType::Integer, Some(min), Some(max), None),
            Kind::Boolean { .. } => (PolicyType::Boolean, None, None, None),
            Kind::Choice { choices, .. } => (PolicyType::Choice, None, None, Some(choices.to_vec())),
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
    let mut bound = Bound::first(definition);
    let mut considered = vec![PolicyCandidate {
        scope: PolicyScope::Default,
        value: definition.default_value(),
        outcome: Outcome::Effective,
        version: None,
        set_by: None,
        is_default: true,
    }];
    for stored in values {
        let outcome = bound.outcome(definition, stored);
        if outcome == Outcome::Effective {
            considered[holds].outcome = Outcome::Overridden;
            holds = considered.len();
            bound = bound.after(definition, stored);
        }
        considered.push(PolicyCandidate {
            scope: stored.scope,
            value: stored.value.clone(),
            outcome,
            version: Some(stored.version),
            set_by: Some(stored.set_by),
            is_default: stored.is_default,
        });
    }
    let (value, scope) = (considered[holds].value.clone(), considered[holds].scope);
    PolicyExplanation { key: definition.key.to_owned(), value, scope, considered }
}

/// What narrower values must keep to.
struct Bound(Option<(Value, PolicyAuthority)>);

impl Bound {
    fn first(definition: &Definition) -> Self {
        Self(match definition.narrowing {
            Narrowing::OnlyStricter => Some((definition.default_value(), PolicyAuthority::Platform)),
            Narrowing::Free => None,
        })
    }

    fn outcome(&self, definition: &Definition, stored: &StoredValue) -> Outcome {
        if definition.check(&stored.value).is_err() {
            return Outcome::OutOfBounds;
        }
        let within = match (&self.0, definition.narrowing) {
            (None, _) => true,
            _ if stored.scope == PolicyScope::Global => true,
            (Some((bound, _)), Narrowing::OnlyStricter) => definition.may_narrow(bound, &stored.value),
            (Some((bound, set_by)), Narrowing::Free) => stored.set_by <= *set_by || stored.value == *bound,
        };
        if within { Outcome::Effective } else { Outcome::NotStricter }
    }

    /// The bound for what is narrower than a value that holds.
    fn after(self, definition: &Definition, stored: &StoredValue) -> Self {
        let own = || Self(Some((stored.value.clone(), stored.set_by)));
        match definition.narrowing {
            // The platform's own value takes the place of the product's.
            Narrowing::OnlyStricter if stored.scope == PolicyScope::Global => own(),
            Narrowing::OnlyStricter if stored.is_default => self,
            Narrowing::OnlyStricter => own(),
            // Somebody below who keeps to what is fixed does not lift it.
            Narrowing::Free if self.0.as_ref().is_some_and(|(_, set_by)| stored.set_by > *set_by) => self,
            Narrowing::Free if stored.is_default => Self(None),
            Narrowing::Free => own(),
        }
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

/// What somebody wants to store at a scope.
#[derive(Clone, Copy, Debug)]
pub struct WantedValue<'a> {
    pub scope: PolicyScope,
    pub value: &'a Value,
    pub is_default: bool,
}

/// May somebody with `roles` store a value, where the `stored` values are those in force?
pub fn check_set(
    definition: &Definition,
    wanted: WantedValue<'_>,
    stored: &[StoredValue],
    roles: &[Role],
) -> Result<(), Problem> {
    let WantedValue { scope, value, is_default } = wanted;
    check_authority(definition, scope, roles)?;
    definition.check(value).map_err(|message| Problem::field("value", message))?;
    if is_default && scope == PolicyScope::Global && definition.narrowing == Narrowing::OnlyStricter {
        let text = "this key can only be made stricter, so the platform's value is always a bound";
        return Err(Problem::field("is_default", text));
    }
    check_replace(definition, scope, stored, roles)?;
    let mut wider: Vec<StoredValue> = stored.iter().filter(|v| v.scope < scope).cloned().collect();
    let outer = resolve(definition, &wider).value;
    let set_by = PolicyAuthority::from_roles(roles);
    wider.push(StoredValue { scope, value: value.clone(), version: 0, set_by, is_default });
    let outcome = resolve(definition, &wider).considered.pop().map(|candidate| candidate.outcome);
    if outcome == Some(Outcome::NotStricter) {
        let text = match definition.narrowing {
            Narrowing::OnlyStricter => {
                format!("{} can only be made stricter here; the wider scope has {outer}.", definition.key)
            }
            Narrowing::Free => format!("{} is bound to {outer} by a wider scope.", definition.key),
        };
        return Err(Problem::new(Code::Unprocessable, text).detail("outer_value", outer).suggest(
            "Choose a stricter value, or ask for the value of the wider scope to be changed or marked as a default.",
        ));
    }
    Ok(())
}

/// Refuses to replace or remove what a higher authority set at this very scope, unless it is only a default.
pub fn check_replace(
    definition: &Definition,
    scope: PolicyScope,
    stored: &[StoredValue],
    roles: &[Role],
) -> Result<(), Problem> {
    let mine = PolicyAuthority::from_roles(roles);
    let Some(there) = stored.iter().find(|v| v.scope == scope && v.set_by < mine && !v.is_default) else {
        return Ok(());
    };
    let (code, above) = match there.set_by {
        PolicyAuthority::Platform => (Code::AdminRequired, "a platform administrator"),
        _ => (Code::InsufficientPermissions, "an owner or admin of the organization"),
    };
    let text = format!("{} was set to {} in this scope by {above}, as a bound.", definition.key, there.value);
    Err(Problem::new(code, text)
        .detail("bound", there.value.clone())
        .detail("set_by", there.set_by.name())
        .suggest(format!(
            "Set a stricter value in a narrower scope, or ask {above} to change the value or mark it as a default."
        )))
}

/// May somebody with `roles` change the key at `scope` at all? What limits somebody is set from above them: an
/// organization's quota by the platform, a project's by its organization.
pub fn check_authority(definition: &Definition, scope: PolicyScope, roles: &[Role]) -> Result<(), Problem> {
    let key = definition.key;
    if scope == PolicyScope::Global {
        return Ok(());
    }
    if only_global(key) {
        let text = format!("{key} applies to the whole platform and can be set in the global scope only.");
        return Err(Problem::new(Code::Unprocessable, text));
    }
    if roles.contains(&Role::PlatformAdmin) {
        return Ok(());
    }
    let quota = key.starts_with("quota.");
    if !tenant_may_set(key) || (quota && scope == PolicyScope::Org) {
        let text = format!("{key} can be set by platform administrators only.");
        return Err(Problem::new(Code::AdminRequired, text));
    }
    if quota && !roles.iter().any(|role| matches!(role, Role::OrgOwner | Role::OrgAdmin)) {
        let text = format!("{key} can be set by owners and admins of the organization only.");
        return Err(Problem::new(Code::InsufficientPermissions, text));
    }
    Ok(())
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
