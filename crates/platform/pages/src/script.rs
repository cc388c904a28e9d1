//! Pages that a script makes in the browser. The server gives the frame: which files, what the script must know, and the
//! policy.
//!
//! The policy allows scripts and styles of this server's files and nothing else: no inline script, no inline style, no
//! `eval`, no markup from text (trusted types), no other host.

use axum::response::Response;
use http::StatusCode;
use kernel::text::html_escape;

/// The frame of such a page.
#[derive(Default)]
pub struct ScriptPage<'a> {
    pub title: &'a str,
    /// Addresses on this server.
    pub styles: Vec<String>,
    pub scripts: Vec<String>,
    /// (name, value): the script reads them as `data-` attributes of `main`.
    pub data: Vec<(&'a str, String)>,
    /// Besides this server, what the script may connect to.
    pub connects_to: &'a str,
    /// For browsers that run no script.
    pub without_script: &'a str,
}

impl ScriptPage<'_> {
    pub fn render(&self) -> Response {
        let title = html_escape(self.title);
        let styles = self.styles.iter().map(|address| {
            let address = html_escape(address);
            format!("<link rel=\"stylesheet\" href=\"{address}\">")
        });
        let scripts = self.scripts.iter().map(|address| {
            let address = html_escape(address);
            format!("<script type=\"module\" src=\"{address}\"></script>")
        });
        let data = self.data.iter().map(|(name, value)| format!(" data-{name}=\"{}\"", html_escape(value)));
        let html = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{title} · GPUaaS</title>{}{}</head>\
             <body><main{}><noscript><p>{}</p></noscript></main></body></html>",
            styles.collect::<String>(),
            scripts.collect::<String>(),
            data.collect::<String>(),
            html_escape(self.without_script),
        );
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' {}; form-action 'none'; \
             frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            self.connects_to
        );
        crate::respond(StatusCode::OK, html, &policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_frame_loads_files_of_this_server_only_and_shows_text_as_text() {
        let hostile = "\"><script>alert('1')</script>&";
        let page = ScriptPage {
            title: hostile,
            styles: vec![hostile.to_owned()],
            scripts: vec!["/assets/a.js".to_owned()],
            data: vec![("origin", hostile.to_owned())],
            connects_to: "wss://gpu.example.org",
            without_script: hostile,
        };
        let response = page.render();
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        for part in ["default-src 'none';", "script-src 'self';", "connect-src 'self' wss://gpu.example.org;"]
        {
            assert!(policy.contains(part), "{part}: {policy}");
        }
        assert_eq!(response.headers()["cross-origin-opener-policy"], "same-origin");
        let bytes = axum::body::to_bytes(response.into_body(), 100_000).await.unwrap();
        let html = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(html.matches("<script").count(), 1, "{html}");
        assert!(html.contains("<script type=\"module\" src=\"/assets/a.js\"></script>"), "{html}");
        assert_eq!(html.matches("&lt;script&gt;").count(), 4, "{html}");
        assert!(!html.contains("style=") && !html.contains("<style"), "{html}");
    }
}
