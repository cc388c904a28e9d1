//! Every kind of work. There is no kind that carries a command line.

mod allocation;
mod diag;
mod node;
mod slice;
mod topology;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use allocation::*;
pub use diag::*;
pub use node::*;
pub use slice::*;
pub use topology::*;

/// What the handler of a kind may need on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Privilege {
    /// Reads what anybody on the node may read.
    Inspect,
    /// Changes users, files of users, or the machine itself.
    Root,
}

/// A kind of work with its types.
pub trait TaskKind {
    const TYPE: TaskType;
    type Input: Serialize + DeserializeOwned + JsonSchema + Clone + Send + 'static;
    type Output: Serialize + DeserializeOwned + JsonSchema + Clone + Send + 'static;
}

macro_rules! catalog {
    ($($variant:ident = $name:literal, $input:ty => $output:ty, $seconds:literal s, $at_once:literal, $privilege:ident, $phases:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum TaskType { $($variant),* }

        impl TaskType {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name),* } }
            pub fn parse(name: &str) -> Option<Self> { match name { $($name => Some(Self::$variant),)* _ => None } }
            /// How long its handler may take.
            pub const fn timeout(self) -> Duration { match self { $(Self::$variant => Duration::from_secs($seconds)),* } }
            /// How many of it one node runs at once; others wait their turn.
            pub const fn at_once(self) -> usize { match self { $(Self::$variant => $at_once),* } }
            pub const fn privilege(self) -> Privilege { match self { $(Self::$variant => Privilege::$privilege),* } }
            /// Whether `output` has the form that a success of this kind has.
            pub fn output_fits(self, output: &Value) -> Result<(), serde_json::Error> {
                match self { $(Self::$variant => <$output as Deserialize>::deserialize(output).map(drop)),* }
            }
            /// The named steps that a handler reports, in order.
            pub const fn phases(self) -> &'static [&'static str] { match self { $(Self::$variant => $phases),* } }
        }

        /// What is to be done. A handler matches all of it, so a kind without one does not compile.
        #[derive(Clone, Debug)]
        pub enum Work { $($variant($input)),* }

        impl Work {
            pub fn read(kind: TaskType, params: Value) -> Result<Self, serde_json::Error> {
                Ok(match kind { $(TaskType::$variant => Self::$variant(serde_json::from_value(params)?)),* })
            }
            pub const fn kind(&self) -> TaskType { match self { $(Self::$variant(_) => TaskType::$variant),* } }
        }

        $(
            pub struct $variant;
            impl TaskKind for $variant {
                const TYPE: TaskType = TaskType::$variant;
                type Input = $input;
                type Output = $output;
            }
        )*

        /// The schemas of every input and output, for the document.
        pub fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(TaskType, schemars::Schema, schemars::Schema)> {
            vec![$((TaskType::$variant, generator.subschema_for::<$input>(), generator.subschema_for::<$output>())),*]
        }
    };
}

