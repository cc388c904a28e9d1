//! The settings of the fleet: the node listener, what trust rests on, and nodes that do not exist.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use url::Url;

use super::Reader;
use crate::roles::Role;

#[derive(Debug)]
pub struct NodeGateway {
    pub listen: SocketAddr,
    /// Where nodes reach the listener.
    pub url: Url,
    /// Where nodes reach the listener of this process, when several share `url`: for tunnels, which end where they were asked
    /// for.
    pub tunnel_url: Url,
    /// What the listener's certificate names besides the hosts of `listen` and `url`.
    pub names: Vec<String>,
    pub max_connections: usize,
    /// The domain in the names of certificates.
    pub trust_domain: String,
}

#[derive(Debug)]
pub struct Trust {
    /// Where the keys lie that sign work; only processes that sign read it.
    pub signing_dir: PathBuf,
    /// The public key that lists of signers are checked with, for processes that do not sign.
    pub keyset_key_file: PathBuf,
}

#[derive(Debug)]
pub struct Fleet {
    pub auto_approve_simulated: bool,
    pub programs_dir: PathBuf,
    pub simulated: Simulated,
}

/// Nodes that do not exist, for whoever plays them.
#[derive(Debug)]
pub struct Simulated {
    pub nodes: usize,
    /// What they claim to be, in turn.
    pub profiles: Vec<String>,
}

pub(super) fn node_gateway(r: &mut Reader, roles: &[Role], others: &[(&str, SocketAddr)]) -> NodeGateway {
    let listen = r.get("node_gateway.listen", SocketAddr::from(([127, 0, 0, 1], 8082)));
    let url = match r.optional::<Url>("node_gateway.url") {
        Some(url) => https_only(r, "node_gateway.url", url),
        None => match Url::parse(&format!("https://{listen}")) {
            Ok(url) => url,
            Err(error) => unreachable!("a socket address makes a URL: {error}"),
        },
    };
    let tunnel_url = match r.optional::<Url>("node_gateway.tunnel_url") {
        Some(url) => https_only(r, "node_gateway.tunnel_url", url),
        None => url.clone(),
    };
    let serves = roles.iter().any(|role| role.serves_nodes());
    for (name, other) in others {
        if serves && *other == listen && listen.port() != 0 {
            r.problem(format!("node_gateway.listen: must differ from {name}"));
        }
    }
    if serves && listen.ip().is_unspecified() && url.host_str() == Some(&*listen.ip().to_string()) {
        r.problem("node_gateway.url: is required when node_gateway.listen is a wildcard address");
    }
    let names = r.list("node_gateway.names", &[]);
    for name in &names {
        if name.parse::<std::net::IpAddr>().is_err() && !is_dns_name(name) {
            r.problem(format!("node_gateway.names: {name:?} is neither a host name nor an IP address"));
        }
    }
    let trust_domain = r.get("node_gateway.trust_domain", "gpuaas.local".to_owned());
    if !is_dns_name(&trust_domain) || trust_domain != trust_domain.to_ascii_lowercase() {
        r.problem("node_gateway.trust_domain: must be a domain name in lower case, such as gpuaas.local");
    }
    NodeGateway {
        listen,
        url,
        tunnel_url,
        names,
        trust_domain,
        max_connections: r.number("node_gateway.max_connections", 20_000, 1, 1_000_000) as usize,
    }
}

/// Notes a problem unless it is `https://host[:port]`.
fn https_only(r: &mut Reader, key: &str, url: Url) -> Url {
    if url.scheme() != "https" || url.host().is_none() || url.path() != "/" {
        r.problem(format!("{key}: must be https://host[:port] without a path"));
    }
    url
}

fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

pub(super) fn trust(r: &mut Reader, data_dir: &Path) -> Trust {
    let signing_dir = r.path("trust.signing_dir").unwrap_or_else(|| data_dir.join("secrets/task-signing"));
    let keyset_key_file = r.path("trust.keyset_key_file").unwrap_or_else(|| signing_dir.join("keyset.pub"));
    Trust { signing_dir, keyset_key_file }
}

/// Nodes that one installation may make up.
const MOST_SIMULATED: u64 = 50_000;

