//! The files of the built pages, inside this program. Their names carry a hash of their content, so a browser keeps each as
//! long as it likes.

use axum::{
    Router,
    body::Bytes,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Deserialize;

/// Which file a page begins with, written by Vite.
const MANIFEST: &str = "manifest.json";
const ASSETS: &str = "assets/";

struct File {
    /// Below `web/dist`.
    path: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/web_files.rs"));

/// The addresses of what a page loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub script: String,
    pub styles: Vec<String>,
}

#[derive(Deserialize)]
struct Chunk {
    file: String,
    #[serde(default)]
    css: Vec<String>,
}

/// What the page of this source file loads; none when the pages are not part of this program.
pub fn entry_find(source: &str) -> Option<Entry> {
    let manifest = FILES.iter().find(|file| file.path == MANIFEST)?;
    entry_read(manifest.plain, source)
}

fn entry_read(manifest: &[u8], source: &str) -> Option<Entry> {
    let mut chunks: std::collections::BTreeMap<String, Chunk> = serde_json::from_slice(manifest).ok()?;
    let chunk = chunks.remove(source)?;
    let address = |file: &String| format!("/{file}");
    Some(Entry { script: address(&chunk.file), styles: chunk.css.iter().map(address).collect() })
}

/// `/assets/…`: a route for each file. What is not a file is not found like any other address.
pub fn router() -> Router {
    FILES.iter().filter(|file| file.path.starts_with(ASSETS)).fold(Router::new(), |router, file| {
        router.route(&format!("/{}", file.path), get(async |headers: HeaderMap| file.answer(&headers)))
    })
}

const FIXED_HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    (header::VARY, "accept-encoding"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

impl File {
    fn answer(&self, asked: &HeaderMap) -> Response {
        let (content, encoding) = match (self.brotli, self.gzip) {
            (Some(brotli), _) if accepts_encoding(asked, "br") => (brotli, Some("br")),
            (_, Some(gzip)) if accepts_encoding(asked, "gzip") => (gzip, Some("gzip")),
            _ => (self.plain, None),
        };
        let mut response = Bytes::from_static(content).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(self.path)));
        for (name, value) in FIXED_HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(encoding) = encoding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        response
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

/// Whether the browser names the encoding, and not with a weight of zero.
fn accepts_encoding(asked: &HeaderMap, encoding: &str) -> bool {
    let named = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).any(|wanted| {
        let mut parts = wanted.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f32>);
        is_named && weight.is_ok_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: File =
        File { path: "assets/a-1.js", plain: b"plain", gzip: Some(b"gzip"), brotli: Some(b"br") };

    async fn answer(file: &File, accepted: Option<&'static str>) -> (Option<String>, Vec<u8>, Response) {
        let mut asked = HeaderMap::new();
        if let Some(accepted) = accepted {
            asked.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
        }
        let (parts, body) = file.answer(&asked).into_parts();
        let body = axum::body::to_bytes(body, 1000).await.unwrap().to_vec();
        let encoding = parts.headers.get("content-encoding").map(|v| v.to_str().unwrap().to_owned());
        (encoding, body, Response::from_parts(parts, axum::body::Body::empty()))
    }

    #[tokio::test]
    async fn a_browser_gets_the_smallest_encoding_that_it_names() {
        for (accepted, encoding, content) in [
            (None, None, "plain"),
            (Some("gzip, deflate, br"), Some("br"), "br"),
            (Some("gzip;q=0.5, br;q=0"), Some("gzip"), "gzip"),
            (Some("GZIP"), Some("gzip"), "gzip"),
            (Some("*"), None, "plain"),
            (Some("br;q=x"), None, "plain"),
        ] {
            let (got, body, response) = answer(&SCRIPT, accepted).await;
            assert_eq!((got.as_deref(), body), (encoding, content.as_bytes().to_vec()), "{accepted:?}");
            assert_eq!(response.headers()["vary"], "accept-encoding");
        }
        let plain = File { gzip: None, brotli: None, ..SCRIPT };
        assert_eq!(answer(&plain, Some("gzip, br")).await.1, b"plain");
    }

    #[tokio::test]
    async fn files_are_kept_for_ever_and_are_what_their_name_says() {
        let (_, _, response) = answer(&SCRIPT, None).await;
        let headers = response.headers();
        assert_eq!(headers["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(headers["content-type"], "text/javascript; charset=utf-8");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(content_type("assets/x.css"), "text/css; charset=utf-8");
        assert_eq!(content_type("assets/x"), "application/octet-stream");
    }

    #[test]
    fn a_page_loads_what_the_manifest_names() {
        let manifest = br#"{"src/a.ts":{"file":"assets/a-1.js","isEntry":true,"css":["assets/a-2.css"]}}"#;
        let entry = Entry { script: "/assets/a-1.js".to_owned(), styles: vec!["/assets/a-2.css".to_owned()] };
        assert_eq!(entry_read(manifest, "src/a.ts"), Some(entry));
        assert_eq!(entry_read(manifest, "src/b.ts"), None);
        assert_eq!(entry_read(b"", "src/a.ts"), None);
    }
}
