//! The pages of the server, in one look: sign-in, invitations, the way back from a checkout, the home page and errors.
//!
//! A page is data ([`Page`]); this crate alone turns it into HTML, so text is escaped in one place. Pages need no
//! script, load nothing from anywhere, and say so in their content security policy. The exception is [`ScriptPage`], the
//! frame of pages that a script makes.
//!
//! [`answer_with_pages`] is the layer that keeps browsers off JSON: whatever serves a request, a person who opened its
//! address gets a page.

mod form;
mod navigation;
mod script;
mod style;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use kernel::text::html_escape;

pub use form::{Button, Field};
pub use navigation::answer_with_pages;
pub use script::ScriptPage;
use style::{STYLE, STYLE_HASH};

/// How something stands, as a line with a coloured edge. The words carry the meaning, the colour repeats it.
pub enum Notice {
    Good(String),
    Wait(String),
    Bad(String),
}

/// A part of a page below its title.
pub struct Section<'a> {
    /// Without one, the section has no heading.
    pub title: &'a str,
    pub text: Vec<String>,
    /// (name, value), as a table of two columns.
    pub facts: Vec<(&'a str, String)>,
    /// (what it does, command), numbered.
    pub commands: Vec<(&'a str, String)>,
}

impl<'a> Section<'a> {
    pub fn new(title: &'a str) -> Self {
        Self { title, text: Vec::new(), facts: Vec::new(), commands: Vec::new() }
    }

    fn html(&self) -> String {
        let mut html = match self.title {
            "" => String::new(),
            title => format!("<h2>{}</h2>", html_escape(title)),
        };
        html += &self.text.iter().map(|text| paragraph(text)).collect::<String>();
        if !self.facts.is_empty() {
            let row = |(name, value): &(&str, String)| {
                format!("<dt>{}</dt><dd>{}</dd>", html_escape(name), html_escape(value))
            };
            html += &format!("<dl>{}</dl>", self.facts.iter().map(row).collect::<String>());
        }
        if !self.commands.is_empty() {
            let row = |(what, command): &(&str, String)| {
                format!("<li>{}<pre>{}</pre></li>", html_escape(what), html_escape(command))
            };
            html += &format!("<ol>{}</ol>", self.commands.iter().map(row).collect::<String>());
        }
        html
    }
}

/// The page is loaded again from `address`. Whoever makes the page bounds how often.
pub struct Refresh {
    pub after_seconds: u32,
    pub address: String,
}

/// One page; what it shows is escaped here and nowhere else.
#[derive(Default)]
pub struct Page<'a> {
    pub title: &'a str,
    pub error: Option<&'a str>,
    pub notice: Option<Notice>,
    /// Paragraphs above the form. Text between backticks is shown as code.
    pub text: Vec<String>,
    /// Shown large.
    pub code: Option<&'a str>,
    /// Where the form goes; a page without one has no form.
    pub action: Option<&'a str>,
    pub by_get: bool,
    pub hidden: Vec<(&'a str, String)>,
    pub fields: Vec<Field<'a>>,
    pub buttons: Vec<Button<'a>>,
    pub sections: Vec<Section<'a>>,
    /// A text of a program, as it is.
    pub document: Option<String>,
    /// (address, text) below the form.
    pub links: Vec<(String, &'a str)>,
    /// Besides ourselves, where submitting the form may end.
    pub leads_to: Option<String>,
    pub refresh: Option<Refresh>,
}

impl Page<'_> {
    pub fn render(self, status: StatusCode, form_token: &str) -> Response {
        let mut body = format!("<h1>{}</h1>", html_escape(self.title));
        if let Some(error) = self.error {
            body += &format!("<p class=\"error\" role=\"alert\">{}</p>", html_escape(error));
        }
        if let Some(notice) = &self.notice {
            let (class, text) = match notice {
                Notice::Good(text) => ("good", text),
                Notice::Wait(text) => ("wait", text),
                Notice::Bad(text) => ("error", text),
            };
            body += &format!("<p class=\"{class}\" role=\"status\">{}</p>", html_escape(text));
        }
        body += &self.text.iter().map(|text| paragraph(text)).collect::<String>();
        if let Some(code) = self.code {
            body += &format!("<p class=\"code\">{}</p>", html_escape(code));
        }
        body += &self.form(form_token);
        body += &self.sections.iter().map(Section::html).collect::<String>();
        if let Some(document) = &self.document {
            body += &format!("<pre>{}</pre>", html_escape(document));
        }
        for (address, text) in &self.links {
            body += &format!("<p><a href=\"{}\">{}</a></p>", html_escape(address), html_escape(text));
        }
        self.document(status, &body)
    }

    fn form(&self, form_token: &str) -> String {
        let Some(action) = self.action else { return String::new() };
        let method = if self.by_get { "get" } else { "post" };
        let mut form = format!("<form method=\"{method}\" action=\"{action}\">");
        if !self.by_get {
            form += &format!("<input type=\"hidden\" name=\"form_token\" value=\"{form_token}\">");
        }
        for (name, value) in &self.hidden {
            form += &format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", html_escape(value));
        }
        form += &self.fields.iter().map(Field::html).collect::<String>();
        form += &self.buttons.iter().map(Button::html).collect::<String>();
        form + "</form>"
    }

    fn document(&self, status: StatusCode, body: &str) -> Response {
        let refresh = self.refresh.as_ref().map(|refresh| {
            let (seconds, address) = (refresh.after_seconds, html_escape(&refresh.address));
            format!("<meta http-equiv=\"refresh\" content=\"{seconds};url={address}\">")
        });
        // Commands and tables need more room than a form.
        let wide = !self.sections.is_empty() || self.document.is_some();
        let html = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">{}\
             <title>{} · GPUaaS</title><style>{STYLE}</style></head>\
             <body><main{}><p class=\"brand\"><a href=\"/\">GPUaaS</a></p>{body}</main></body></html>",
            refresh.unwrap_or_default(),
            html_escape(self.title),
            if wide { " class=\"wide\"" } else { "" },
        );
        let csp = format!(
            "default-src 'none'; style-src 'sha256-{}'; form-action 'self' {}; frame-ancestors 'none'; base-uri 'none'",
            *STYLE_HASH,
            self.leads_to.as_deref().unwrap_or_default()
        );
        respond(status, html, &csp)
    }
}

