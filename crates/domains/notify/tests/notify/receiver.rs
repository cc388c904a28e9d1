//! A receiver of webhooks: it keeps what came and answers as it is told.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU16, Ordering},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};

use crate::world::World;

#[derive(Clone)]
pub struct Received {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn signature(&self) -> String {
        self.headers["gpuaas-signature"].to_str().unwrap().to_owned()
    }
}

#[derive(Clone, Default)]
struct Inner {
    answer: Arc<AtomicU16>,
    received: Arc<Mutex<Vec<Received>>>,
}

pub struct Receiver {
    pub url: String,
    inner: Inner,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(State(inner): State<Inner>, headers: HeaderMap, body: Bytes) -> Response {
    inner.received.lock().unwrap().push(Received { headers, body });
    let status = StatusCode::from_u16(inner.answer.load(Ordering::SeqCst)).unwrap();
    if status.is_redirection() {
        return (status, [(header::LOCATION, "/elsewhere")]).into_response();
    }
    status.into_response()
}

impl Receiver {
    pub async fn start(answer: u16) -> Self {
        let inner = Inner { answer: Arc::new(AtomicU16::new(answer)), ..Inner::default() };
        let router = Router::new().fallback(take).with_state(inner.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, inner, task }
    }

    pub fn answers(&self, status: u16) {
        self.inner.answer.store(status, Ordering::SeqCst);
    }

    pub fn received(&self) -> Vec<Received> {
        self.inner.received.lock().unwrap().clone()
    }

    /// The organization's webhook comes here. Its path, and its secret.
    pub async fn registered(&self, world: &World) -> (String, String) {
        self.registered_for(world, json!([])).await
    }

    pub async fn registered_for(&self, world: &World, event_types: Value) -> (String, String) {
        let path = format!("/api/v1/orgs/{}/webhooks", world.org);
        let count = world.count("SELECT count(*) FROM webhooks").await;
        let body = json!({ "name": format!("hook-{count}"), "url": self.url, "event_types": event_types });
        let made = world.post(world.owner, &path, body).await.ok();
        (format!("{path}/{}", made["id"].as_str().unwrap()), made["secret"].as_str().unwrap().to_owned())
    }
}
