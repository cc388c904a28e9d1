//! `gpuaasd`: the control plane. See the library for how it is put together.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use gpuaasd::{
    config::{Config, Flags},
    documents,
    roles::Role,
    run, secret_file,
};

fn roles_help() -> String {
    let names: Vec<_> = Role::ALL.iter().map(|role| role.name()).collect();
    format!("Roles of this process, with commas: all, {}", names.join(", "))
}

/// GPUaaS control plane.
#[derive(Parser)]
#[command(version, about)]
struct Args {
    /// Configuration file (TOML). Environment variables GPUAAS__SECTION__NAME and flags override it.
    #[arg(long, global = true, env = "GPUAAS_CONFIG")]
    config: Option<PathBuf>,
    #[arg(long, global = true, help = roles_help())]
    roles: Option<String>,
    /// Address of the public listener.
    #[arg(long, global = true)]
    listen: Option<String>,
    /// Where the built-in database and keys live.
    #[arg(long, global = true)]
    data_dir: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the configured roles until a signal comes.
    Run,
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Prepare roles and schema of the database, then exit.
    Migrate,
    /// Say that the database was restored from a backup, then exit. What is restored from a file that this process wrote
    /// later is noticed without it.
    Restore,
    /// Print a document that is generated from the code.
    Document {
        #[arg(value_parser = documents::NAMES.to_vec())]
        name: String,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Report every problem; exit 1 when there is one.
    Check,
    /// Show every setting and where it came from, secrets masked.
    Print,
}

fn main() -> ExitCode {
    match start(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> anyhow::Result<ExitCode> {
    if let Command::Document { name } = &args.command {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        print!("{}", runtime.block_on(async { documents::make(name) })?);
        return Ok(ExitCode::SUCCESS);
    }
    let config = read_config(&args)?;
    match args.command {
        Command::Config(ConfigCommand::Check) => println!("The configuration is valid."),
        Command::Config(ConfigCommand::Print) => {
            for setting in &config.shown {
                println!("{} = {}    # {}", setting.name, setting.value, setting.source);
            }
        }
        Command::Run => runtime()?.block_on(run::run(config))?,
        Command::Migrate => runtime()?.block_on(run::migrate(config))?,
        Command::Restore => runtime()?.block_on(run::restored(config))?,
        Command::Document { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

fn read_config(args: &Args) -> anyhow::Result<Config> {
    let file = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                anyhow::anyhow!("cannot read the configuration file {}: {error}", path.display())
            })?;
            Some((path.display().to_string(), text))
        }
        None => None,
    };
    let text = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let flags =
        Flags { roles: args.roles.clone(), listen: args.listen.clone(), data_dir: args.data_dir.clone() };
    let config = Config::read(text, std::env::vars(), flags)?;
    if let (Some(path), [first, ..]) = (&args.config, config.secrets_in_file.as_slice()) {
        let checked = std::fs::metadata(path).map_err(anyhow::Error::from);
        let checked = checked.and_then(|metadata| Ok(secret_file::check(path, &metadata)?));
        checked.with_context(|| format!("the configuration file contains a secret ({first})"))?;
    }
    Ok(config)
}