pub(super) fn fleet(r: &mut Reader, data_dir: &Path) -> Fleet {
    let simulated = Simulated {
        nodes: r.number("fleet.simulated.nodes", 0, 0, MOST_SIMULATED) as usize,
        profiles: r.list("fleet.simulated.profiles", &["h200-8"]),
    };
    if simulated.nodes > 0 && simulated.profiles.is_empty() {
        r.problem("fleet.simulated.profiles: at least one is needed");
    }
    // Nodes are named after their profile and turn, so a profile that is there twice would name two nodes alike.
    let mut seen = std::collections::BTreeSet::new();
    for profile in &simulated.profiles {
        if !seen.insert(profile) {
            r.problem(format!("fleet.simulated.profiles: {profile:?} is given twice"));
        }
    }
    Fleet {
        auto_approve_simulated: r.get("fleet.auto_approve_simulated", false),
        programs_dir: r.path("fleet.programs_dir").unwrap_or_else(|| data_dir.join("programs")),
        simulated,
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, ConfigError, Flags};

    fn read(text: &str) -> Result<Config, ConfigError> {
        Config::read(Some(("gpuaas.toml", text)), std::iter::empty(), Flags::default())
    }

    #[test]
    fn keys_lie_below_the_data_directory_unless_said_otherwise() {
        let config = read("[server]\ndata_dir = \"/srv/x\"").unwrap();
        assert_eq!(config.node_gateway.url.as_str(), "https://127.0.0.1:8082/");
        assert_eq!(config.trust.signing_dir.to_str(), Some("/srv/x/secrets/task-signing"));
        assert_eq!(config.trust.keyset_key_file.to_str(), Some("/srv/x/secrets/task-signing/keyset.pub"));
        assert_eq!(config.fleet.programs_dir.to_str(), Some("/srv/x/programs"));
        assert!(!config.fleet.auto_approve_simulated && config.fleet.simulated.nodes == 0);
        let config = read("[trust]\nsigning_dir = \"/srv/keys\"").unwrap();
        assert_eq!(config.trust.keyset_key_file.to_str(), Some("/srv/keys/keyset.pub"));
    }

    #[test]
    fn every_problem_of_the_fleet_is_reported_at_once() {
        let text = "[node_gateway]\nlisten = \"127.0.0.1:8080\"\nurl = \"http://nodes.example.org/x\"\n\
                    names = [\"not a name\"]\ntrust_domain = \"Upper.Case\"\nmax_connections = 0\n\
                    [fleet]\nauto_approve_simulated = \"perhaps\"\n[fleet.simulated]\nnodes = 9999999\n";
        let all = read(text).unwrap_err().0.join("\n");
        for part in [
            "node_gateway.url: must be https://",
            "node_gateway.listen: must differ from server.listen",
            "node_gateway.names: \"not a name\"",
            "node_gateway.trust_domain",
            "node_gateway.max_connections: must be from 1",
            "fleet.auto_approve_simulated",
            "fleet.simulated.nodes: must be from 0",
        ] {
            assert!(all.contains(part), "{part} is missing from:\n{all}");
        }
    }

    #[test]
    fn a_simulated_profile_that_is_there_twice_is_refused() {
        let text = |profiles: &str| format!("[fleet.simulated]\nnodes = 4\nprofiles = {profiles}\n");
        let all = read(&text("[\"h200-8\", \"cpu\", \"h200-8\"]")).unwrap_err().0.join("\n");
        assert!(all.contains("fleet.simulated.profiles: \"h200-8\" is given twice"), "{all}");
        assert!(read(&text("[\"h200-8\", \"cpu\"]")).is_ok());
    }

    #[test]
    fn a_listener_on_every_address_says_where_nodes_reach_it() {
        let listen = "[node_gateway]\nlisten = \"0.0.0.0:8082\"\n";
        assert!(read(listen).unwrap_err().0.join("\n").contains("node_gateway.url: is required"));
        assert!(read(&format!("{listen}url = \"https://nodes.example.org\"")).is_ok());
        assert!(read(&format!("[server]\nroles = [\"api\"]\n{listen}")).is_ok());
    }
}
