//! What the tests of issuer and authentication share: a database, a clock moved by hand, the issuer on a
//! port, and an external issuer that can be broken.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as B64};
use endpoint::{Authenticator as _, Caller, ClientInfo};
use identity::{
    authn::{Authn, TrustedIssuer},
    issuer::{Argon2Params, Issuer, IssuerConfig, Rates},
    service::policy_cache::Policies,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use kernel::{Ambient, Code, Failure, ManualClock, Secret};
use serde_json::{Value, json};
use sqlx::Executor as _;
use testkit::{Browser, Page, TestDb, pkce};
use url::Url;

pub fn http() -> reqwest::Client {
    testkit::http_client().build().unwrap()
}

pub const CALLBACK: &str = "http://127.0.0.1:9/callback";
pub const PASSWORD: &str = "a long enough password";

pub struct Kit {
    pub clock: Arc<ManualClock>,
    pub issuer: Issuer,
    pub authn: Authn,
    pub base: String,
    pub http: reqwest::Client,
    pub db: TestDb,
}

pub fn ambient() -> (Arc<ManualClock>, Ambient) {
    let clock = ManualClock::starting_at(Ambient::system().now());
    (clock.clone(), clock.ambient())
}

pub fn config(base: &str) -> IssuerConfig {
    let many = std::num::NonZeroU32::new(100_000).unwrap();
    IssuerConfig {
        self_signup: true,
        console_redirects: vec![format!("{base}/console/callback")],
        argon2: Argon2Params { memory_kib: 8, iterations: 1, parallelism: 1 },
        rates: Rates { sign_in: many, other: many },
        ..IssuerConfig::new(base, Secret::new([7; 32]))
    }
}

impl Kit {
    pub async fn start() -> Self {
        Self::start_with(|config| config).await
    }

    pub async fn start_with(change: impl FnOnce(IssuerConfig) -> IssuerConfig) -> Self {
        let (clock, ambient) = ambient();
        let db = TestDb::create_with(ambient).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let policies = Arc::new(Policies::new(db.db.clone()));
        let issuer = Issuer::new(db.db.clone(), change(config(&base)), policies);
        let authn = Authn::new(db.db.clone(), vec![issuer.trusted()]);
        let service = issuer.router().into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { clock, issuer, authn, base, http: http(), db }
    }

    pub fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.base)).unwrap()
    }

    /// Makes an account the way people do; the browser is then signed in.
    pub async fn sign_up(&self, browser: &mut Browser, email: &str) {
        let page = browser.open(self.url("/auth/signup"), None).await;
        let fields = [("email", email), ("name", "Ann Lee"), ("password", PASSWORD), ("again", PASSWORD)];
        let page = browser.submit(&page, "/auth/signup", &fields, None).await;
        assert_eq!(page.status, 200, "{}", page.html);
        assert!(page.html.contains("You are signed in"), "{}", page.html);
    }

    pub async fn sign_in(&self, browser: &mut Browser, email: &str, password: &str) -> Page {
        let page = self.sign_in_form(browser).await;
        self.sign_in_submit(browser, &page, email, password).await
    }

    pub async fn sign_in_form(&self, browser: &mut Browser) -> Page {
        browser.open(self.url("/auth/login?continue=/auth/device"), None).await
    }

    pub async fn sign_in_submit(
        &self,
        browser: &mut Browser,
        form: &Page,
        email: &str,
        password: &str,
    ) -> Page {
        browser.submit(form, "/auth/login", &[("email", email), ("password", password)], None).await
    }

    pub fn authorize_url(&self, challenge: &str, more: &[(&str, &str)]) -> Url {
        let mut url = self.url("/auth/authorize");
        let mut params = vec![
            ("response_type", "code"),
            ("client_id", "gpuaas-cli"),
            ("redirect_uri", CALLBACK),
            ("scope", "openid email profile offline_access"),
            ("state", "st"),
            ("nonce", "no"),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256"),
        ];
        for (name, value) in more {
            params.retain(|(n, _)| n != name);
            if !value.is_empty() {
                params.push((name, value));
            }
        }
        url.query_pairs_mut().extend_pairs(params);
        url
    }

    /// Goes through an authorization request with a browser that was signed in before: its person is asked.
    pub async fn authorize(&self, browser: &mut Browser, url: Url, decision: &str) -> Page {
        let page = browser.open(url, Some(CALLBACK)).await;
        assert!(page.html.contains("on this computer?"), "{} {}", page.url, page.html);
        browser.submit(&page, "/auth/authorize", &[("decision", decision)], Some(CALLBACK)).await
    }

    /// A code for a browser that is signed in, and its verifier.
    pub async fn code(&self, browser: &mut Browser, seed: &str) -> (String, String) {
        let (verifier, challenge) = pkce(seed);
        let page = self.authorize(browser, self.authorize_url(&challenge, &[]), "continue").await;
        (param(&page.url, "code").unwrap_or_else(|| panic!("{}", page.html)), verifier)
    }

    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> (u16, Value) {
        let response = self.http.post(self.url(path)).form(form).send().await.unwrap();
        assert_eq!(response.headers()["cache-control"], "no-store");
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default())
    }

    pub async fn exchange(&self, code: &str, verifier: &str) -> (u16, Value) {
        let form = [
            ("grant_type", "authorization_code"),
            ("client_id", "gpuaas-cli"),
            ("redirect_uri", CALLBACK),
            ("code", code),
            ("code_verifier", verifier),
        ];
        self.post("/auth/token", &form).await
    }

    /// Tokens of a new session.
    pub async fn tokens(&self, browser: &mut Browser, seed: &str) -> Value {
        let (code, verifier) = self.code(browser, seed).await;
        let (status, tokens) = self.exchange(&code, &verifier).await;
        assert_eq!(status, 200, "{tokens}");
        tokens
    }

    pub async fn refresh(&self, token: &Value) -> (u16, Value) {
        let token = token.as_str().unwrap();
        let form = [("grant_type", "refresh_token"), ("client_id", "gpuaas-cli"), ("refresh_token", token)];
        self.post("/auth/token", &form).await
    }

    pub async fn who(&self, token: &Value) -> Result<Caller, Code> {
        who(&self.authn, token.as_str().unwrap()).await
    }

    pub fn advance(&self, seconds: i64) {
        self.clock.advance(chrono::TimeDelta::seconds(seconds));
    }

    /// Time passes for budgets of guesses, which are of the database's clock.
    pub async fn guesses_age(&self, seconds: i64) {
        let aged = "UPDATE issuer_guesses SET spent_until = spent_until - make_interval(secs => ";
        sql(&self.db, &format!("{aged}{seconds})")).await;
    }

    pub async fn count(&self, sql: &str) -> i64 {
        count(&self.db, sql).await
    }
}

