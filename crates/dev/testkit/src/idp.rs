//! An external issuer that vouches for whomever a test names: discovery, JWKS, signed tokens. The server
//! verifies its tokens through the same path as any other issuer's.

use std::sync::Arc;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use axum::{Json, Router, routing::get};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use crate::ServerOptions;

pub const AUDIENCE: &str = "gpuaas-test";

struct Key {
    kid: String,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(kid: &str) -> Self {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .expect("a key");
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref()).expect("the key");
        Self { kid: kid.to_owned(), pair }
    }

    fn jwk(&self) -> Value {
        // An uncompressed point: 4, x, y.
        let point = self.pair.public_key().as_ref();
        let (x, y) = (B64.encode(&point[1..33]), B64.encode(&point[33..65]));
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.kid, "x": x, "y": y })
    }
}

/// Runs as long as this value lives.
pub struct Idp {
    pub issuer: String,
    key: Arc<Key>,
    task: tokio::task::JoinHandle<()>,
}

impl Idp {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let issuer = format!("http://{}", listener.local_addr().expect("an address"));
        let key = Arc::new(Key::new("test-1"));
        let discovery = json!({
            "issuer": issuer,
            "jwks_uri": format!("{issuer}/jwks"),
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        });
        let jwks = json!({ "keys": [key.jwk()] });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(move || async move { Json(discovery) }))
            .route("/jwks", get(move || async move { Json(jwks) }));
        let task =
            tokio::spawn(async move { axum::serve(listener, router).await.expect("serve the issuer") });
        Self { issuer, key, task }
    }

    /// Server options that make this issuer trusted.
    pub fn options(&self) -> ServerOptions {
        let config = format!(
            "[[auth.issuers]]\nissuer = \"{}\"\naudience = \"{AUDIENCE}\"\nclient_id = \"test\"\n",
            self.issuer
        );
        ServerOptions { config, ..ServerOptions::default() }
    }

    /// A token for `name`, valid for an hour, in a session of its own per `session`.
    pub fn token(&self, name: &str, session: &str) -> String {
        self.token_with(name, session, json!({}))
    }

    /// The same with claims added or replaced.
    pub fn token_with(&self, name: &str, session: &str, claims: Value) -> String {
        let now = kernel::Ambient::system().now().timestamp();
        let mut all = json!({
            "iss": self.issuer, "aud": AUDIENCE, "sub": name, "sid": format!("{name}-{session}"), "name": name,
            "email": format!("{name}@example.org"), "email_verified": true, "iat": now, "exp": now + 3600,
        });
        for (key, value) in claims.as_object().expect("claims are an object") {
            all[key] = value.clone();
        }
        self.sign(&json!({ "alg": "ES256", "typ": "JWT", "kid": self.key.kid }), &all)
    }

    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()));
        let signature = self.key.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("sign");
        format!("{signed}.{}", B64.encode(signature.as_ref()))
    }
}

impl Drop for Idp {
    fn drop(&mut self) {
        self.task.abort();
    }
}
