//! From configuration to a running process, and back down.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use fleet::gateway::Gateway;
use kernel::Ambient;
use telemetry::{Health, LogConfig, OtlpConfig, TelemetryGuard};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    client_address,
    compose::{self, Platform},
    config::{self, Config},
    consumers::Consumers,
    database::{self, Database},
    first_admin, home, master_key,
    open_files::{self, Shares},
    restore::{self, Generation, NormalMode, OutsideFile},
    roles::Role,
    serve::{Bounds, Serving, serve},
    signing, web,
};

const OPS_CONNECTIONS: usize = 256;
const FLUSH_TELEMETRY: Duration = Duration::from_secs(3);
/// Workers give their leases back within less; another process then goes on at once.
const WORKERS_STOP_WITHIN: Duration = Duration::from_secs(8);

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

/// Says that the database was restored from a backup, and exits.
pub async fn restored(config: Config) -> anyhow::Result<()> {
    compose::install_crypto_provider();
    let ambient = Ambient::system();
    let health = health(&ambient);
    let database = database::open(&config, ambient, &health.register("postgres")).await?;
    let entered = restore::restore(&database.db, &OutsideFile::new(&config)).await;
    database.close().await;
    entered?;
    println!(
        "Nothing is launched, released or charged until the records were compared with the nodes. Start gpuaasd, then \
         see `gpuaas ops restore status`."
    );
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

    let shares = share_files(config)?;
    // The operations listener comes first, so that a slow start can be watched.
    let bounds = bounds(&config.server, "operations", OPS_CONNECTIONS, OPS_CONNECTIONS);
    let router = health.router().layer(axum::middleware::from_fn(pages::answer_with_pages));
    let ops = serve(config.server.ops_listen, router, None, bounds).await?;

    let database = tokio::select! {
        opened = database::open(config, ambient, &postgres) => opened.context("the database cannot be used")?,
        () = &mut stopped => return Ok(()),
    };
    let running = start_roles(config, shares, &database, &health).await;
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
    ops.stopped(tokio::time::Instant::now()).await;
    tracing::info!("stopped");
    Ok(())
}

/// What must be stopped, in order.
struct Running {
    api: Option<Serving>,
    gateway: Option<Gateway>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    listener: tokio::task::JoinHandle<()>,
}

async fn start_roles(
    config: &Config,
    shares: Shares,
    database: &Database,
    health: &Health,
) -> anyhow::Result<Running> {
    let (wake, listener) = database.db.listen();
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let generation = Generation::begin(&database.db, OutsideFile::new(config)).await?;
    let key = master_key::load_or_create(&config.auth.master_key_file, database.db.ambient())?;
    let platform = Platform::new(config, database.db.clone(), key, signing::open(config)?)?.listening(&wake);
    let consumers = Consumers::new(platform.registrations())?;
    platform.prepare(&config.roles).await?;
    platform.check_object_storage(&config.roles, (&tasks, &cancel)).await?;
    let metrics_cancel = cancel.clone();
    tasks.spawn(async move { telemetry::metrics().upkeep(metrics_cancel).await });
    let mut api = None;
    if config.roles.contains(&Role::Api) {
        first_admin::seed(config, &platform).await?;
        platform.start_api_jobs(&tasks, &cancel);
        platform.start_simulated_fleet(config, &tasks, &cancel)?;
    }
    if serves_public(config) {
        api = Some(start_api(config, shares, &platform, health, &cancel).await?);
    }
    let gateway = start_gateway(config, shares, &platform, &wake, health).await?;
    platform.start_terminals(&wake, &tasks, &cancel);
    start_by_mode(config, (platform, consumers), wake, generation, (&tasks, &cancel));
    tasks.close();
    Ok(Running { api, gateway, tasks, cancel, listener })
}

