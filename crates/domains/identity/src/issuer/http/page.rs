//! Pages: small, readable without script or style, and loading nothing.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, StatusCode, header};
use kernel::text::html_escape;

const STYLE: &str = "\
:root{color-scheme:light dark;--accent:#1f5fbf;--line:#8886;--error:#b3261e}\
*{box-sizing:border-box}\
body{margin:0;min-height:100vh;display:grid;place-items:center;font:16px/1.5 system-ui,sans-serif}\
main{width:min(25rem,100vw);padding:1.5rem}\
h1{font-size:1.5rem;margin:0 0 1rem}\
.brand{font-weight:700;letter-spacing:.02em;margin:0 0 1.5rem}\
label{display:block;margin:.75rem 0 .25rem}\
input{width:100%;padding:.6rem;font:inherit;border:1px solid var(--line);border-radius:.4rem}\
button{width:100%;margin-top:1.25rem;padding:.65rem;font:inherit;font-weight:600;border:1px solid var(--accent);border-radius:.4rem;background:var(--accent);color:#fff;cursor:pointer}\
button.plain{background:none;color:inherit;border-color:var(--line);margin-top:.75rem}\
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}\
.error{border-left:4px solid var(--error);padding:.25rem .75rem}\
.code{font:600 1.5rem/1.2 ui-monospace,monospace;letter-spacing:.1em}\
.hint{opacity:.8;font-size:.9rem}";

static STYLE_HASH: LazyLock<String> = LazyLock::new(|| BASE64_STANDARD.encode(kernel::digest::sha256(STYLE)));

pub(super) struct Field<'a> {
    pub label: &'a str,
    pub name: &'a str,
    pub kind: &'a str,
    pub autocomplete: &'a str,
    pub value: &'a str,
    pub hint: &'a str,
    pub required: bool,
    pub read_only: bool,
}

impl<'a> Field<'a> {
    pub fn email(value: &'a str) -> Self {
        Self::new("E-mail address", "email", "email", "username").value(value)
    }

    pub fn password(label: &'a str, name: &'a str, autocomplete: &'a str) -> Self {
        Self::new(label, name, "password", autocomplete)
    }

    pub fn new(label: &'a str, name: &'a str, kind: &'a str, autocomplete: &'a str) -> Self {
        Self { label, name, kind, autocomplete, value: "", hint: "", required: true, read_only: false }
    }

    pub fn value(self, value: &'a str) -> Self {
        Self { value, ..self }
    }

    pub fn hint(self, hint: &'a str) -> Self {
        Self { hint, ..self }
    }

    pub fn optional(self) -> Self {
        Self { required: false, ..self }
    }

    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    fn html(&self) -> String {
        let Self { label, name, kind, autocomplete, .. } = self;
        let value = html_escape(self.value);
        let (described, hint) = match self.hint {
            "" => (String::new(), String::new()),
            hint => (
                format!(" aria-describedby=\"{name}-hint\""),
                format!("<div class=\"hint\" id=\"{name}-hint\">{}</div>", html_escape(hint)),
            ),
        };
        let required = if self.required { " required" } else { "" };
        let read_only = if self.read_only { " readonly" } else { "" };
        format!(
            "<label for=\"{name}\">{}</label><input id=\"{name}\" name=\"{name}\" type=\"{kind}\" autocomplete=\"{autocomplete}\" \
             maxlength=\"512\" value=\"{value}\"{described}{required}{read_only}>{hint}",
            html_escape(label)
        )
    }
}

/// A button and the value of the field `decision` that it sends.
pub(super) struct Button<'a> {
    pub text: &'a str,
    pub decision: &'a str,
    pub plain: bool,
}

