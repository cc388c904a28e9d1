//! Keeps browsers off JSON: a person who opens the address of anything gets a page.
//!
//! Programs get what they always got. A request is a person's when the browser says so (`Sec-Fetch-Mode: navigate`), or,
//! because browsers say that only to servers with TLS, when it would rather have HTML than JSON. A bearer token is sent
//! by programs only: the command line asks for HTML too, and reads errors as JSON.

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::Value;

use crate::{Notice, Page, Section};

/// A longer document is not shown; it is saved to a file.
const LONGEST_SHOWN_BYTES: usize = 4 * 1024 * 1024;
/// Which requests get a page, for caches.
const DECIDED_BY: HeaderValue = HeaderValue::from_static("accept, authorization, sec-fetch-mode");

/// The layer.
pub async fn answer_with_pages(request: Request, next: Next) -> Response {
    if !is_navigation(request.headers()) {
        return next.run(request).await;
    }
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let is_json = has_type(&response, "application/json");
    if is_error && !has_type(&response, "text/html") {
        error_page(response).await
    } else if is_json {
        document_page(response, &path).await
    } else {
        response
    }
}

fn has_type(response: &Response, wanted: &str) -> bool {
    let given = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.and_then(|text| text.split(';').next()).unwrap_or_default();
    given.trim().eq_ignore_ascii_case(wanted)
}

fn is_navigation(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if headers.contains_key(header::AUTHORIZATION) {
        return false;
    }
    match text("sec-fetch-mode") {
        "" => prefers_html(text("accept")),
        mode => mode == "navigate",
    }
}

/// Whether HTML is asked for by its name, and JSON is not wanted more. `*/*` asks for nothing by its name.
fn prefers_html(accept: &str) -> bool {
    let (mut html, mut json) = (0.0, 0.0);
    for wanted in accept.split(',') {
        let mut parts = wanted.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f32>);
        let weight = weight.unwrap_or(0.0);
        match kind.to_ascii_lowercase().as_str() {
            "text/html" | "application/xhtml+xml" => html = weight.max(html),
            "application/json" => json = weight,
            _ => {}
        }
    }
    html > 0.0 && html >= json
}

/// What an answer says is wrong: our envelope, that of OAuth, or a plain text.
#[derive(Default)]
struct Fault {
    code: String,
    message: String,
    suggestion: String,
    correlation_id: String,
}

impl Fault {
    fn read(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            let message = String::from_utf8_lossy(body).trim().to_owned();
            return Self { message, ..Self::default() };
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match &value["error"] {
            Value::String(code) => {
                Self { code: code.clone(), message: text(&value["error_description"]), ..Self::default() }
            }
            error => Self {
                code: text(&error["code"]),
                message: text(&error["message"]),
                suggestion: text(&error["suggestion"]),
                correlation_id: text(&error["correlation_id"]),
            },
        }
    }
}

async fn error_page(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, LONGEST_SHOWN_BYTES).await.unwrap_or_default();
    let fault = Fault::read(&body);
    let title = match parts.status {
        StatusCode::UNAUTHORIZED => "Sign in with the command line",
        StatusCode::NOT_FOUND => "Nothing is here",
        StatusCode::METHOD_NOT_ALLOWED => "This address is for programs",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        status if status.is_server_error() => "Something went wrong",
        _ => "This did not work",
    };
    let message = match fault.message.as_str() {
        "" => parts.status.canonical_reason().unwrap_or("The request failed.").to_owned(),
        message => message.to_owned(),
    };
    let mut text = Vec::new();
    if !fault.suggestion.is_empty() {
        text.push(fault.suggestion);
    }
    if parts.status == StatusCode::UNAUTHORIZED {
        text.push("This address belongs to the API, which browsers cannot sign in to.".to_owned());
    }
    let mut facts = vec![("Status", parts.status.as_str().to_owned())];
    facts.extend([("Code", fault.code), ("Correlation id", fault.correlation_id)]);
    facts.retain(|(_, value)| !value.is_empty());
    let page = Page {
        title,
        notice: Some(Notice::Bad(message)),
        text,
        sections: vec![Section { facts, ..Section::new("") }],
        links: vec![("/".to_owned(), "To the home page")],
        ..Page::default()
    };
    let mut page = page.render(parts.status, "");
    // What programs and proxies act on stays.
    for name in [header::ALLOW, header::RETRY_AFTER, header::WWW_AUTHENTICATE] {
        if let Some(value) = parts.headers.get(&name) {
            page.headers_mut().insert(name, value.clone());
        }
    }
    page.headers_mut().insert(header::VARY, DECIDED_BY);
    page
}

