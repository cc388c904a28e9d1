//! A webhook that keeps what it is sent.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, http::HeaderMap};

#[derive(Clone, Debug)]
pub struct Message {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Message {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Listens as long as this value lives.
pub struct WebhookSink {
    pub url: String,
    messages: Arc<Mutex<Vec<Message>>>,
    task: tokio::task::JoinHandle<()>,
}

impl WebhookSink {
    pub async fn start() -> Self {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = messages.clone();
        let take = async move |headers: HeaderMap, body: Bytes| {
            kept.lock().expect("the messages").push(Message { headers, body: body.to_vec() });
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(take);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("serve the sink") });
        Self { url, messages, task }
    }

    /// What came so far.
    pub fn taken(&self) -> Vec<Message> {
        self.messages.lock().expect("the messages").clone()
    }
}

impl Drop for WebhookSink {
    fn drop(&mut self) {
        self.task.abort();
    }
}
