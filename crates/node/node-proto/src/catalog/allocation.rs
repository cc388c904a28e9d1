//! Users of a whole machine: accounts, keys, limits, and leaving nothing behind.

use std::borrow::Cow;

use kernel::policy::IsolationModel;
use schemars::{JsonSchema, Schema, SchemaGenerator};
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

/// What becomes of a whole machine after its user, and with it what the user may be there. One value and not two, so
/// that nobody can ask for root on a machine that is not installed anew afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Isolation {
    /// The account is removed and its traces are scrubbed: it is never root, and has the GPUs by group.
    UserRevoke,
    /// The machine is installed anew: the account may become root by sudo.
    FullReimage,
}

impl From<IsolationModel> for Isolation {
    fn from(model: IsolationModel) -> Self {
        match model {
            IsolationModel::UserRevoke => Self::UserRevoke,
            IsolationModel::FullReimage => Self::FullReimage,
        }
    }
}

impl Isolation {
    pub const fn gives_sudo(self) -> bool {
        matches!(self, Self::FullReimage)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ProvisionUserWire", into = "ProvisionUserWire")]
pub struct ProvisionUserInput {
    pub account: AccountSpec,
    pub owner: String,
    pub shell: String,
    pub authorized_keys: Vec<String>,
    pub limits: AccountLimits,
    pub isolation: Isolation,
}

impl JsonSchema for ProvisionUserInput {
    fn schema_name() -> Cow<'static, str> {
        ProvisionUserWire::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ProvisionUserWire::json_schema(generator)
    }
}

/// As it travels: the isolation is said only with sudo, which nobody gets without it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ProvisionUserInput")]
struct ProvisionUserWire {
    account: AccountSpec,
    /// Marks the managed block in `authorized_keys`: `[a-z0-9_]{1,64}`, usually the allocation's id.
    owner: String,
    shell: String,
    /// Complete lines of OpenSSH public keys, without options.
    authorized_keys: Vec<String>,
    #[serde(default)]
    limits: AccountLimits,
    /// Whether the account may become root by sudo: only with the isolation `full-reimage`.
    sudo: bool,
    /// Since 1.1: what becomes of the machine after its user. With sudo it must be there, and be `full-reimage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    isolation: Option<Isolation>,
}

/// An order that asks for root where root cannot be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sudo and the isolation full-reimage come together or not at all")]
pub struct SudoWithoutReimage;

impl TryFrom<ProvisionUserWire> for ProvisionUserInput {
    type Error = SudoWithoutReimage;

    fn try_from(wire: ProvisionUserWire) -> Result<Self, Self::Error> {
        let isolation = match (wire.sudo, wire.isolation) {
            (false, None | Some(Isolation::UserRevoke)) => Isolation::UserRevoke,
            (true, Some(Isolation::FullReimage)) => Isolation::FullReimage,
            (true, None | Some(Isolation::UserRevoke)) | (false, Some(Isolation::FullReimage)) => {
                return Err(SudoWithoutReimage);
            }
        };
        let ProvisionUserWire { account, owner, shell, authorized_keys, limits, .. } = wire;
        Ok(Self { account, owner, shell, authorized_keys, limits, isolation })
    }
}

impl From<ProvisionUserInput> for ProvisionUserWire {
    fn from(input: ProvisionUserInput) -> Self {
        let ProvisionUserInput { account, owner, shell, authorized_keys, limits, isolation } = input;
        let sudo = isolation.gives_sudo();
        Self { account, owner, shell, authorized_keys, limits, sudo, isolation: sudo.then_some(isolation) }
    }
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
    /// Since 1.2: the public keys of the machine's SSH server, each as `type base64`. Whoever signs in through the tunnel
    /// accepts no others. Empty where there is no SSH server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
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
    /// The complete desired set; keys outside the managed block are never touched. `allocation.retain_authorized_keys`
    /// keeps of the installed keys those in here, and adds none.
    pub authorized_keys: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstalledKeys {
    pub keys: u32,
    pub changed: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wire(more: Value) -> Value {
        let mut wire = json!({ "account": { "username": "u", "uid": 20_001, "gid": 20_001 }, "owner": "a",
            "shell": "/bin/sh", "authorized_keys": [] });
        wire.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wire
    }

    fn isolation(more: Value) -> Option<Isolation> {
        serde_json::from_value::<ProvisionUserInput>(wire(more)).ok().map(|input| input.isolation)
    }

    #[test]
    fn sudo_is_asked_for_only_with_the_machine_installed_anew() {
        assert_eq!(isolation(json!({ "sudo": false })), Some(Isolation::UserRevoke));
        assert_eq!(
            isolation(json!({ "sudo": false, "isolation": "user-revoke" })),
            Some(Isolation::UserRevoke)
        );
        assert_eq!(
            isolation(json!({ "sudo": true, "isolation": "full-reimage" })),
            Some(Isolation::FullReimage)
        );
        for bad in [
            json!({ "sudo": true }),
            json!({ "sudo": true, "isolation": "user-revoke" }),
            json!({ "sudo": false, "isolation": "full-reimage" }),
            json!({ "sudo": true, "isolation": "trust-me" }),
            json!({ "isolation": "full-reimage" }),
        ] {
            assert_eq!(isolation(bad.clone()), None, "{bad}");
        }
    }

    #[test]
    fn an_order_without_sudo_says_nothing_of_the_isolation() {
        let plain = wire(json!({ "sudo": false, "limits": {} }));
        let read: ProvisionUserInput = serde_json::from_value(plain.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), plain);
        for isolation in [Isolation::UserRevoke, Isolation::FullReimage] {
            let read: ProvisionUserInput = serde_json::from_value(plain.clone()).unwrap();
            let input = ProvisionUserInput { isolation, ..read };
            let back = serde_json::from_value(serde_json::to_value(&input).unwrap()).unwrap();
            assert_eq!(input, back);
        }
    }

    #[test]
    fn a_node_is_told_the_isolation_by_the_name_of_the_policy() {
        for model in IsolationModel::ALL {
            assert_eq!(json!(Isolation::from(model)), json!(model));
        }
    }
}
