//! What is read from where, and what is refused.

use super::*;

fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Config::read(Some(("gpuaas.toml", text)), env, Flags::default())
}

#[test]
fn an_empty_file_is_a_whole_configuration() {
    let config = read("", &[]).unwrap();
    assert_eq!(config.server.listen.port(), 8080);
    assert_eq!(config.roles, Role::ALL);
    assert!(config.auth.builtin && config.database.url.is_none());
}

#[test]
fn all_problems_are_reported_at_once_with_their_sources() {
    let text = "[server]\nlisten = \"nowhere\"\nlissten = 1\nroles = [\"api\", \"chef\"]\n[database]\napp_connections = 0\n\
                [telemetry]\nlog_format = \"xml\"\n[auth]\nbuiltin = false\n";
    let problems = read(text, &[("GPUAAS__SERVER__SHUTDOWN_TIMEOUT_SECONDS", "soon")]).unwrap_err().0;
    let all = problems.join("\n");
    for part in [
        "server.listen: \"nowhere\"",
        "server.lissten: unknown setting (gpuaas.toml); did you mean server.listen?",
        "no role \"chef\"",
        "database.app_connections: must be from 1",
        "telemetry.log_format",
        "nobody could sign in",
        "$GPUAAS__SERVER__SHUTDOWN_TIMEOUT_SECONDS",
    ] {
        assert!(all.contains(part), "{part} is missing from:\n{all}");
    }
}

#[test]
fn the_environment_wins_over_the_file_and_flags_over_both() {
    let env = [("GPUAAS__SERVER__LISTEN".to_owned(), "127.0.0.1:2".to_owned())];
    let file = Some(("f", "[server]\nlisten = \"127.0.0.1:1\""));
    let config = Config::read(file, env.clone().into_iter(), Flags::default()).unwrap();
    assert_eq!(config.server.listen.port(), 2);
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    assert_eq!(Config::read(file, env.into_iter(), flags).unwrap().server.listen.port(), 3);
}

#[test]
fn secrets_are_masked_in_what_is_shown() {
    let config = read("[database]\nurl = \"postgres://u:hunter2@db/gpuaas\"", &[]).unwrap();
    let shown = format!("{:?}{config:?}", config.shown);
    assert!(!shown.contains("hunter2") && shown.contains("[secret]"));
}

#[test]
fn plain_http_is_refused_beyond_this_machine() {
    assert!(read("[server]\npublic_url = \"http://cloud.example.org\"", &[]).is_err());
    assert!(read("[server]\npublic_url = \"https://cloud.example.org\"", &[]).is_ok());
}

fn with_issuer(auth: &str, issuer: &str) -> Result<Config, ConfigError> {
    let text = format!(
        "[auth]\n{auth}\n[[auth.issuers]]\nissuer = \"{issuer}\"\naudience = \"a\"\nclient_id = \"c\""
    );
    read(&text, &[])
}

#[test]
fn an_issuer_over_plain_http_is_refused_beyond_this_machine() {
    for good in ["https://id.example.org", "http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9"] {
        assert!(with_issuer("", good).is_ok(), "{good}");
    }
    for bad in ["http://id.example.org", "http://192.0.2.1", "http://localhost.example.org"] {
        let problems = with_issuer("", bad).unwrap_err().0.join("\n");
        assert!(problems.contains("auth.issuers.0.issuer: plain http"), "{bad}: {problems}");
    }
}

#[test]
fn an_administrator_comes_from_outside_only_when_named_and_the_built_in_issuer_is_off() {
    let named = |auth: &str| {
        let config = with_issuer(auth, "https://id.example.org").unwrap();
        config.auth.external_admin.map(|email| email.as_str().to_owned())
    };
    let ann = "admin_email = \"ann@example.org\"";
    assert_eq!(named(&format!("builtin = false\n{ann}")).as_deref(), Some("ann@example.org"));
    assert_eq!(named("builtin = false"), None, "nobody is called admin@localhost by an issuer");
    assert_eq!(named(ann), None, "the built-in account is the first administrator");
}
