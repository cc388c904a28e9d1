//! `gpuaas-node-sim`: see the library.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use node_agent::drivers::simulated::Profile;
use node_sim::{
    create, limits,
    plan::{Latency, Plan},
    run::{Options, run},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Thousands of simulated nodes in one process. They do not exist; all they say is made up.
#[derive(Parser)]
#[command(name = "gpuaas-node-sim", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play the nodes of a list until a signal comes.
    Run(RunArguments),
    /// Make simulated nodes through the public API and add them to a list, with their tokens.
    Create(CreateArguments),
}

#[derive(Args)]
struct CreateArguments {
    /// Address of the API, such as http://127.0.0.1:8080.
    #[arg(long)]
    server: String,
    /// A file with an access token of somebody who may manage the fleet.
    #[arg(long)]
    token_file: PathBuf,
    /// How many.
    #[arg(long)]
    count: u32,
    /// What they claim to be, in turn: h200-8, h100-8, mi300x-8, cpu.
    #[arg(long, value_delimiter = ',', default_value = "h200-8")]
    profile: Vec<Profile>,
    /// The region that they stand in; it must be there.
    #[arg(long, default_value = "local")]
    region: String,
    /// Names are <prefix>-<profile>-<number>.
    #[arg(long, default_value = "sim")]
    prefix: String,
    /// The first number.
    #[arg(long, default_value_t = 1)]
    first: u32,
    /// The list to add them to, for `run`.
    #[arg(long)]
    join: PathBuf,
}

#[derive(Args)]
struct RunArguments {
    /// The list of nodes (JSON), as the control plane or `create` writes it. Read again whenever it changes.
    #[arg(long)]
    join: PathBuf,
    /// Where the nodes keep their keys and journals.
    #[arg(long)]
    state: PathBuf,
    /// A plan of latencies and faults (TOML); the flags below are put on top of it.
    #[arg(long)]
    plan: Option<PathBuf>,
    /// Rates of faults from 0 to 1, such as drop=0.01,crash=0.001. There are drop, delay, duplicate, crash, skew,
    /// disk_full, wrong_result and flap.
    #[arg(long, default_value = "")]
    faults: String,
    /// A file of rules (TOML) that say what goes wrong with which task on which node. Followed as it changes.
    #[arg(long)]
    script: Option<PathBuf>,
    /// Latency of messages in milliseconds, such as 5 or 0..50.
    #[arg(long)]
    latency_ms: Option<Latency>,
    /// How long a phase of a task takes in milliseconds, such as 5 or 0..50.
    #[arg(long)]
    phase_ms: Option<Latency>,
    /// Decides everything that is chance; the same seed repeats it.
    #[arg(long)]
    seed: Option<u64>,
    /// Write figures here (JSON), now and then and at the end.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Seconds between two lines of figures in the log.
    #[arg(long, default_value_t = 30)]
    summary_seconds: u64,
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
            tracing_subscriber::EnvFilter::try_from_env("GPUAAS_LOG").unwrap_or_else(|_| {
                tracing_subscriber::EnvFilter::new("warn,node_sim=info,gpuaas_agent=off")
            }),
        )
        .with_writer(std::io::stderr)
        .init();
    limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.command {
        Command::Run(arguments) => runtime.block_on(play(arguments)),
        Command::Create(arguments) => runtime.block_on(make(arguments)),
    }
}

async fn make(arguments: CreateArguments) -> anyhow::Result<()> {
    let join = arguments.join.clone();
    let options = create::Options {
        server: arguments.server,
        token_file: arguments.token_file,
        count: arguments.count,
        profiles: arguments.profile,
        prefix: arguments.prefix,
        first: arguments.first,
        region: arguments.region,
        join: arguments.join,
    };
    let made = create::create(options).await?;
    println!("{made} simulated nodes were made and added to {}.", join.display());
    Ok(())
}

async fn play(arguments: RunArguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.cancel();
    });
    let report = run(options(arguments)?, stop).await?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn options(arguments: RunArguments) -> anyhow::Result<Options> {
    let mut plan = match &arguments.plan {
        None => Plan::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the plan {}", path.display()))?;
            Plan::read(&text)?
        }
    };
    plan.faults = plan.faults.and(&arguments.faults)?;
    plan.seed = arguments.seed.unwrap_or(plan.seed);
    plan.latency_ms = arguments.latency_ms.unwrap_or(plan.latency_ms);
    plan.phase_ms = arguments.phase_ms.unwrap_or(plan.phase_ms);
    if let Some(path) = &arguments.script {
        plan.script.watch(path);
    }
    Ok(Options {
        join: arguments.join,
        state: arguments.state,
        plan,
        report: arguments.report,
        summary_every: Duration::from_secs(arguments.summary_seconds),
    })
}