/// One form; what it shows is escaped here and nowhere else.
#[derive(Default)]
pub(super) struct Page<'a> {
    pub title: &'a str,
    pub error: Option<&'a str>,
    /// Paragraphs above the form.
    pub text: Vec<String>,
    /// Shown large.
    pub code: Option<&'a str>,
    /// Where the form goes; a page without one has no form.
    pub action: Option<&'a str>,
    pub by_get: bool,
    pub hidden: Vec<(&'a str, String)>,
    pub fields: Vec<Field<'a>>,
    pub buttons: Vec<Button<'a>>,
    /// (address, text) below the form.
    pub links: Vec<(String, &'a str)>,
    /// Besides ourselves, where submitting the form may end.
    pub leads_to: Option<String>,
}

impl Page<'_> {
    pub fn render(self, status: StatusCode, form_token: &str) -> Response {
        let mut body = format!("<h1>{}</h1>", html_escape(self.title));
        if let Some(error) = self.error {
            body += &format!("<p class=\"error\" role=\"alert\">{}</p>", html_escape(error));
        }
        for paragraph in &self.text {
            body += &format!("<p>{}</p>", html_escape(paragraph));
        }
        if let Some(code) = self.code {
            body += &format!("<p class=\"code\">{}</p>", html_escape(code));
        }
        if let Some(action) = self.action {
            let method = if self.by_get { "get" } else { "post" };
            body += &format!("<form method=\"{method}\" action=\"{action}\">");
            if !self.by_get {
                body += &format!("<input type=\"hidden\" name=\"form_token\" value=\"{form_token}\">");
            }
            for (name, value) in &self.hidden {
                body += &format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", html_escape(value));
            }
            body += &self.fields.iter().map(Field::html).collect::<String>();
            for button in &self.buttons {
                let class = if button.plain { " class=\"plain\"" } else { "" };
                let decision = match button.decision {
                    "" => String::new(),
                    value => format!(" name=\"decision\" value=\"{value}\""),
                };
                body += &format!(
                    "<button type=\"submit\"{class}{decision}>{}</button>",
                    html_escape(button.text)
                );
            }
            body += "</form>";
        }
        for (address, text) in &self.links {
            body += &format!("<p><a href=\"{}\">{}</a></p>", html_escape(address), html_escape(text));
        }
        document(status, self.title, &body, self.leads_to.as_deref())
    }
}

fn document(status: StatusCode, title: &str, body: &str, leads_to: Option<&str>) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{} · GPUaaS</title><style>{STYLE}</style></head>\
         <body><main><p class=\"brand\">GPUaaS</p>{body}</main></body></html>",
        html_escape(title)
    );
    let csp = format!(
        "default-src 'none'; style-src 'sha256-{}'; form-action 'self' {}; frame-ancestors 'none'; base-uri 'none'",
        *STYLE_HASH,
        leads_to.unwrap_or_default()
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    // An origin is ASCII; should it ever not be, the page must still not go out without a policy.
    let csp = HeaderValue::from_str(&csp).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    headers.insert(header::CONTENT_SECURITY_POLICY, csp);
    response
}

/// A page that only says what went wrong.
pub(super) fn error(status: StatusCode, text: &str) -> Response {
    let page = Page { title: "Error", error: Some(text), ..Page::default() };
    page.render(status, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_people_type_is_shown_as_text() {
        let hostile = "\"><script>alert('1')</script>&";
        let page = Page {
            title: hostile,
            error: Some(hostile),
            text: vec![hostile.to_owned()],
            action: Some("/x"),
            hidden: vec![("h", hostile.to_owned())],
            fields: vec![Field::email(hostile)],
            links: vec![(hostile.to_owned(), "link")],
            ..Page::default()
        };
        let response = page.render(StatusCode::OK, "t");
        assert!(response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("'none'"));
        let bytes = axum::body::to_bytes(response.into_body(), 100_000).await.unwrap();
        let html = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(!html.contains("<script") && !html.contains("alert('"), "{html}");
        assert_eq!(html.matches("&lt;script&gt;").count(), 7, "{html}");
    }
}
