//! The server's configuration: one TOML file, then the environment, then flags; one typed struct; every
//! problem reported at once.

mod fleet;
mod money;
mod objects;
mod reader;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub use fleet::{Fleet, NodeGateway, Simulated, Trust};
use kernel::{Secret, text::Email};
pub use money::{Billing, Notify, PaymentProvider, Payments, SellerSettings};
pub use objects::{ObjectStorage, S3Secret, S3Settings};
pub use reader::{Reader, Shown};
use telemetry::LogFormat;
use url::Url;

use crate::{client_address::Network, roles::Role};

#[derive(Debug)]
pub struct Config {
    pub roles: Vec<Role>,
    pub server: Server,
    pub database: Database,
    pub auth: Auth,
    pub node_gateway: NodeGateway,
    pub trust: Trust,
    pub fleet: Fleet,
    pub billing: Billing,
    pub seller: SellerSettings,
    pub payments: Payments,
    pub notify: Notify,
    pub objects: ObjectStorage,
    pub terminal_gateway: TerminalGateway,
    pub telemetry: Telemetry,
    /// Every setting with its source, secrets masked.
    pub shown: Vec<Shown>,
    /// Names of the secrets that the configuration file itself holds.
    pub secrets_in_file: Vec<String>,
}

/// WebSockets: terminals, SSH and logs.
#[derive(Debug)]
pub struct TerminalGateway {
    /// Fewer than connections: open terminals leave the API its share.
    pub max_connections: usize,
}

#[derive(Debug)]
pub struct Server {
    pub listen: SocketAddr,
    pub ops_listen: SocketAddr,
    pub public_url: Url,
    pub data_dir: PathBuf,
    pub max_connections: usize,
    pub max_connections_per_address: usize,
    pub header_read_timeout: Duration,
    pub stall_timeout: Duration,
    pub idle_timeout: Duration,
    pub shutdown_timeout: Duration,
    pub tls: Option<Tls>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
}