async fn document_page(response: Response, path: &str) -> Response {
    let (mut parts, body) = response.into_parts();
    let length = http_body_length(&body);
    if length.is_none_or(|length| length > LONGEST_SHOWN_BYTES as u64) {
        parts.headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
        return Response::from_parts(parts, body);
    }
    let Ok(body) = to_bytes(body, LONGEST_SHOWN_BYTES).await else {
        return crate::error(StatusCode::BAD_GATEWAY, "The document could not be read. Try again.");
    };
    let shown = serde_json::from_slice::<Value>(&body).map(|value| format!("{value:#}"));
    let page = Page {
        title: "A document for programs",
        text: vec![format!(
            "`{path}` is JSON, shown here for reading. Programs get it as it is; `curl -O` saves it."
        )],
        document: Some(shown.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned())),
        links: vec![("/".to_owned(), "To the home page")],
        ..Page::default()
    };
    let mut page = page.render(parts.status, "");
    page.headers_mut().insert(header::VARY, DECIDED_BY);
    page
}

/// Known for everything but streams, which must not be collected.
fn http_body_length(body: &Body) -> Option<u64> {
    axum::body::HttpBody::size_hint(body).exact()
}

#[cfg(test)]
mod tests {
    use axum::{Router, middleware, response::IntoResponse as _, routing::get};
    use tower::ServiceExt as _;

    use super::*;

    const CHROME: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";

    #[test]
    fn a_person_is_told_from_a_program() {
        let cases: &[(&[(&str, &str)], bool)] = &[
            (&[("accept", CHROME)], true),
            (&[("accept", CHROME), ("sec-fetch-mode", "navigate")], true),
            (&[("accept", "*/*"), ("sec-fetch-mode", "navigate")], true),
            (&[("accept", "text/html"), ("sec-fetch-mode", "cors")], false),
            (&[("accept", CHROME), ("authorization", "Bearer x")], false),
            (&[("accept", "text/html;q=0.5, application/json")], false),
            (&[("accept", "text/html;q=0, */*")], false),
            (&[("accept", "TEXT/HTML ; q=0.5, application/json;q=0.4")], true),
            (&[("accept", "application/json")], false),
            (&[("accept", "*/*")], false),
            (&[], false),
        ];
        for (headers, expected) in cases {
            let mut map = HeaderMap::new();
            for (name, value) in *headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(is_navigation(&map), *expected, "{headers:?}");
        }
    }

    async fn answer(
        response: impl Fn() -> Response + Clone + Send + Sync + 'static,
        accept: &str,
    ) -> (Response, String) {
        let router = Router::new()
            .route("/x", get(move || async move { response() }))
            .layer(middleware::from_fn(answer_with_pages));
        let request = Request::get("/x").header("accept", accept).body(Body::empty()).unwrap();
        let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
        let text = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
        (Response::from_parts(parts, Body::empty()), text)
    }

    fn json(status: u16, body: &'static str) -> Response {
        (
            StatusCode::from_u16(status).unwrap(),
            [("content-type", "application/json"), ("retry-after", "7")],
            body,
        )
            .into_response()
    }