catalog! {
    TopologyDiscover = "slice.topology_discover", TopologyDiscoverInput => Topology, 60 s, 1, Inspect, &["scan", "propose"];
    VmProvision = "slice.vm_provision", VmProvisionInput => ProvisionedVm, 900 s, 8, Root, &["lease", "host", "devices", "image", "seed", "address", "disk", "network", "machine", "readiness"];
    VmRelease = "slice.vm_release", VmReleaseInput => ReleasedVm, 900 s, 8, Root, &["shutdown", "disk", "devices", "network", "lease", "verify"];
    VmRestart = "slice.vm_restart", VmRestartInput => RestartedVm, 300 s, 8, Root, &["restart", "readiness"];
    VmAuthorizedKeys = "slice.vm_authorized_keys", VmAuthorizedKeysInput => InstalledKeys, 60 s, 8, Root, &["keys"];
    VmRetainAuthorizedKeys = "slice.vm_retain_authorized_keys", VmAuthorizedKeysInput => InstalledKeys, 60 s, 8, Root, &["keys"];
    ProvisionUser = "allocation.provision_user", ProvisionUserInput => ProvisionedUser, 60 s, 4, Root, &["account", "home", "limits", "keys"];
    DeprovisionUser = "allocation.deprovision_user", DeprovisionUserInput => DeprovisionedUser, 300 s, 4, Root, &["lock", "processes", "schedules", "files", "account", "verify"];
    InstallAuthorizedKeys = "allocation.install_authorized_keys", InstallAuthorizedKeysInput => InstalledKeys, 30 s, 8, Root, &["keys"];
    RetainAuthorizedKeys = "allocation.retain_authorized_keys", InstallAuthorizedKeysInput => InstalledKeys, 30 s, 8, Root, &["keys"];
    Drain = "node.drain", DrainInput => DrainState, 30 s, 1, Root, &["mark"];
    Undrain = "node.undrain", UndrainInput => DrainState, 30 s, 1, Root, &["mark"];
    SelfUpdate = "node.self_update", SelfUpdateInput => SelfUpdated, 600 s, 1, Root, &["fetch", "check", "swap", "confirm"];
    Reboot = "node.reboot", RebootInput => Rebooted, 900 s, 1, Root, &["request", "boot"];
    HealthProbe = "diag.health_probe", HealthProbeInput => HealthReport, 300 s, 1, Inspect, &["probe"];
    Collect = "diag.collect", CollectInput => Collection, 120 s, 1, Inspect, &["collect", "redact"];
}

/// A kind whose input carries a complete set of SSH keys.
pub trait KeySetKind: TaskKind {
    fn keys_mut(input: &mut Self::Input) -> &mut Vec<String>;
}

/// A kind that can only take keys from a machine: of those that it has, the ones in the input stay and nothing is added.
/// So it needs nobody's order: whoever could ask for it at will could lock people out, and let nobody in.
pub trait KeyRemovalKind: TaskKind {}

impl KeySetKind for InstallAuthorizedKeys {
    fn keys_mut(input: &mut Self::Input) -> &mut Vec<String> {
        &mut input.authorized_keys
    }
}

impl KeySetKind for VmAuthorizedKeys {
    fn keys_mut(input: &mut Self::Input) -> &mut Vec<String> {
        &mut input.authorized_keys
    }
}

impl KeyRemovalKind for RetainAuthorizedKeys {}
impl KeyRemovalKind for VmRetainAuthorizedKeys {}

impl Work {
    /// Whose things on the node it removes.
    pub fn ends_owner(&self) -> Option<&str> {
        match self {
            Self::VmRelease(input) => Some(&input.owner),
            Self::DeprovisionUser(input) => Some(&input.owner),
            _ => None,
        }
    }

    /// Whose things on the node it changes: work about one owner is never done at the same time.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::VmProvision(input) => Some(&input.owner),
            Self::VmRelease(input) => Some(&input.owner),
            Self::VmRestart(input) => Some(&input.owner),
            Self::VmAuthorizedKeys(input) => Some(&input.owner),
            Self::VmRetainAuthorizedKeys(input) => Some(&input.owner),
            Self::ProvisionUser(input) => Some(&input.owner),
            Self::DeprovisionUser(input) => Some(&input.owner),
            Self::InstallAuthorizedKeys(input) => Some(&input.owner),
            Self::RetainAuthorizedKeys(input) => Some(&input.owner),
            Self::TopologyDiscover(_)
            | Self::Drain(_)
            | Self::Undrain(_)
            | Self::SelfUpdate(_)
            | Self::Reboot(_)
            | Self::HealthProbe(_)
            | Self::Collect(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_no_input_takes_unknown_fields() {
        for kind in TaskType::ALL {
            assert_eq!(TaskType::parse(kind.name()), Some(*kind));
            let odd = serde_json::json!({ "command_line": "rm -rf /" });
            assert!(Work::read(*kind, odd).is_err(), "{}", kind.name());
            assert!(!kind.phases().is_empty() && kind.at_once() > 0);
        }
        assert_eq!(TaskType::parse("shell.run"), None);
    }
}
