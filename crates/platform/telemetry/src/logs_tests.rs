use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use chrono::DateTime;
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

use super::{LogConfig, LogFormat, build};
use crate::TelemetryError;

/// Collects what is logged.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Memory {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Memory {
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) fn config(filter: &str) -> LogConfig {
    LogConfig {
        format: LogFormat::Json,
        filter: filter.to_owned(),
        service: "gpuaasd".to_owned(),
        roles: vec!["api".to_owned(), "outbox-relay".to_owned()],
    }
}

fn logged(filter: &str, work: impl FnOnce()) -> Vec<Value> {
    let memory = Memory::default();
    let (dispatch, _guard) = build(&config(filter), None, memory.clone()).unwrap();
    tracing::dispatcher::with_default(&dispatch, work);
    memory.lines()
}

#[derive(Debug, thiserror::Error)]
#[error("could not save the project")]
struct Outer {
    source: io::Error,
}

#[test]
fn a_line_is_json_with_the_fields_of_its_spans() {
    let lines = logged("info", || {
        let request = tracing::info_span!(
            "request",
            correlation_id = "c-1",
            org_id = "org-1",
            project_id = tracing::field::Empty,
            otel.name = "POST /v1/projects"
        );
        let _request = request.enter();
        request.record("project_id", "prj-1");
        let _inner = tracing::info_span!("save", org_id = "org-2", attempt = 2).entered();
        let error = Outer { source: io::Error::other("disk full") };
        tracing::error!(
            error_code = "internal",
            error = &error as &dyn std::error::Error,
            retry = true,
            "saving failed:\n{}",
            "twice"
        );
    });
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert!(DateTime::parse_from_rfc3339(line["timestamp"].as_str().unwrap()).is_ok());
    for (name, expected) in [
        ("level", "ERROR"),
        ("target", "telemetry::logs::tests"),
        ("message", "saving failed:\ntwice"),
        ("service", "gpuaasd"),
        ("role", "api,outbox-relay"),
        ("correlation_id", "c-1"),
        ("org_id", "org-2"),
        ("project_id", "prj-1"),
        ("error_code", "internal"),
        ("error", "could not save the project: disk full"),
    ] {
        assert_eq!(line[name], expected, "{name}");
    }
    assert_eq!(line["attempt"], 2);
    assert_eq!(line["retry"], true);
    assert!(line.get("otel.name").is_none());
    assert!(line.get("trace_id").is_none(), "there is no trace without a collector");
}

#[test]
fn the_filter_drops_events_but_keeps_the_context_of_those_that_stay() {
    let lines = logged("warn,telemetry::logs=error", || {
        let _request = tracing::info_span!("request", correlation_id = "c-2").entered();
        tracing::info!(target: "elsewhere", "too quiet");
        tracing::warn!("too quiet here");
        tracing::warn!(target: "elsewhere", "kept");
    });
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["message"], "kept");
    assert_eq!(lines[0]["correlation_id"], "c-2");
}

#[test]
fn a_field_cannot_pose_as_part_of_the_line() {
    let lines = logged("", || {
        let _span = tracing::info_span!("work", service = "other", role = "billing-worker").entered();
        tracing::info!(level = "FATAL", timestamp = 1, "as said");
    });
    assert_eq!(lines[0]["service"], "gpuaasd");
    assert_eq!(lines[0]["field_service"], "other");
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[0]["field_level"], "FATAL");
    assert_eq!(lines[0]["role"], "billing-worker", "a worker may say which role it has");
}

#[test]
fn a_huge_value_is_cut() {
    let lines = logged("", || tracing::info!(body = "ä".repeat(1 << 20), "big"));
    let body = lines[0]["body"].as_str().unwrap();
    assert!(body.len() < 9000 && body.ends_with("...(cut)"));
}

#[test]
fn a_bad_filter_is_refused_with_its_text() {
    let error = build(&config("info,=,["), None, Memory::default()).err().unwrap();
    assert!(matches!(&error, TelemetryError::Filter { .. }), "{error}");
    assert!(error.to_string().contains("info,=,["));
}
