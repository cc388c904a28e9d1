//! A person at a browser, without the browser: follows redirects, keeps cookies, fills in forms. Enough to
//! sign in at any OpenID provider whose pages work without scripts.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use url::Url;

pub struct Browser {
    http: reqwest::Client,
    cookies: BTreeMap<String, String>,
}

pub struct Page {
    pub url: Url,
    pub status: u16,
    pub html: String,
}

impl Default for Browser {
    fn default() -> Self {
        let http = crate::http_client().build().expect("HTTP client");
        Self { http, cookies: BTreeMap::new() }
    }
}

impl Browser {
    /// A browser at another address of this machine, such as 127.0.0.2.
    pub fn at_address(address: &str) -> Self {
        let address: std::net::IpAddr = address.parse().expect("an IP address");
        let http = crate::http_client().local_address(address).build().expect("HTTP client");
        Self { http, cookies: BTreeMap::new() }
    }

    /// Opens a page, following redirects until one leaves for `stop_at` (which is then returned unopened).
    pub async fn open(&mut self, url: Url, stop_at: Option<&str>) -> Page {
        let request = self.http.get(url.clone());
        self.follow(request, url, stop_at).await
    }

    /// Submits the first form of a page whose action contains `action`, with `fields` filled in.
    pub async fn submit(
        &mut self,
        page: &Page,
        action: &str,
        fields: &[(&str, &str)],
        stop_at: Option<&str>,
    ) -> Page {
        let form = forms(&page.html)
            .into_iter()
            .find(|form| {
                form.action.contains(action) || (form.action.is_empty() && page.url.path().contains(action))
            })
            .unwrap_or_else(|| panic!("no form for {action} on {}:\n{}", page.url, page.html));
        let mut target = match form.action.as_str() {
            "" => page.url.clone(),
            action => page.url.join(action).expect("form action"),
        };
        let mut values = form.fields;
        for (name, value) in fields {
            values.insert((*name).to_owned(), (*value).to_owned());
        }
        if form.by_get {
            target.query_pairs_mut().clear().extend_pairs(&values);
            return self.open(target, stop_at).await;
        }
        let request = self.http.post(target.clone()).form(&values);
        self.follow(request, target, stop_at).await
    }

    async fn follow(
        &mut self,
        mut request: reqwest::RequestBuilder,
        mut url: Url,
        stop_at: Option<&str>,
    ) -> Page {
        for _ in 0..12 {
            let cookies: Vec<String> = self.cookies.iter().map(|(k, v)| format!("{k}={v}")).collect();
            if !cookies.is_empty() {
                request = request.header("cookie", cookies.join("; "));
            }
            let response = request.send().await.unwrap_or_else(|e| panic!("{url}: {e}"));
            for cookie in response.headers().get_all("set-cookie") {
                let pair = cookie.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
                if let Some((name, value)) = pair.split_once('=') {
                    self.cookies.insert(name.trim().to_owned(), value.trim().to_owned());
                }
            }
            let status = response.status();
            let location =
                response.headers().get("location").and_then(|l| l.to_str().ok()).map(str::to_owned);
            let (true, Some(location)) = (status.is_redirection(), location) else {
                return Page {
                    url,
                    status: status.as_u16(),
                    html: response.text().await.unwrap_or_default(),
                };
            };
            url = url.join(&location).expect("redirect target");
            if stop_at.is_some_and(|stop| url.as_str().starts_with(stop)) {
                return Page { url, status: status.as_u16(), html: String::new() };
            }
            request = self.http.get(url.clone());
        }
        panic!("too many redirects at {url}");
    }
}

struct Form {
    action: String,
    by_get: bool,
    /// Its named inputs with their values.
    fields: BTreeMap<String, String>,
}

/// Every form of a page.
fn forms(html: &str) -> Vec<Form> {
    html.split("<form")
        .skip(1)
        .map(|rest| {
            let (head, body) = rest.split_once('>').unwrap_or((rest, ""));
            let body = body.split("</form").next().unwrap_or_default();
            let inputs = ["<input", "<button"].into_iter().flat_map(|tag| body.split(tag).skip(1));
            let fields = inputs
                .filter_map(|input| {
                    let tag = input.split('>').next().unwrap_or_default();
                    Some((attribute(tag, "name")?, attribute(tag, "value").unwrap_or_default()))
                })
                .collect();
            Form {
                action: attribute(head, "action").unwrap_or_default(),
                by_get: attribute(head, "method").is_some_and(|method| method == "get"),
                fields,
            }
        })
        .collect()
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let start = tag.find(&format!("{name}=\""))? + name.len() + 2;
    let value = tag[start..].split('"').next()?;
    Some(
        value
            .replace("&amp;", "&")
            .replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&lt;", "<")
            .replace("&gt;", ">"),
    )
}

/// A PKCE pair: (verifier, challenge).
pub fn pkce(seed: &str) -> (String, String) {
    let verifier = URL_SAFE_NO_PAD.encode(Sha256::digest(seed.as_bytes()));
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    (verifier, challenge)
}
