//! From configuration to a running process, and back down.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum_server::Handle;
use fleet::gateway::Gateway;
use kernel::Ambient;
use telemetry::{Health, LogConfig, OtlpConfig, TelemetryGuard};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    client_address,
    compose::{self, Platform},
    config::{self, Config},
    database::{self, Database},
    first_admin, master_key,
    roles::Role,
    serve::{Bounds, serve},
    signing,
};

const OPS_CONNECTIONS: usize = 256;
const FLUSH_TELEMETRY: Duration = Duration::from_secs(3);

/// Runs the configured roles until SIGTERM or SIGINT, then drains.
pub async fn run(config: Config) -> anyhow::Result<()> {
    compose::install_crypto_provider();
    let guard = start_telemetry(&config)?;
    let result = run_roles(&config).await;
    if let Err(error) = &result {
        tracing::error!(error = format!("{error:#}"), "start-up failed");
    }
    guard.shutdown(FLUSH_TELEMETRY).await;
    result
}

/// Prepares the database and exits.
pub async fn migrate(config: Config) -> anyhow::Result<()> {
    compose::install_crypto_provider();
    let ambient = Ambient::system();
    let health = health(&ambient);
    let database = database::open(&config, ambient, &health.register("postgres")).await?;
    database.close().await;
    println!("The database is up to date.");
    Ok(())
}

fn start_telemetry(config: &Config) -> anyhow::Result<TelemetryGuard> {
    telemetry::metrics();
    let logs = LogConfig {
        format: config.telemetry.log_format,
        filter: config.telemetry.log_filter.clone(),
        service: "gpuaasd".to_owned(),
        roles: config.roles.iter().map(|role| role.name().to_owned()).collect(),
    };
    let otlp = config.telemetry.otlp_endpoint.clone().map(|endpoint| OtlpConfig {
        endpoint,
        timeout: Duration::from_secs(5),
        sample_ratio: config.telemetry.otlp_sample_ratio,
    });
    Ok(telemetry::init(logs, otlp)?)
}

fn health(ambient: &Ambient) -> Health {
    let ambient = ambient.clone();
    Health::new(Arc::new(move || ambient.now()))
}

async fn run_roles(config: &Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stopped = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::pin!(stopped);

    let ambient = Ambient::system();
    let health = health(&ambient);
    let postgres = health.register("postgres");
    let roles = health.register("roles");
    roles.warming("waiting for the database");

    // The operations listener comes first, so that a slow start can be watched.
    let ops = Handle::new();
    let bounds =
        Bounds { connections: OPS_CONNECTIONS, header_read_timeout: config.server.header_read_timeout };
    serve(config.server.ops_listen, health.router(), None, bounds, ops.clone()).await?;

    let database = tokio::select! {
        opened = database::open(config, ambient, &postgres) => opened.context("the database cannot be used")?,
        () = &mut stopped => return Ok(()),
    };
    let running = start_roles(config, &database, &health).await;
    let running = match running {
        Ok(running) => running,
        Err(error) => {
            database.close().await;
            return Err(error);
        }
    };
    let watch = database.watch(postgres);
    roles.ready();
    tracing::info!(listen = %config.server.listen, public_url = %config.server.public_url, "ready");

    stopped.await;
    tracing::info!("stopping");
    health.stopping();
    running.stop(config.server.shutdown_timeout).await;
    watch.abort();
    database.close().await;
    ops.shutdown();
    tracing::info!("stopped");
    Ok(())
}

/// What must be stopped, in order.
struct Running {
    api: Option<Handle<SocketAddr>>,
    gateway: Option<Gateway>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    listener: tokio::task::JoinHandle<()>,
}

async fn start_roles(config: &Config, database: &Database, health: &Health) -> anyhow::Result<Running> {
    let (wake, listener) = database.db.listen();
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let key = master_key::load_or_create(&config.auth.master_key_file, database.db.ambient())?;
    let platform = Platform::new(config, database.db.clone(), key, signing::open(config)?)?.listening(&wake);
    platform.prepare(&config.roles).await?;
    let metrics_cancel = cancel.clone();
    tasks.spawn(async move { telemetry::metrics().upkeep(metrics_cancel).await });
    let mut api = None;
    if config.roles.contains(&Role::Api) {
        first_admin::seed(config, &platform).await?;
        platform.start_api_jobs(&tasks, &cancel);
        platform.start_simulated_fleet(config, &tasks, &cancel)?;
    }
    if config.roles.iter().any(|role| matches!(role, Role::Api | Role::WebhookWorker)) {
        api = Some(start_api(config, &platform, health).await?);
    }
    let gateway = start_gateway(config, &platform, &wake, health).await?;
    if config.roles.contains(&Role::ProvisioningWorker) {
        platform.start_provisioning(&wake, &tasks, &cancel);
    }
    platform.start_money(&config.roles, &wake, &tasks, &cancel);
    if config.roles.contains(&Role::OutboxRelay) {
        platform.start_workers(wake, &tasks, &cancel);
    }
    tasks.close();
    Ok(Running { api, gateway, tasks, cancel, listener })
}

async fn start_gateway(
    config: &Config,
    platform: &Platform,
    wake: &pg::Wake,
    health: &Health,
) -> anyhow::Result<Option<Gateway>> {
    let gateway = platform.start_gateway(config, wake).await?;
    if let Some(gateway) = &gateway {
        health.register("node-gateway").ready();
        tracing::info!(listen = %gateway.address(), url = %config.node_gateway.url, "nodes may connect");
    }
    Ok(gateway)
}

async fn start_api(
    config: &Config,
    platform: &Platform,
    health: &Health,
) -> anyhow::Result<Handle<SocketAddr>> {
    let config::Server { listen, tls, max_connections, header_read_timeout, .. } = &config.server;
    let handle = Handle::new();
    let trusted: Arc<[_]> = config.server.trusted_proxies.clone().into();
    let router = platform
        .router(&config.roles)
        .merge(health.probes())
        .layer(axum::middleware::from_fn_with_state(trusted, client_address::resolve));
    let bounds = Bounds { connections: *max_connections, header_read_timeout: *header_read_timeout };
    serve(*listen, router, tls.as_ref(), bounds, handle.clone()).await?;
    Ok(handle)
}

impl Running {
    /// New connections are refused, open requests finish, workers end what they hold; all within `limit`.
    async fn stop(self, limit: Duration) {
        let deadline = tokio::time::Instant::now() + limit;
        if let Some(api) = &self.api {
            api.graceful_shutdown(Some(limit));
        }
        // Nodes first: their long polls would outlast everything else.
        if let Some(gateway) = self.gateway {
            gateway.stop(limit).await;
        }
        self.cancel.cancel();
        if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
            tracing::warn!("workers did not stop in time");
        }
        if let Some(api) = &self.api {
            while api.connection_count() > 0 && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        self.listener.abort();
    }
}
