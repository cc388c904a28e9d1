//! Why telemetry could not be set up. Running telemetry never fails its host.

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log filter {filter:?} is not valid: use directives such as \"info,sqlx=warn\"")]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
    #[error("logging is already set up in this process: call telemetry::init once")]
    AlreadyInitialised,
    #[error("OTLP endpoint is not usable: {reason}; use a URL such as http://collector:4318")]
    Endpoint { reason: String },
    #[error("OTLP sample ratio {ratio} is not valid: use a number from 0 to 1")]
    SampleRatio { ratio: f64 },
    #[error("OTLP timeout is zero: use a duration such as 10 s")]
    ZeroTimeout,
    #[error("OTLP exporter could not be built: check the endpoint and the machine's TLS certificates")]
    Exporter { source: Box<dyn std::error::Error + Send + Sync> },
}
