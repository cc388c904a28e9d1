use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use chrono::DateTime;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Health;

/// A clock that shows the given number of seconds since 1970.
fn health() -> (Health, Arc<AtomicI64>) {
    let seconds = Arc::new(AtomicI64::new(0));
    let shown = Arc::clone(&seconds);
    let now = move || DateTime::from_timestamp(shown.load(Ordering::SeqCst), 0).unwrap();
    (Health::new(Arc::new(now)), seconds)
}

async fn get(health: &Health, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = health.router().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn readyz(health: &Health) -> (StatusCode, Value) {
    let (status, body) = get(health, "/readyz").await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn readyz_goes_from_warming_to_ready_to_failing_and_says_since_when() {
    let (health, seconds) = health();
    let postgres = health.register("postgres");
    let bus = health.register("bus");

    bus.ready();
    let (status, body) = readyz(&health).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["status"], "warming");

    seconds.store(10, Ordering::SeqCst);
    postgres.ready();
    let (status, body) = readyz(&health).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        body,
        json!({"status": "ready", "checks": [
            {"name": "postgres", "state": "ready", "since": "1970-01-01T00:00:10Z"},
            {"name": "bus", "state": "ready", "since": "1970-01-01T00:00:00Z"},
        ]})
    );

    seconds.store(20, Ordering::SeqCst);
    postgres.failing("connection refused");
    bus.warming("catching up");
    let (status, body) = readyz(&health).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["status"], "failing");
    assert_eq!(body["checks"][0]["reason"], "connection refused");
    assert_eq!(body["checks"][1]["state"], "warming");
}

#[tokio::test]
async fn a_new_reason_does_not_move_since() {
    let (health, seconds) = health();
    let probe = health.register("postgres");
    probe.failing("connection refused");
    seconds.store(30, Ordering::SeqCst);
    probe.failing("password refused");
    let (_, body) = readyz(&health).await;
    assert_eq!(body["checks"][0]["reason"], "password refused");
    assert_eq!(body["checks"][0]["since"], "1970-01-01T00:00:00Z");
}

#[tokio::test]
async fn stopping_is_not_ready_but_alive() {
    let (health, _) = health();
    health.register("postgres").ready();
    health.stopping();
    let (status, body) = readyz(&health).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["status"], "stopping");
    assert_eq!(body["checks"][0]["state"], "ready");
    assert_eq!(get(&health, "/healthz").await, (StatusCode::OK, r#"{"status":"ok"}"#.to_owned()));
}

#[tokio::test]
async fn the_same_name_is_one_check_and_long_reasons_are_cut() {
    let (health, _) = health();
    health.register("bus").ready();
    health.register("bus").failing("ä".repeat(10_000));
    let report = health.report();
    assert_eq!(report.checks.len(), 1);
    assert_eq!(report.checks[0].reason.as_ref().unwrap().chars().count(), 500);
}

#[tokio::test]
async fn metrics_answers_prometheus_text() {
    let (health, _) = health();
    let (status, body) = get(&health, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("process_resident_memory_bytes "));
}