pub async fn count(db: &TestDb, sql: &str) -> i64 {
    db.one(sql).await
}

/// What a superuser changes behind everybody's back.
pub async fn sql(db: &TestDb, sql: &str) {
    db.conn(pg::Roles::Admin).await.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.expect(sql);
}

pub fn param(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The caller, or the code of the refusal.
pub async fn who(authn: &Authn, token: &str) -> Result<Caller, Code> {
    let client = ClientInfo { source_ip: Some("192.0.2.1".to_owned()), user_agent: Some("test".to_owned()) };
    authn.authenticate(token, &client).await.map_err(|failure| match failure {
        Failure::Problem(problem) => problem.code,
        internal => panic!("{internal:?}"),
    })
}

pub fn user_of(caller: &Caller) -> uuid::Uuid {
    caller.user().expect("a person").uuid()
}

/// The claims of a token, unverified.
pub fn claims(token: &Value) -> Value {
    let part = token.as_str().unwrap().split('.').nth(1).unwrap().to_owned();
    serde_json::from_slice(&B64.decode(part).unwrap()).unwrap()
}

pub fn kid(token: &Value) -> String {
    jsonwebtoken::decode_header(token.as_str().unwrap()).unwrap().kid.unwrap()
}

pub struct SigningKey {
    pub kid: String,
    pub private: EncodingKey,
    pub point: Vec<u8>,
}

impl SigningKey {
    pub fn new(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let private = EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref());
        Self { kid: kid.to_owned(), private, point: pair.public_key().as_ref().to_vec() }
    }

    pub fn jwk(&self) -> Value {
        let (x, y) = (B64.encode(&self.point[1..33]), B64.encode(&self.point[33..65]));
        json!({ "kty": "EC", "crv": "P-256", "kid": self.kid, "x": x, "y": y })
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.kid.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.private).unwrap()
    }
}

#[derive(Default)]
pub struct IdpState {
    pub down: AtomicBool,
    pub fetched: AtomicUsize,
    pub keys: Mutex<Vec<Value>>,
}

/// An external issuer that can be broken and counts how often its keys are fetched.
pub struct Idp {
    pub issuer: String,
    pub state: Arc<IdpState>,
    pub key: SigningKey,
}

pub const AUDIENCE: &str = "gpuaas-test";

impl Idp {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let key = SigningKey::new("k1");
        let state = Arc::new(IdpState { keys: Mutex::new(vec![key.jwk()]), ..IdpState::default() });
        let discovery = json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/jwks") });
        let jwks = |State(state): State<Arc<IdpState>>| async move {
            state.fetched.fetch_add(1, Ordering::SeqCst);
            if state.down.load(Ordering::SeqCst) {
                return Err(StatusCode::BAD_GATEWAY);
            }
            Ok(Json(json!({ "keys": *state.keys.lock().unwrap() })))
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(move || async move { Json(discovery) }))
            .route("/jwks", get(jwks))
            .with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { issuer, state, key }
    }

    pub fn fetched(&self) -> usize {
        self.state.fetched.load(Ordering::SeqCst)
    }

    pub fn trusted(&self, ambient: &Ambient) -> TrustedIssuer {
        TrustedIssuer::external(&self.issuer, AUDIENCE, http(), ambient.clone())
    }

    /// Claims for `subject` that would be accepted at `now`.
    pub fn claims(&self, subject: &str, now: chrono::DateTime<chrono::Utc>) -> Value {
        json!({
            "iss": self.issuer, "sub": subject, "aud": ["other", AUDIENCE], "sid": format!("sid-{subject}"),
            "iat": now.timestamp(), "exp": now.timestamp() + 3600, "azp": "web",
            "email": format!("{subject}@example.org"), "email_verified": true, "name": subject,
        })
    }
}
