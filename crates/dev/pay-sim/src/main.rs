//! `gpuaas-pay-sim`: see the library.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use kernel::Ambient;
use pay_sim::{Options, Sim, delivery, router, secrets};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

/// What is under way at a stop may take this long.
const STOP: Duration = Duration::from_secs(5);

/// A payment provider that does not exist: no real money moves.
#[derive(Parser)]
#[command(name = "gpuaas-pay-sim", version, about)]
struct Arguments {
    /// Where to listen: an address of this machine only, unless --allow-remote.
    #[arg(long, default_value = "127.0.0.1:8083")]
    listen: SocketAddr,
    /// Listen on an address that others can reach.
    #[arg(long)]
    allow_remote: bool,
    /// How browsers reach the checkout page; http://LISTEN unless given.
    #[arg(long)]
    public_url: Option<String>,
    /// Everything that happened; made when absent.
    #[arg(long)]
    state: PathBuf,
    /// Where to tell what happens; nowhere unless given.
    #[arg(long)]
    webhook_url: Option<String>,
    /// Secrets to sign messages with, one per line; made when absent. Read again for each message.
    #[arg(long)]
    webhook_secret_file: PathBuf,
    /// The key that clients must send; made when absent.
    #[arg(long)]
    api_key_file: PathBuf,
    /// Send each message so many times more.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    duplicate: u32,
    /// Let messages overtake each other.
    #[arg(long)]
    reorder: bool,
    /// Send each message so many milliseconds later.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=600_000))]
    delay_ms: u32,
    /// Lose the first attempt of each message.
    #[arg(long)]
    drop_first: bool,
    /// Milliseconds before the second attempt; doubled for each one after it, up to ten seconds.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    retry_ms: u32,
    /// Attempts before a message is given up.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_attempts: u32,
}

fn main() -> ExitCode {
    match start(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: Arguments) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("GPUAAS_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,pay_sim=info")),
        )
        .with_writer(std::io::stderr)
        .init();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let listen = arguments.listen;
    anyhow::ensure!(
        listen.ip().is_loopback() || arguments.allow_remote,
        "{listen} can be reached by others, who could make up payments; say --allow-remote if that is meant"
    );
    let (options, ambient) = (options(arguments)?, Ambient::system());
    let sim = Arc::new(Sim::open(options, ambient)?);
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let stop = CancellationToken::new();
    on_signal(stop.clone())?;
    tracing::info!(%listen, "the simulated payment provider is ready; no real money moves");
    let deliveries = tokio::spawn(delivery::run(sim.clone(), stop.clone()));
    let server = axum::serve(listener, router(sim)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let serving = async {
        tokio::select! {
            ended = server => ended.context("the listener ended"),
            () = overdue(&stop) => Ok(()),
        }
    };
    let delivering = async {
        match deliveries.await {
            // Told to stop: requests that are under way are still answered.
            Ok(Ok(())) => std::future::pending().await,
            Ok(Err(error)) => error,
            Err(error) => error.into(),
        }
    };
    tokio::select! {
        ended = serving => ended,
        error = delivering => Err(error.context("deliveries ended")),
    }
}

async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOP).await;
}

fn on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}

fn options(arguments: Arguments) -> anyhow::Result<Options> {
    let ambient = Ambient::system();
    secrets::ensure(&arguments.webhook_secret_file, "whsec_", &ambient)?;
    secrets::ensure(&arguments.api_key_file, "sk_test_", &ambient)?;
    let keys = secrets::read(&arguments.api_key_file)?;
    Ok(Options {
        public_url: arguments.public_url.unwrap_or_else(|| format!("http://{}", arguments.listen)),
        state: arguments.state,
        webhook_url: arguments.webhook_url,
        webhook_secret_file: arguments.webhook_secret_file,
        api_key: keys.into_iter().next().context("the key file is empty")?,
        duplicate: arguments.duplicate,
        reorder: arguments.reorder,
        delay_ms: arguments.delay_ms,
        drop_first: arguments.drop_first,
        retry_ms: arguments.retry_ms,
        max_attempts: arguments.max_attempts,
    })
}