/// What works by itself, as the mode of the installation allows.
fn start_by_mode(
    config: &Config,
    (platform, consumers): (Platform, Consumers),
    wake: pg::Wake,
    generation: Generation,
    (tasks, cancel): (&TaskTracker, &CancellationToken),
) {
    let platform = Arc::new(platform);
    let (roles, others) = (config.roles.clone(), platform.clone());
    let mode = generation.mode();
    tasks.spawn(generation.follow(cancel.clone()));
    let normal = move |mode: &NormalMode<'_>| {
        consumers.start(&roles, &platform.bus(&wake), mode);
        if roles.contains(&Role::ProvisioningWorker) {
            platform.start_provisioning(&wake, mode);
        }
        platform.start_money(&roles, &wake, mode);
        if roles.contains(&Role::OutboxRelay) {
            platform.start_workers(&wake, mode);
        }
    };
    let compares = config.roles.contains(&Role::ProvisioningWorker);
    let restoring = move |tasks: &TaskTracker, cancel: &CancellationToken| {
        if compares {
            others.start_comparison(tasks, cancel);
        }
    };
    tasks.spawn(restore::run_by_mode(mode, tasks.clone(), cancel.clone(), normal, restoring));
}

async fn start_gateway(
    config: &Config,
    shares: Shares,
    platform: &Platform,
    wake: &pg::Wake,
    health: &Health,
) -> anyhow::Result<Option<Gateway>> {
    let gateway = platform.start_gateway(config, shares.nodes, wake).await?;
    if let Some(gateway) = &gateway {
        health.register("node-gateway").ready();
        tracing::info!(listen = %gateway.address(), url = %config.node_gateway.url, "nodes may connect");
    }
    Ok(gateway)
}

async fn start_api(
    config: &Config,
    shares: Shares,
    platform: &Platform,
    health: &Health,
    stop: &CancellationToken,
) -> anyhow::Result<Serving> {
    let trusted: Arc<[_]> = config.server.trusted_proxies.clone().into();
    let each = config.server.max_connections_per_address.min(shares.public);
    let mut bounds = bounds(&config.server, "public", shares.public, each);
    bounds.shared_addresses = trusted.clone();
    let router = platform
        .router(config, stop)
        .merge(health.probes())
        .merge(home::router(config, health.clone()))
        .merge(web::router(config))
        .layer(axum::middleware::from_fn(pages::answer_with_pages))
        .layer(axum::middleware::from_fn_with_state(trusted, client_address::resolve));
    Ok(serve(config.server.listen, router, config.server.tls.as_ref(), bounds).await?)
}

fn bounds(
    server: &config::Server,
    name: &'static str,
    connections: usize,
    connections_each: usize,
) -> Bounds {
    Bounds {
        name,
        connections,
        connections_each,
        shared_addresses: Arc::new([]),
        header_read_timeout: server.header_read_timeout,
        stall_timeout: server.stall_timeout,
        idle_timeout: server.idle_timeout,
    }
}

fn serves_public(config: &Config) -> bool {
    config.roles.iter().any(|role| role.serves_public())
}

/// What each listener may take of the files that this process may open.
fn share_files(config: &Config) -> anyhow::Result<Shares> {
    let limit = open_files::raise_limit().context("the limit of open files cannot be raised")?;
    let serves_nodes = config.roles.iter().any(|role| role.serves_nodes());
    let wanted = Shares {
        public: if serves_public(config) { config.server.max_connections } else { 0 },
        nodes: if serves_nodes { config.node_gateway.max_connections } else { 0 },
    };
    let database = config.database.app_connections + config.database.system_connections;
    let shares = open_files::share(limit, database + OPS_CONNECTIONS, wanted)?;
    if shares != wanted {
        tracing::warn!(
            limit,
            public = shares.public,
            nodes = shares.nodes,
            "the limit of open files allows fewer connections than configured"
        );
    }
    Ok(shares)
}

impl Running {
    /// New connections are refused, open requests finish, workers give back what they hold; all at once and within
    /// `limit`. What does not end by then is cut, so no client can keep the workers' leases.
    async fn stop(self, limit: Duration) {
        let now = tokio::time::Instant::now();
        self.cancel.cancel();
        let workers = async {
            let deadline = now + limit.max(WORKERS_STOP_WITHIN);
            if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
                tracing::warn!("workers did not stop in time");
            }
        };
        let api = async {
            if let Some(api) = &self.api {
                api.stopped(now + limit).await;
            }
        };
        let gateway = async {
            if let Some(gateway) = self.gateway {
                gateway.stop(limit).await;
            }
        };
        tokio::join!(workers, api, gateway);
        self.listener.abort();
    }
}