    #[tokio::test]
    async fn each_kind_of_error_becomes_a_page_with_its_code_and_message() {
        let envelope = r#"{"error":{"code":"not_found","message":"No <b> path.","suggestion":"Check it.","correlation_id":"c-1"}}"#;
        let (response, html) = answer(move || json(404, envelope), CHROME).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (404, &HeaderValue::from_static("7"))
        );
        for part in ["not_found", "No &lt;b&gt; path.", "Check it.", "c-1", "404", "<!doctype html>"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let (_, html) =
            answer(|| json(400, r#"{"error":"invalid_grant","error_description":"Used."}"#), CHROME).await;
        assert!(html.contains("invalid_grant") && html.contains("Used."), "{html}");
        let (response, html) =
            answer(|| (StatusCode::SERVICE_UNAVAILABLE, "Timed out.\n").into_response(), CHROME).await;
        assert!(response.status() == 503 && html.contains("Timed out."), "{html}");
        let (_, html) = answer(|| StatusCode::METHOD_NOT_ALLOWED.into_response(), CHROME).await;
        assert!(html.contains("Method Not Allowed") && !html.contains("{\""), "{html}");
    }

    #[tokio::test]
    async fn the_title_says_what_kind_of_error_it_is_and_the_page_leads_home() {
        const API: &str = "which browsers cannot sign in to";
        for (status, title) in [
            (401, "Sign in with the command line"),
            (404, "Nothing is here"),
            (405, "This address is for programs"),
            (429, "Too many requests"),
            (500, "Something went wrong"),
            (503, "Something went wrong"),
            (409, "This did not work"),
        ] {
            let (_, html) = answer(move || json(status, "{}"), CHROME).await;
            assert!(html.contains(&format!("<h1>{title}</h1>")), "{status}: {html}");
            assert_eq!(html.contains(API), status == 401, "{status}: {html}");
            assert!(html.contains("To the home page"), "{status}: {html}");
        }
    }

    #[tokio::test]
    async fn a_document_is_shown_up_to_four_mebibytes_and_a_longer_one_is_saved() {
        const LONGEST: usize = 4_194_304;
        for (length, shown) in [(LONGEST, true), (LONGEST + 1, false)] {
            let body = move || ([("content-type", "application/json")], " ".repeat(length)).into_response();
            let (response, html) = answer(body, CHROME).await;
            assert_eq!(html.contains("A document for programs"), shown, "{length}");
            assert_eq!(response.headers().contains_key("content-disposition"), !shown, "{length}");
        }
        let (_, html) = answer(|| json(200, "{}"), CHROME).await;
        for part in ["shown here for reading", "To the home page"] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[tokio::test]
    async fn programs_get_the_bytes_that_were_sent() {
        let body = r#"{"error":{"code":"not_found"}}"#;
        for accept in ["*/*", "application/json", ""] {
            let (response, text) = answer(move || json(404, body), accept).await;
            assert_eq!(
                (text.as_str(), &response.headers()["content-type"]),
                (body, &HeaderValue::from_static("application/json"))
            );
            assert!(!response.headers().contains_key("vary"));
        }
    }

    #[tokio::test]
    async fn a_document_is_shown_and_a_stream_is_saved() {
        let (response, html) = answer(|| json(200, r#"{"a":"<script>"}"#), CHROME).await;
        assert!(response.status() == 200 && html.contains("&lt;script&gt;"), "{html}");
        let stream = || {
            let chunks = http_body_of_unknown_length();
            ([("content-type", "application/json")], chunks).into_response()
        };
        let (response, text) = answer(stream, CHROME).await;
        assert_eq!(
            (text.as_str(), &response.headers()["content-disposition"]),
            ("{}", &HeaderValue::from_static("attachment"))
        );
        let (_, text) = answer(|| ([("content-type", "text/plain")], "hello").into_response(), CHROME).await;
        assert_eq!(text, "hello");
    }

    fn http_body_of_unknown_length() -> Body {
        Body::from_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("{}")]))
    }
}
