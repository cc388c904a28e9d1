//! How an agent comes onto a machine: a script with everything that must be pinned, and the program itself.
//!
//! Both are public: nothing in them is secret. What makes a machine a node is the bootstrap token, which the
//! script takes on standard input and never puts into an address or a command line.

mod http;
mod programs;

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use tokio_util::io::ReaderStream;

use crate::Fleet;

pub use http::endpoints;
pub use programs::{Program, Programs};

const SCRIPT: &str = include_str!("agent.sh");
const UNIT: &str = include_str!("gpuaas-agent.service");

/// Routes beside the public API.
pub fn router(fleet: Fleet) -> Router {
    Router::new()
        .route("/install/agent.sh", get(script))
        .route("/install/programs/{sha256}", get(program))
        .with_state(fleet)
}

async fn script(State(fleet): State<Fleet>) -> Response {
    match render(&fleet).await {
        Some(text) => ([(header::CONTENT_TYPE, "text/x-shellscript; charset=utf-8")], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "# The control plane is not ready; try again.\nexit 1\n")
            .into_response(),
    }
}

async fn render(fleet: &Fleet) -> Option<String> {
    let (root_sha256, keyset_key) = fleet.trust().pins().await.ok()?;
    let programs = fleet.programs().clone();
    let listed = tokio::task::spawn_blocking(move || programs.list()).await.ok()?.ok()?;
    // The newest of each architecture: the list ends with it.
    let mut newest: Vec<(String, String)> = Vec::new();
    for program in listed {
        newest.retain(|(architecture, _)| *architecture != program.architecture);
        newest.push((program.architecture, program.sha256));
    }
    let lines: Vec<String> =
        newest.iter().map(|(architecture, digest)| format!("{architecture} {digest}")).collect();
    let settings = fleet.settings();
    Some(
        SCRIPT
            .replace("@PUBLIC_URL@", &settings.public_url)
            .replace("@NODE_URL@", &settings.node_url)
            .replace("@ROOT_SHA256@", &root_sha256.join(","))
            .replace("@KEYSET_KEY@", &keyset_key)
            .replace("@PROGRAMS@", &lines.join("\n"))
            .replace("@UNIT@", UNIT.trim_end()),
    )
}

async fn program(State(fleet): State<Fleet>, Path(sha256): Path<String>) -> Response {
    serve_program(fleet.programs(), &sha256).await
}

/// The program with this digest as a stream, for both listeners.
pub(crate) async fn serve_program(programs: &Programs, sha256: &str) -> Response {
    let (programs, sha256) = (programs.clone(), sha256.to_owned());
    let missing = || (StatusCode::NOT_FOUND, "There is no agent program with this digest.\n").into_response();
    let found = tokio::task::spawn_blocking(move || programs.find(&sha256)).await;
    let Ok(Ok(Some(program))) = found else { return missing() };
    let Ok(file) = tokio::fs::File::open(&program.path).await else { return missing() };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, program.size_bytes.to_string()),
    ];
    (headers, Body::from_stream(ReaderStream::new(file))).into_response()
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, UNIT};

    /// Names of the settings in the unit, without comments.
    fn settings() -> Vec<&'static str> {
        UNIT.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.split_once('=')?.0))
            .collect()
    }

    #[test]
    fn the_agent_sees_the_machine_as_it_is() {
        // Each of these gives a service mounts or devices of its own. What the agent unmounts and removes there would
        // stay for everybody else, and it could read neither the kernel's log nor the GPUs.
        let apart = [
            "Private",
            "Protect",
            "ReadOnly",
            "ReadWrite",
            "Inaccessible",
            "Temporary",
            "Bind",
            "Root",
            "Device",
        ];
        for setting in settings() {
            assert!(!apart.iter().any(|word| setting.starts_with(word)), "{setting}");
        }
        // Filters reach the vendor's tools too; some of them make code while they run.
        assert!(!settings().contains(&"MemoryDenyWriteExecute"));
    }

    #[test]
    fn an_update_that_does_not_come_up_is_guarded_by_the_program_before() {
        let start = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let guard = UNIT.lines().find_map(|line| line.strip_prefix("ExecStartPre=-")).unwrap();
        let (program, rest) = start.split_once(' ').unwrap();
        assert_eq!(guard, format!("{program}.previous {}", rest.replace(" run", " guard")));
        assert!(settings().contains(&"StartLimitIntervalSec"), "it must not be given up after some failures");
    }

    #[test]
    fn the_script_says_nothing_of_the_token_in_a_command_line_or_an_address() {
        let mentions: Vec<&str> =
            SCRIPT.lines().filter(|line| line.contains("$token") || line.contains("${token")).collect();
        assert_eq!(mentions.len(), 2, "{mentions:?}");
        assert!(
            mentions[0].starts_with("[ -n ") && mentions[1].starts_with("printf '%s\\n' \"$token\" | "),
            "{mentions:?}"
        );
    }
}
