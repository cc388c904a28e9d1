//! Pages that need a script: the terminal in the browser, later the console.
//!
//! Their sources are in `web/`, and `scripts/web.sh` builds them into `web/dist`. What is there when this program is built
//! becomes part of it (`build.rs`), so that one file serves everything, without a network or a directory beside it. A program
//! that was built without them works, and says on the page and in its log what is missing.
//!
//! A page is a frame ([`pages::ScriptPage`]) with a strict content security policy and nothing of the person in it: the script
//! signs the person in at the built-in issuer, as the client `gpuaas-console` that returns to [`SIGNED_IN_PATH`], and asks the
//! API like any other client. Addresses come from the configuration, never from the request, whose `Host` anybody can choose.

mod assets;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::get,
};
use http::StatusCode;
use pages::{Notice, Page, ScriptPage, Section};

use self::assets::Entry;
use crate::{config::Config, roles::Role};

/// Where the issuer sends a browser back to.
pub const SIGNED_IN_PATH: &str = "/terminal/signed-in";
/// What the page of terminals begins with, below `web/`.
const TERMINAL_SOURCE: &str = "src/terminal.ts";

/// What the terminal page depends on.
struct TerminalPage {
    /// Of the installation: `https://gpuaas.example.org`.
    origin: String,
    socket_origin: String,
    /// None: not part of this program.
    entry: Option<Entry>,
    /// Where people sign in instead, when there are no accounts here.
    external_issuer: Option<String>,
}

/// Only where the API is, because the pages ask it.
pub fn router(config: &Config) -> Router {
    if !config.roles.contains(&Role::Api) {
        return Router::new();
    }
    let entry = assets::entry_find(TERMINAL_SOURCE);
    if entry.is_none() {
        tracing::warn!(
            "the browser terminal is not part of this program: web/dist was missing when it was built; \
             run scripts/web.sh and build again"
        );
    }
    let page = TerminalPage::new(config, entry);
    Router::new()
        .route("/terminal/{project}/{allocation}", get(show))
        .route(SIGNED_IN_PATH, get(show_signed_in))
        .with_state(Arc::new(page))
        .merge(assets::router())
}

async fn show(
    State(page): State<Arc<TerminalPage>>,
    Path((_, allocation)): Path<(String, String)>,
) -> Response {
    page.render(&allocation)
}

async fn show_signed_in(State(page): State<Arc<TerminalPage>>) -> Response {
    page.render("<allocation>")
}

impl TerminalPage {
    fn new(config: &Config, entry: Option<Entry>) -> Self {
        let origin = config.server.public_url.origin().ascii_serialization();
        let external = config.auth.issuers.first().map_or("another issuer", |issuer| issuer.issuer.as_str());
        Self {
            // `http` becomes `ws`, `https` becomes `wss`.
            socket_origin: origin.replacen("http", "ws", 1),
            origin,
            entry,
            external_issuer: (!config.auth.builtin).then(|| external.to_owned()),
        }
    }

    fn render(&self, allocation: &str) -> Response {
        if let Some(issuer) = &self.external_issuer {
            let why = format!(
                "People sign in to this installation at {issuer}. The terminal in the browser works with accounts of \
                 the installation itself only."
            );
            return self.refuse(why, allocation);
        }
        let Some(entry) = &self.entry else {
            let why = "This server was built without its browser pages.".to_owned();
            return self.refuse(why, allocation);
        };
        let page = ScriptPage {
            title: "Terminal",
            styles: entry.styles.clone(),
            scripts: vec![entry.script.clone()],
            data: vec![("origin", self.origin.clone())],
            connects_to: &self.socket_origin,
            without_script: "The terminal in the browser needs JavaScript. Without it, use the command line: gpuaas \
                             terminal",
        };
        page.render()
    }

    /// Says what to do instead.
    fn refuse(&self, why: String, allocation: &str) -> Response {
        let commands = vec![
            ("Sign in, once.", format!("gpuaas auth login --server {}", self.origin)),
            ("Open the terminal in this window.", format!("gpuaas terminal {allocation}")),
        ];
        let mut text = Vec::new();
        if self.external_issuer.is_none() {
            text.push(
                "Whoever operates it runs `scripts/web.sh` (which needs Node.js) and builds `gpuaasd` again."
                    .to_owned(),
            );
        }
        let page = Page {
            title: "No terminal in the browser here",
            notice: Some(Notice::Bad(why)),
            text,
            sections: vec![Section { commands, ..Section::new("Use the command line") }],
            links: vec![("/".to_owned(), "To the home page")],
            ..Page::default()
        };
        page.render(StatusCode::NOT_IMPLEMENTED, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(entry: Option<Entry>, external_issuer: Option<&str>) -> TerminalPage {
        TerminalPage {
            origin: "https://gpu.example.org".to_owned(),
            socket_origin: "wss://gpu.example.org".to_owned(),
            entry,
            external_issuer: external_issuer.map(str::to_owned),
        }
    }

    fn entry() -> Entry {
        Entry { script: "/assets/a.js".to_owned(), styles: vec!["/assets/a.css".to_owned()] }
    }

    async fn html(response: Response) -> (u16, String) {
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 100_000).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_page_loads_the_built_files_and_may_reach_the_gateway() {
        let response = page(Some(entry()), None).render("alloc_1");
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.contains("connect-src 'self' wss://gpu.example.org;"), "{policy}");
        let (status, html) = html(response).await;
        assert!(status == 200 && html.contains("src=\"/assets/a.js\""), "{html}");
        assert!(html.contains("data-origin=\"https://gpu.example.org\""), "{html}");
    }

    #[tokio::test]
    async fn a_program_without_pages_says_how_to_build_them_and_what_works() {
        let (status, html) = html(page(None, None).render("<b>")).await;
        assert_eq!(status, 501);
        for part in ["scripts/web.sh", "gpuaas terminal &lt;b&gt;", "--server https://gpu.example.org"] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[tokio::test]
    async fn with_an_external_issuer_the_page_names_it_and_what_works() {
        let (status, html) = html(page(Some(entry()), Some("https://idp.example")).render("a")).await;
        assert_eq!(status, 501);
        assert!(html.contains("https://idp.example") && html.contains("gpuaas terminal a"), "{html}");
        assert!(!html.contains("<script"), "{html}");
    }
}
