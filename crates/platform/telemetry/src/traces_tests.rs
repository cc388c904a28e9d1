use std::time::{Duration, Instant};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use opentelemetry_sdk::error::OTelSdkError;
use tokio::{net::TcpListener, sync::mpsc};

use super::{OtlpConfig, current_traceparent, set_parent};
use crate::{
    TelemetryError,
    logs::{
        build,
        tests::{Memory, config},
    },
};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_BYTES: [u8; 16] = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
const PARENT_SPAN_BYTES: [u8; 8] = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes();

fn otlp(endpoint: String) -> OtlpConfig {
    OtlpConfig { endpoint, timeout: Duration::from_secs(5), sample_ratio: 1.0 }
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// A collector that hands on the bodies it gets.
async fn collector() -> (String, mpsc::Receiver<(HeaderMap, Bytes)>) {
    let (sender, receiver) = mpsc::channel(16);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let take = move |headers: HeaderMap, body: Bytes| async move {
        sender.send((headers, body)).await.unwrap();
    };
    let router = Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}"), receiver)
}

#[tokio::test]
async fn spans_reach_the_collector_under_the_parent_they_were_given() {
    let (endpoint, mut received) = collector().await;
    let memory = Memory::default();
    let (dispatch, guard) = build(&config("info"), Some(&otlp(endpoint)), memory.clone()).unwrap();

    tracing::dispatcher::with_default(&dispatch, || {
        assert_eq!(current_traceparent(), None);
        let span = tracing::info_span!("relay_outbox_row");
        assert!(set_parent(&span, PARENT));
        let _entered = span.enter();
        tracing::info!("relayed");
        let handed_on = current_traceparent().unwrap();
        assert!(handed_on.starts_with(&format!("00-{TRACE_ID}-")) && handed_on.ends_with("-01"));
        assert_ne!(handed_on, PARENT);
    });
    guard.shutdown(Duration::from_secs(10)).await;

    let (headers, body) =
        tokio::time::timeout(Duration::from_secs(10), received.recv()).await.unwrap().unwrap();
    assert_eq!(headers["content-type"], "application/x-protobuf");
    for part in [b"relay_outbox_row".as_slice(), b"gpuaasd", &TRACE_BYTES, &PARENT_SPAN_BYTES] {
        assert!(holds(&body, part), "{part:?} is missing");
    }
    assert_eq!(memory.lines()[0]["trace_id"], TRACE_ID);
}

#[tokio::test]
async fn a_parent_that_was_not_sampled_is_not_exported() {
    let (endpoint, mut received) = collector().await;
    let (dispatch, guard) = build(&config("info"), Some(&otlp(endpoint)), Memory::default()).unwrap();
    tracing::dispatcher::with_default(&dispatch, || {
        let span = tracing::info_span!("quiet");
        assert!(set_parent(&span, &format!("00-{TRACE_ID}-00f067aa0ba902b7-00")));
        let _entered = span.enter();
        let handed_on = current_traceparent().unwrap();
        assert!(handed_on.starts_with(&format!("00-{TRACE_ID}-")), "the trace is carried on all the same");
    });
    guard.shutdown(Duration::from_secs(10)).await;
    assert!(received.try_recv().is_err());
}

#[test]
fn text_that_is_no_traceparent_is_ignored() {
    let (dispatch, _guard) =
        build(&config("info"), Some(&otlp("http://127.0.0.1:9".to_owned())), Memory::default()).unwrap();
    tracing::dispatcher::with_default(&dispatch, || {
        let span = tracing::info_span!("request");
        for text in ["", "00", "00-x-y-01", "\u{0}\u{0}", &"a-".repeat(10_000), &PARENT.replace("4bf9", "ä")]
        {
            assert!(!set_parent(&span, text), "{text:?}");
        }
        let zeros = "00-00000000000000000000000000000000-0000000000000000-01";
        assert!(!set_parent(&span, zeros));
    });
}

#[test]
fn without_a_collector_there_is_no_trace_and_no_harm() {
    let (dispatch, _guard) = build(&config("info"), None, Memory::default()).unwrap();
    tracing::dispatcher::with_default(&dispatch, || {
        let span = tracing::info_span!("request");
        assert!(!set_parent(&span, PARENT));
        let _entered = span.enter();
        assert_eq!(current_traceparent(), None);
    });
}

/// More spans than the queue holds, then a shutdown: neither may wait for the collector.
async fn outlive(endpoint: String) {
    let mut otlp = otlp(endpoint);
    otlp.timeout = Duration::from_millis(300);
    let (dispatch, guard) = build(&config("info"), Some(&otlp), Memory::default()).unwrap();
    let started = Instant::now();
    tracing::dispatcher::with_default(&dispatch, || {
        for _ in 0..20_000 {
            let _span = tracing::info_span!("lost").entered();
        }
    });
    guard.shutdown(Duration::from_millis(500)).await;
    assert!(started.elapsed() < Duration::from_secs(20), "the collector held up its host");
}

#[tokio::test]
async fn a_collector_that_refuses_connections_does_not_hold_up_its_host() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    outlive(format!("http://{address}")).await;
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_hold_up_its_host() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    outlive(format!("http://{address}")).await;
    drop(listener);
}

#[test]
fn an_outage_of_the_collector_is_two_log_lines() {
    let memory = Memory::default();
    let (dispatch, _guard) = build(&config("info"), None, memory.clone()).unwrap();
    let exporter = super::Exporter::new(&otlp("http://127.0.0.1:9".to_owned())).unwrap();
    tracing::dispatcher::with_default(&dispatch, || {
        for result in [Ok(()), Err(OTelSdkError::AlreadyShutdown), Err(OTelSdkError::AlreadyShutdown), Ok(())]
        {
            exporter.report(&result, 1);
        }
    });
    let levels: Vec<_> = memory.lines().iter().map(|line| line["level"].clone()).collect();
    assert_eq!(levels, ["WARN", "INFO"]);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for endpoint in ["", "collector:4318", "ftp://collector", "http://"] {
        let error = super::provider(&otlp(endpoint.to_owned()), "s", &[]).err().unwrap();
        assert!(matches!(error, TelemetryError::Endpoint { .. }), "{endpoint}: {error}");
    }
    let error = super::provider(&otlp("http://user:hidden@collector".to_owned()), "s", &[]).err().unwrap();
    assert!(!error.to_string().contains("hidden"), "{error}");
    for ratio in [-0.1, 1.1, f64::NAN] {
        let config = OtlpConfig { sample_ratio: ratio, ..otlp("http://collector".to_owned()) };
        assert!(matches!(super::provider(&config, "s", &[]), Err(TelemetryError::SampleRatio { .. })));
    }
    let config = OtlpConfig { timeout: Duration::ZERO, ..otlp("http://collector".to_owned()) };
    assert!(matches!(super::provider(&config, "s", &[]), Err(TelemetryError::ZeroTimeout)));
}

#[test]
fn the_traces_path_is_added_once() {
    for (base, full) in [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp/", "https://c/otlp/v1/traces"),
        ("https://c/v1/traces", "https://c/v1/traces"),
    ] {
        assert_eq!(super::endpoint(base).unwrap(), full);
    }
}