fn respond(status: StatusCode, html: String, policy: &str) -> Response {
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    for (name, value) in FIXED_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // An origin is ASCII; should it ever not be, the page must still not go out without a policy.
    let policy = HeaderValue::from_str(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// A page is for whoever asked, now: no cache keeps it, no other site frames it or learns its address.
const FIXED_HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CACHE_CONTROL, "no-store"),
    (header::PRAGMA, "no-cache"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Escaped; what stands between two backticks is code.
fn paragraph(text: &str) -> String {
    let mut parts = text.split('`');
    let mut html = html_escape(parts.next().unwrap_or_default());
    while let Some(code) = parts.next() {
        match parts.next() {
            Some(rest) => html += &format!("<code>{}</code>{}", html_escape(code), html_escape(rest)),
            // A single backtick is one.
            None => html += &format!("`{}", html_escape(code)),
        }
    }
    format!("<p>{html}</p>")
}

/// A page that only says what went wrong.
pub fn error(status: StatusCode, text: &str) -> Response {
    let page = Page {
        title: "This did not work",
        error: Some(text),
        text: vec!["Go back and try again. If that fails too, begin again where you came from.".to_owned()],
        sections: vec![Section { facts: vec![("Status", status.as_str().to_owned())], ..Section::new("") }],
        links: vec![("/".to_owned(), "To the home page")],
        ..Page::default()
    };
    page.render(status, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn html(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 100_000).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn what_people_type_is_shown_as_text() {
        let hostile = "\"><script>alert('1')</script>&";
        let owned = || hostile.to_owned();
        let section = Section {
            title: hostile,
            text: vec![owned(), format!("`{hostile}` and ` {hostile}")],
            facts: vec![(hostile, owned())],
            commands: vec![(hostile, owned())],
        };
        let page = Page {
            title: hostile,
            error: Some(hostile),
            notice: Some(Notice::Bad(owned())),
            text: vec![owned()],
            code: Some(hostile),
            action: Some("/x"),
            hidden: vec![("h", owned())],
            fields: vec![Field::email(hostile)],
            buttons: vec![Button { text: hostile, decision: "", plain: true }],
            sections: vec![section],
            document: Some(owned()),
            links: vec![(owned(), hostile)],
            refresh: Some(Refresh { after_seconds: 3, address: owned() }),
            ..Page::default()
        };
        let response = page.render(StatusCode::OK, "t");
        assert!(response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("'none'"));
        let html = html(response).await;
        assert!(!html.contains("<script") && !html.contains("alert('"), "{html}");
        assert_eq!(html.matches("&lt;script&gt;").count(), 21, "{html}");
    }

    #[test]
    fn code_stands_between_backticks_and_a_single_backtick_stays() {
        assert_eq!(paragraph("run `a <b>` now"), "<p>run <code>a &lt;b&gt;</code> now</p>");
        assert_eq!(paragraph("it`s"), "<p>it`s</p>");
    }

    #[tokio::test]
    async fn a_page_allows_its_own_style_and_nothing_else() {
        let response = error(StatusCode::NOT_FOUND, "No.");
        assert_eq!(response.status(), 404);
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        let html = html(response).await;
        let style = html.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        let digest = kernel::digest::sha256(style);
        let hash = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, digest);
        assert!(policy.starts_with(&format!("default-src 'none'; style-src 'sha256-{hash}';")), "{policy}");
        assert!(!policy.contains("unsafe") && !html.contains("style="), "{policy}");
    }
}
