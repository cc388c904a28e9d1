//! Sets up `tracing` for the process: the log line, and the trace exporter when there is a collector.

use std::{
    io::{IsTerminal, stderr},
    panic::PanicHookInfo,
    time::Duration,
};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::{Deserialize, Serialize};
use tracing::Dispatch;
use tracing_subscriber::{Layer, Registry, fmt::MakeWriter, layer::SubscriberExt};

use crate::{OtlpConfig, TelemetryError, filter::KeepContext, json::JsonLayer, traces};

/// How long a dropped guard may hold up the exit when nobody called [`TelemetryGuard::shutdown`].
const DROP_FLUSH: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line, for machines.
    #[default]
    Json,
    /// Coloured text, for a person at a terminal.
    Pretty,
}

#[derive(Clone, Debug)]
pub struct LogConfig {
    pub format: LogFormat,
    /// Directives such as `info,sqlx=warn`; empty means `info`.
    pub filter: String,
    pub service: String,
    pub roles: Vec<String>,
}

/// Keeps the exporter alive. Call [`shutdown`](Self::shutdown) last, so that the spans of the shutdown itself
/// are exported too.
#[must_use = "dropping the guard stops the trace exporter"]
pub struct TelemetryGuard {
    provider: Option<SdkTracerProvider>,
}

impl TelemetryGuard {
    /// Sends what is still queued to the collector and stops, giving up after `timeout`.
    pub async fn shutdown(mut self, timeout: Duration) {
        let Some(provider) = self.provider.take() else { return };
        // The flush blocks its thread, so it gets one of its own.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(timeout)).await;
        if let Ok(Err(error)) = flushed {
            tracing::warn!(error = %error, "some spans were not delivered before shutdown");
        }
    }
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take() {
            let _ = provider.shutdown_with_timeout(DROP_FLUSH);
        }
    }
}

/// Sets up logging and, with `otlp`, tracing for the whole process. Once per process. Panics are logged as
/// events, so that every line of a JSON log is JSON.
pub fn init(config: LogConfig, otlp: Option<OtlpConfig>) -> Result<TelemetryGuard, TelemetryError> {
    let json = config.format == LogFormat::Json;
    let (dispatch, guard) = build(&config, otlp.as_ref(), stderr)?;
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| TelemetryError::AlreadyInitialised)?;
    if json {
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(guard)
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let reason = info.payload_as_str().unwrap_or("not a text");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(target: "panic", error_code = "panic", location, "a thread panicked: {reason}");
}

pub(crate) fn build<W>(
    config: &LogConfig,
    otlp: Option<&OtlpConfig>,
    writer: W,
) -> Result<(Dispatch, TelemetryGuard), TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = KeepContext::parse(&config.filter)?;
    let log: Box<dyn Layer<Registry> + Send + Sync> = match config.format {
        LogFormat::Json => JsonLayer::new(writer, &config.service, &config.roles).with_filter(filter).boxed(),
        LogFormat::Pretty => tracing_subscriber::fmt::layer()
            .with_ansi(stderr().is_terminal())
            .with_writer(writer)
            .with_filter(filter)
            .boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(log);
    let Some(otlp) = otlp else {
        return Ok((Dispatch::new(subscriber), TelemetryGuard { provider: None }));
    };
    let provider = traces::provider(otlp, &config.service, &config.roles)?;
    let export = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("gpuaas"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(KeepContext::parse(&config.filter)?);
    Ok((Dispatch::new(subscriber.with(export)), TelemetryGuard { provider: Some(provider) }))
}

#[cfg(test)]
#[path = "logs_tests.rs"]
pub(crate) mod tests;
