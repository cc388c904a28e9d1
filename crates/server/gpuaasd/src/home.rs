//! `/`: what this is, how to sign in, what to do next, and whether it works.
//!
//! Anybody may open it, so it tells what anybody may know: the version that the API document tells too, and ready or
//! not, as `/readyz` does; no reasons. Addresses come from the configuration, never from the request, whose `Host`
//! anybody can choose.

use axum::{Router, extract::State, response::Response, routing::get};
use http::StatusCode;
use pages::{Notice, Page, Section};
use telemetry::Health;

use crate::{
    config::{Config, PaymentProvider},
    roles::Role,
};

#[derive(Clone)]
struct Home {
    public_url: String,
    /// People have accounts here; otherwise they sign in at an external issuer.
    has_accounts: bool,
    takes_signups: bool,
    takes_payments: bool,
    health: Health,
}

/// Only where the API is, because everything that the page names is there.
pub fn router(config: &Config, health: Health) -> Router {
    if !config.roles.contains(&Role::Api) {
        return Router::new();
    }
    let home = Home {
        public_url: config.server.public_url.as_str().trim_end_matches('/').to_owned(),
        has_accounts: config.auth.builtin,
        takes_signups: config.auth.self_signup,
        takes_payments: config.payments.provider != PaymentProvider::Disabled,
        health,
    };
    Router::new().route("/", get(show)).with_state(home)
}

/// Always 200: the page is there, whatever it says of the rest. Monitors ask `/readyz`.
async fn show(State(home): State<Home>) -> Response {
    page(&home).render(StatusCode::OK, "")
}

fn page(home: &Home) -> Page<'static> {
    use telemetry::health::State as Is;
    let status = home.health.report().status;
    let notice = match status {
        Is::Ready => Notice::Good("The service is ready.".to_owned()),
        Is::Warming => Notice::Wait("The service is starting.".to_owned()),
        Is::Stopping => Notice::Wait("This server is being stopped; another may take over.".to_owned()),
        Is::Failing => {
            Notice::Bad("The service is not ready: something that it needs has failed.".to_owned())
        }
    };
    Page {
        title: "GPU machines on demand",
        notice: Some(notice),
        text: vec![
            "This is the control plane of a GPU cloud. It launches machines, meters what they use and charges a \
             prepaid balance. You work with it from the command line, or through its API."
                .to_owned(),
        ],
        sections: vec![
            Section { commands: first_commands(home), ..Section::new("First steps") },
            Section {
                facts: vec![
                    ("Address", home.public_url.clone()),
                    ("Version", env!("CARGO_PKG_VERSION").to_owned()),
                    ("State", state_name(status).to_owned()),
                ],
                ..Section::new("This installation")
            },
        ],
        links: links(home),
        ..Page::default()
    }
}

const fn state_name(state: telemetry::health::State) -> &'static str {
    use telemetry::health::State as Is;
    match state {
        Is::Ready => "ready",
        Is::Warming => "starting",
        Is::Failing => "failing",
        Is::Stopping => "stopping",
    }
}

fn first_commands(home: &Home) -> Vec<(&'static str, String)> {
    let mut commands = vec![
        (
            "Sign in. A browser opens; on a machine without one, add --device.",
            format!("gpuaas auth login --server {}", home.public_url),
        ),
        (
            "Add the SSH key that you log in to machines with.",
            "gpuaas ssh-keys create ~/.ssh/id_ed25519.pub".to_owned(),
        ),
    ];
    if home.takes_payments {
        commands.push(("Pay in, on a checkout page.", "gpuaas billing topup 50.00".to_owned()));
    } else {
        commands.push((
            "See your balance. Operators of this installation credit it.",
            "gpuaas billing balance".to_owned(),
        ));
    }
    commands.extend([
        ("See what can be launched, and for how much.", "gpuaas catalog".to_owned()),
        (
            "Launch a machine and log in to it.",
            "gpuaas launch SKU --name first --wait\ngpuaas ssh first".to_owned(),
        ),
        (
            "Or open a terminal on it, here or in a browser. It needs no SSH key.",
            "gpuaas terminal first\ngpuaas terminal first --web".to_owned(),
        ),
    ]);
    commands
}

fn links(home: &Home) -> Vec<(String, &'static str)> {
    let mut links = Vec::new();
    if home.has_accounts {
        links.push((
            "/auth/login".to_owned(),
            "Sign in in this browser: change the password, sign in a device",
        ));
    }
    if home.has_accounts && home.takes_signups {
        links.push(("/auth/signup".to_owned(), "Create an account"));
    }
    links.push(("/api/v1/openapi.json".to_owned(), "The API document (OpenAPI)"));
    links
}
