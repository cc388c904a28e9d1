//! Spans to an OTLP collector, and trace context as plain strings.
//!
//! The batch processor has its own thread and a bounded queue that drops when full. The exporter brings its
//! own single-threaded runtime, entered only on that thread: the export does not depend on the host's
//! runtime being healthy, or even still there, when the last spans are flushed.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry::{
    Context, KeyValue,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use opentelemetry_otlp::{Protocol, SpanExporter as OtlpExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter},
};
use tokio::runtime::Runtime;
use tracing::{Dispatch, Span, span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{TelemetryError, names};

const TRACES_PATH: &str = "/v1/traces";
const QUEUE_SPANS: usize = 4096;
const BATCH_SPANS: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(2);

/// Where spans go. Credentials for the collector come from `OTEL_EXPORTER_OTLP_HEADERS`.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// Base URL such as `http://collector:4318`; `/v1/traces` is added when missing.
    pub endpoint: String,
    /// Limit for one export, connecting included.
    pub timeout: Duration,
    /// Share of the traces that start here to record, 0 to 1. A trace that comes from outside keeps the
    /// decision it was made with.
    pub sample_ratio: f64,
}

/// The current span as a W3C `traceparent`, to be stored with work that continues elsewhere. `None` when no
/// collector is configured or no span is entered.
pub fn current_traceparent() -> Option<String> {
    let cx = current()?;
    let flags = cx.trace_flags().to_u8();
    Some(format!("00-{}-{}-{flags:02x}", cx.trace_id(), cx.span_id()))
}

fn current() -> Option<SpanContext> {
    let cx = Span::current().context();
    let span_context = cx.span().span_context().clone();
    span_context.is_valid().then_some(span_context)
}

/// Makes `span` a child of a `traceparent` from a header, row or message. Call it before the span is entered
/// or logged in: a started span keeps its parent. Returns whether the parent was taken; text that is not a
/// `traceparent` is ignored, as W3C asks.
pub fn set_parent(span: &Span, traceparent: &str) -> bool {
    let Some(parent) = parse(traceparent) else { return false };
    span.set_parent(Context::new().with_remote_span_context(parent)).is_ok()
}

/// Reads `version-traceid-spanid-flags`. Strict about lengths and lower case, as anyone may send one; a later
/// version may have more parts, which are skipped.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.splitn(5, '-');
    let mut hex = |digits: usize| {
        let part = parts.next()?;
        let lower_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == digits && lower_hex).then_some(part)
    };
    let version = hex(2)?;
    let trace_id = TraceId::from_hex(hex(32)?).ok()?;
    let span_id = SpanId::from_hex(hex(16)?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(hex(2)?, 16).ok()?) & TraceFlags::SAMPLED;
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let parent = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
    parent.is_valid().then_some(parent)
}

pub(crate) fn trace_id_of_span(id: &span::Id, dispatch: &Dispatch) -> Option<String> {
    let cx = tracing_opentelemetry::get_otel_context(id, dispatch)?;
    let span = cx.span();
    let span_context = span.span_context();
    span_context.is_valid().then(|| span_context.trace_id().to_string())
}

pub(crate) fn provider(
    config: &OtlpConfig,
    service: &str,
    roles: &[String],
) -> Result<SdkTracerProvider, TelemetryError> {
    if !(0.0..=1.0).contains(&config.sample_ratio) {
        return Err(TelemetryError::SampleRatio { ratio: config.sample_ratio });
    }
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE_SPANS)
        .with_max_export_batch_size(BATCH_SPANS)
        .with_scheduled_delay(BATCH_DELAY)
        .build();
    let processor = BatchSpanProcessor::builder(Exporter::new(config)?).with_batch_config(batches).build();
    let resource = Resource::builder()
        .with_service_name(service.to_owned())
        .with_attribute(KeyValue::new("gpuaas.roles", roles.join(",")))
        .build();
    let ratio = Sampler::TraceIdRatioBased(config.sample_ratio);
    Ok(SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_sampler(Sampler::ParentBased(Box::new(ratio)))
        .with_resource(resource)
        .build())
}

fn endpoint(base: &str) -> Result<String, TelemetryError> {
    let refuse = |reason: &str| TelemetryError::Endpoint { reason: reason.to_owned() };
    let mut url = reqwest::Url::parse(base).map_err(|error| refuse(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(refuse("it is not an http or https URL"));
    }
    // A failed export is logged with its URL.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("it holds credentials, which belong in OTEL_EXPORTER_OTLP_HEADERS"));
    }
    if !url.path().ends_with(TRACES_PATH) {
        let path = format!("{}{TRACES_PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url.into())
}

#[derive(Debug)]
struct Exporter {
    inner: OtlpExporter,
    runtime: Runtime,
    timeout: Duration,
    /// Set while the collector does not answer, so that an outage is two log lines and not two a second.
    failing: AtomicBool,
}

impl Exporter {
    fn new(config: &OtlpConfig) -> Result<Self, TelemetryError> {
        if config.timeout.is_zero() {
            return Err(TelemetryError::ZeroTimeout);
        }
        let endpoint = endpoint(&config.endpoint)?;
        // Building the client panics without a process-wide provider; if there is one already, it stays.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(config.timeout)
            .connect_timeout(config.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            // The runtime sleeps between batches and would not notice a closed connection.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|source| TelemetryError::Exporter { source: source.into() })?;
        let inner = OtlpExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(config.timeout)
            .build()
            .map_err(|source| TelemetryError::Exporter { source: source.into() })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .map_err(|source| TelemetryError::Exporter { source: source.into() })?;
        Ok(Self { inner, runtime, timeout: config.timeout, failing: AtomicBool::new(false) })
    }

    fn report(&self, result: &OTelSdkResult, spans: u64) {
        match result {
            Ok(()) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the trace collector answers again");
                }
            }
            Err(error) => {
                ::metrics::counter!(names::TRACE_SPANS_LOST_TOTAL).increment(spans);
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %error, "the trace collector does not take spans; they are dropped");
                }
            }
        }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        // Only the batch thread, which belongs to no runtime, calls this: blocking it is its purpose.
        let result = self.runtime.block_on(async {
            tokio::time::timeout(self.timeout, self.inner.export(batch))
                .await
                .unwrap_or(Err(OTelSdkError::Timeout(self.timeout)))
        });
        self.report(&result, spans);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
#[path = "traces_tests.rs"]
mod tests;
