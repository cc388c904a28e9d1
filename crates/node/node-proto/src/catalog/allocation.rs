//! Users of a whole machine: accounts, keys, limits, and leaving nothing behind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The unix account of one allocation. The ids are fixed by the control plane, so that nothing that a former
/// user left can belong to a later one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountSpec {
    /// `[a-z_][a-z0-9_-]{0,31}`
    pub username: String,
    /// At least 20000: never a user of the system.
    pub uid: u32,
    pub gid: u32,
}

/// Bounds of what one account may use; what is absent is left to the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProvisionUserInput {
    pub account: AccountSpec,
    /// Marks the managed block in `authorized_keys`: `[a-z0-9_]{1,64}`, usually the allocation's id.
    pub owner: String,
    pub shell: String,
    /// Complete lines of OpenSSH public keys, without options.
    pub authorized_keys: Vec<String>,
    #[serde(default)]
    pub limits: AccountLimits,
    /// Whether the account may become root by sudo: on a whole machine, usually yes.
    pub sudo: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvisionedUser {
    pub username: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
    pub keys: u32,
    /// False when the account was there already, as asked.
    pub created: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeprovisionUserInput {
    pub account: AccountSpec,
    pub owner: String,
}

/// What was removed; all zero when there was nothing left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeprovisionedUser {
    pub processes_killed: u32,
    pub schedules_removed: u32,
    pub files_removed: u32,
    pub account_removed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallAuthorizedKeysInput {
    pub account: AccountSpec,
    pub owner: String,
    /// The complete desired set; keys outside the managed block are never touched.
    pub authorized_keys: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstalledKeys {
    pub keys: u32,
    pub changed: bool,
}
