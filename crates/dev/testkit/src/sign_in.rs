//! Signing in at the built-in issuer, as the CLI and a person at a browser do it together.

use std::path::Path;

use serde_json::{Value, json};
use url::Url;

use crate::{Api, Browser, Person, World, pkce};

const CALLBACK: &str = "http://127.0.0.1:49152/callback";
/// What one-time passwords are changed to.
pub const NEW_PASSWORD: &str = "correct horse battery staple 1"; // secret-scan: allow

/// Authorization code with PKCE; gives the token response. A one-time password is changed on the way.
pub async fn sign_in(base: &str, email: &str, password: &str) -> Value {
    let (verifier, challenge) = pkce(email);
    let mut url = Url::parse(&format!("{base}/auth/authorize")).expect("a URL");
    url.query_pairs_mut().extend_pairs([
        ("client_id", "gpuaas-cli"),
        ("response_type", "code"),
        ("scope", "openid"),
        ("redirect_uri", CALLBACK),
        ("state", "s"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ]);
    let mut browser = Browser::default();
    let login = browser.open(url, Some(CALLBACK)).await;
    let mut page = browser
        .submit(&login, "/auth/login", &[("email", email), ("password", password)], Some(CALLBACK))
        .await;
    if page.url.path().starts_with("/auth/password") {
        let fields = [("current", password), ("new", NEW_PASSWORD), ("again", NEW_PASSWORD)];
        page = browser.submit(&page, "/auth/password", &fields, Some(CALLBACK)).await;
    }
    let code = page.url.query_pairs().find(|(k, _)| k == "code").map(|(_, v)| v.into_owned());
    let code = code.unwrap_or_else(|| panic!("no code at {}: {}", page.url, page.html));
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", "gpuaas-cli"),
        ("code", &code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", &verifier),
    ];
    let api = Api::new(base, None);
    api.send(api.request(reqwest::Method::POST, "/auth/token").form(&form)).await.expect(200)
}

/// Signs in with the one-time password that the server left in its data directory.
pub async fn sign_in_first_admin(base: &str, data_dir: &Path) -> Api {
    let file = data_dir.join("first-admin-password");
    let password = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let tokens = sign_in(base, "admin@localhost", password.trim()).await;
    Api::new(base, tokens["access_token"].as_str().map(str::to_owned))
}

impl World {
    /// Somebody with an account at the built-in issuer, and the account.
    pub async fn local_person(&self, name: &str) -> (Person, String) {
        let email = format!("{name}@example.org");
        let made = self.admin.post("/api/v1/platform/accounts", json!({ "email": email })).await.expect(201);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let tokens = sign_in(&self.server.base, &email, &text(&made["one_time_password"])).await;
        let api = self.server.api().with_token(text(&tokens["access_token"]));
        let id = text(&api.get("/api/v1/me").await.expect(200)["id"]);
        let person = Person { name: name.to_owned(), id, org_id: String::new(), api };
        (person, text(&made["account"]["id"]))
    }
}