#[derive(Debug)]
pub struct Tls {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

#[derive(Debug)]
pub struct Database {
    /// An external server; the built-in one when absent.
    pub url: Option<Secret<String>>,
    pub bin_dir: Option<PathBuf>,
    pub run_as: Option<String>,
    pub app_connections: usize,
    pub system_connections: usize,
}

#[derive(Debug)]
pub struct Auth {
    pub builtin: bool,
    pub self_signup: bool,
    pub console_redirects: Vec<String>,
    /// Of the account made at the first start, where the built-in issuer is on.
    pub admin_email: Email,
    /// Who becomes the first administrator by signing in elsewhere: only who was named, where the built-in
    /// issuer is off.
    pub external_admin: Option<Email>,
    pub master_key_file: PathBuf,
    pub argon2_memory_kib: u32,
    pub argon2_iterations: u32,
    pub argon2_parallelism: u32,
    pub issuers: Vec<ExternalIssuer>,
}

#[derive(Debug)]
pub struct ExternalIssuer {
    pub issuer: String,
    pub audience: String,
    pub client_id: String,
}

#[derive(Debug)]
pub struct Telemetry {
    pub log_format: LogFormat,
    pub log_filter: String,
    pub otlp_endpoint: Option<String>,
    pub otlp_sample_ratio: f64,
}

/// What the command line may override.
#[derive(Debug, Default)]
pub struct Flags {
    pub roles: Option<String>,
    pub listen: Option<String>,
    pub data_dir: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("the configuration has {} problem(s):\n  - {}", .0.len(), .0.join("\n  - "))]
pub struct ConfigError(pub Vec<String>);

impl Config {
    /// `file` is (name, content).
    pub fn read(
        file: Option<(&str, &str)>,
        environment: impl Iterator<Item = (String, String)>,
        flags: Flags,
    ) -> Result<Self, ConfigError> {
        let mut reader = Reader::default();
        if let Some((name, text)) = file {
            reader.file(name, text);
        }
        reader.environment(environment);
        reader.flag("server.roles", flags.roles);
        reader.flag("server.listen", flags.listen);
        reader.flag("server.data_dir", flags.data_dir);

        let roles = roles(&mut reader);
        let server = server(&mut reader);
        let database = database(&mut reader);
        let auth = auth(&mut reader, &server.data_dir);
        let others = [("server.listen", server.listen), ("server.ops_listen", server.ops_listen)];
        let node_gateway = fleet::node_gateway(&mut reader, &roles, &others);
        let trust = fleet::trust(&mut reader, &server.data_dir);
        let fleet = fleet::fleet(&mut reader, &server.data_dir);
        let billing = money::billing(&mut reader);
        let seller = money::seller(&mut reader);
        let payments = money::payments(&mut reader);
        let notify = money::notify(&mut reader);
        let objects = objects::objects(&mut reader, &server.data_dir);
        let terminal_gateway = TerminalGateway {
            max_connections: reader.number("terminal_gateway.max_connections", 5000, 1, 1_000_000) as usize,
        };
        let telemetry = telemetry(&mut reader);
        let secrets_in_file = reader.secrets_in_file().to_vec();
        let shown = reader.finish().map_err(ConfigError)?;
        Ok(Self {
            roles,
            server,
            database,
            auth,
            node_gateway,
            trust,
            fleet,
            billing,
            seller,
            payments,
            notify,
            objects,
            terminal_gateway,
            telemetry,
            shown,
            secrets_in_file,
        })
    }
}

fn roles(r: &mut Reader) -> Vec<Role> {
    let mut roles = Vec::new();
    for name in r.list("server.roles", &["all"]) {
        if name == "all" {
            return Role::ALL.to_vec();
        }
        match Role::ALL.iter().find(|role| role.name() == name) {
            Some(role) => roles.push(*role),
            None => {
                let known: Vec<&str> = Role::ALL.iter().map(|r| r.name()).collect();
                r.problem(format!(
                    "server.roles: there is no role {name:?}; choose from all, {}",
                    known.join(", ")
                ));
            }
        }
    }
    if roles.is_empty() {
        r.problem("server.roles: at least one role is needed");
    }
    roles
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn server(r: &mut Reader) -> Server {
    let listen = r.get("server.listen", SocketAddr::from(([127, 0, 0, 1], 8080)));
    let ops_listen = r.get("server.ops_listen", SocketAddr::from(([127, 0, 0, 1], 8081)));
    let tls = (r.path("server.tls.cert_file"), r.path("server.tls.key_file"));
    let tls = match tls {
        (Some(cert_file), Some(key_file)) => Some(Tls { cert_file, key_file }),
        (None, None) => None,
        _ => {
            r.problem("server.tls: cert_file and key_file must be given together");
            None
        }
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let public_url = match r.optional::<Url>("server.public_url") {
        Some(url) => {
            if !matches!(url.scheme(), "http" | "https") || url.host().is_none() || url.path() != "/" {
                r.problem("server.public_url: must be http(s)://host[:port] without a path");
            }
            url
        }
        None => match Url::parse(&format!("{scheme}://{listen}")) {
            Ok(url) => url,
            Err(error) => unreachable!("a socket address makes a URL: {error}"),
        },
    };
    if public_url.scheme() == "http" && !is_loopback(&public_url) {
        r.problem("server.public_url: plain http is allowed for loopback addresses only; use https (server.tls, or a proxy in front)");
    }
    if ops_listen == listen && listen.port() != 0 {
        r.problem("server.ops_listen: must differ from server.listen");
    }
    let mut trusted_proxies = Vec::new();
    for text in r.list("server.trusted_proxies", &[]) {
        match text.parse() {
            Ok(network) => trusted_proxies.push(network),
            Err(hint) => r.problem(format!("server.trusted_proxies: {text:?} {hint}")),
        }
    }
    Server {
        trusted_proxies,
        listen,
        ops_listen,
        public_url,
        tls,
        data_dir: PathBuf::from(r.get("server.data_dir", "/var/lib/gpuaas".to_owned())),
        max_connections: r.number("server.max_connections", 10_000, 1, 1_000_000) as usize,
        max_connections_per_address: r.number("server.max_connections_per_address", 1000, 1, 1_000_000)
            as usize,
        header_read_timeout: Duration::from_secs(r.number("server.header_read_timeout_seconds", 10, 1, 300)),
        stall_timeout: Duration::from_secs(r.number("server.stall_timeout_seconds", 20, 1, 300)),
        idle_timeout: Duration::from_secs(r.number("server.idle_timeout_seconds", 120, 1, 3600)),
        shutdown_timeout: Duration::from_secs(r.number("server.shutdown_timeout_seconds", 20, 1, 600)),
    }
}

fn database(r: &mut Reader) -> Database {
    Database {
        url: r.secret("database.url"),
        bin_dir: r.path("database.bin_dir"),
        run_as: r.optional("database.run_as"),
        app_connections: r.number("database.app_connections", 24, 1, 1000) as usize,
        system_connections: r.number("database.system_connections", 16, 2, 1000) as usize,
    }
}

fn auth(r: &mut Reader, data_dir: &std::path::Path) -> Auth {
    let mut issuers = Vec::new();
    for i in 0..r.count("auth.issuers") {
        let mut required = |name: &str| {
            let key = format!("auth.issuers.{i}.{name}");
            r.optional::<String>(&key).unwrap_or_else(|| {
                r.problem(format!("{key}: is required"));
                String::new()
            })
        };
        let (issuer, audience, client_id) = (required("issuer"), required("audience"), required("client_id"));
        match Url::parse(&issuer) {
            // Whoever can answer in its place could sign in as anybody.
            Ok(url) if url.scheme() == "http" && !is_loopback(&url) => r.problem(format!(
                "auth.issuers.{i}.issuer: plain http is allowed for loopback addresses only; use the issuer's https address"
            )),
            Ok(url) if matches!(url.scheme(), "https" | "http") => {}
            _ => r.problem(format!("auth.issuers.{i}.issuer: must be the issuer's URL")),
        }
        issuers.push(ExternalIssuer { issuer, audience, client_id });
    }
    let builtin = r.get("auth.builtin", true);
    if !builtin && issuers.is_empty() {
        r.problem(
            "auth: the built-in issuer is off and no [[auth.issuers]] is given, so nobody could sign in",
        );
    }
    let admin_is_named = r.is_given("auth.admin_email");
    let admin_email = r.get("auth.admin_email", "admin@localhost".to_owned());
    let admin_email = Email::parse(admin_email).unwrap_or_else(|hint| {
        r.problem(format!("auth.admin_email: {hint}"));
        match Email::parse("admin@localhost") {
            Ok(email) => email,
            Err(hint) => unreachable!("{hint}"),
        }
    });
    Auth {
        builtin,
        self_signup: r.get("auth.self_signup", false),
        console_redirects: r.list("auth.console_redirects", &[]),
        external_admin: (!builtin && admin_is_named).then(|| admin_email.clone()),
        admin_email,
        master_key_file: r
            .path("auth.master_key_file")
            .unwrap_or_else(|| data_dir.join("secrets/master.key")),
        argon2_memory_kib: r.number("auth.argon2.memory_kib", 19_456, 8, 1_048_576) as u32,
        argon2_iterations: r.number("auth.argon2.iterations", 2, 1, 20) as u32,
        argon2_parallelism: r.number("auth.argon2.parallelism", 1, 1, 16) as u32,
        issuers,
    }
}

fn telemetry(r: &mut Reader) -> Telemetry {
    let format = r.get("telemetry.log_format", "json".to_owned());
    let log_format = match format.as_str() {
        "json" => LogFormat::Json,
        "pretty" => LogFormat::Pretty,
        other => {
            r.problem(format!("telemetry.log_format: must be json or pretty, not {other:?}"));
            LogFormat::Json
        }
    };
    let otlp_sample_ratio = r.get("telemetry.otlp_sample_ratio", 1.0);
    if !(0.0..=1.0).contains(&otlp_sample_ratio) {
        r.problem("telemetry.otlp_sample_ratio: must be from 0 to 1");
    }
    Telemetry {
        log_format,
        log_filter: r.get("telemetry.log_filter", "info".to_owned()),
        otlp_endpoint: r.optional("telemetry.otlp_endpoint"),
        otlp_sample_ratio,
    }
}

#[cfg(test)]
mod tests;
