//! What keeps a machine from joining although its token is good. Told with the token, when there is still time.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;

lifecycle::named_enum! {
    /// A stable code.
    JoinWarningCode = "warning about joining" {
        /// The install script has no agent to fetch.
        AgentProgramMissing = "agent_program_missing",
        /// An address that the machine must reach names the machine itself.
        AddressIsLoopback = "address_is_loopback",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JoinWarning {
    pub code: JoinWarningCode,
    pub message: String,
    /// The setting of the server that changes it.
    pub setting: String,
    pub suggestion: String,
}

/// `has_program`: whether there is any agent program to fetch.
pub fn join_warnings(public_url: &str, node_url: &str, has_program: bool) -> Vec<JoinWarning> {
    let mut warnings = Vec::new();
    if !has_program {
        warnings.push(JoinWarning {
            code: JoinWarningCode::AgentProgramMissing,
            message: "This installation offers no agent program, so the install script has nothing to fetch."
                .to_owned(),
            setting: "fleet.programs_dir".to_owned(),
            suggestion: "Copy the agent into the directory `fleet.programs_dir` of the server, named \
                         gpuaas-agent-<version>-<architecture>, such as gpuaas-agent-0.1.0-x86_64."
                .to_owned(),
        });
    }
    let addresses = [
        ("server.public_url", public_url, "the install script is fetched from"),
        ("node_gateway.url", node_url, "the agent connects to"),
    ];
    for (setting, url, purpose) in addresses {
        if names_the_machine_itself(url) {
            warnings.push(JoinWarning {
                code: JoinWarningCode::AddressIsLoopback,
                message: format!("{url}, which {purpose}, cannot be reached from another machine."),
                setting: setting.to_owned(),
                suggestion: format!(
                    "Set `{setting}` to an address of this server that the machine can reach (and listen on it), restart \
                     the server, and create a new token. On this machine itself, the command works as it is."
                ),
            });
        }
    }
    warnings
}

/// Loopback, or the address that stands for all of a machine's own.
fn names_the_machine_itself(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host =
        url.host().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_machine_itself_are_told_from_others() {
        for url in [
            "http://127.0.0.1:8080",
            "https://127.8.8.8",
            "https://[::1]:8082",
            "https://[::ffff:127.0.0.1]:1",
            "http://localhost:8080",
            "http://LOCALHOST.",
            "http://api.localhost",
            "https://0.0.0.0:8082",
            "https://[::]:8082",
        ] {
            assert!(names_the_machine_itself(url), "{url}");
        }
        for url in [
            "https://gpuaas.example",
            "https://10.0.0.7:8082",
            "https://[2001:db8::1]:8082",
            "http://localhost.example",
            "",
        ] {
            assert!(!names_the_machine_itself(url), "{url}");
        }
    }

    #[test]
    fn each_thing_in_the_way_is_named_with_its_setting() {
        let found = join_warnings("http://127.0.0.1:8080", "https://gpuaas.example:8082", false);
        let told: Vec<_> = found.iter().map(|warning| (warning.code, warning.setting.as_str())).collect();
        assert_eq!(
            told,
            [
                (JoinWarningCode::AgentProgramMissing, "fleet.programs_dir"),
                (JoinWarningCode::AddressIsLoopback, "server.public_url"),
            ]
        );
        assert_eq!(join_warnings("https://a.example", "https://a.example:8082", true), []);
        let node = join_warnings("https://a.example", "https://127.0.0.1:8082", true);
        assert_eq!(
            node.iter().map(|warning| warning.setting.as_str()).collect::<Vec<_>>(),
            ["node_gateway.url"]
        );
    }
}
