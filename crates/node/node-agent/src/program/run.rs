//! `run`: the agent as a service.

use std::{
    ffi::CString,
    fs::File,
    os::unix::ffi::OsStringExt as _,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{ProgramError, VERSION, ambient, facts, logging, runtime};
use crate::{
    atomic,
    config::Config,
    drivers::real,
    executor::ThreadExecutor,
    handlers::{DrainMark, Handlers, Replace},
    identity::{FileStore, IdentityStore as _},
    journal::FileJournal,
    logs::{LogStreams, kernel::KernelLog},
    redact::redact,
    session::{Agent, Log, MachineReports, Parts, Settings, Updates},
    ssh::{SshLimits, SshStreams},
    streams::NodeStreams,
    terminals::{HostShells, Terminals},
    transport::Tcp,
    update::{AtStart, PREVIOUS, PROOF_LIMIT, Updater},
};

const LOG_LINES: usize = 2000;

impl Replace for Arc<Updater> {
    fn replace(
        &self,
        input: &node_proto::catalog::SelfUpdateInput,
        job: &crate::executor::Job,
    ) -> crate::drivers::Done<()> {
        (**self).replace(input, job)
    }
}

pub(super) fn run(config: Config) -> Result<ExitCode, ProgramError> {
    let state_dir = &config.state_dir;
    let state = |error| ProgramError::Io { what: state_dir.display().to_string(), error };
    atomic::private_dir(state_dir).map_err(state)?;
    let _only = only_one(&config)?;
    let program = std::env::current_exe().map_err(ProgramError::io("the path of this program"))?;

    let cancel = CancellationToken::new();
    let again = Arc::new(AtomicBool::new(false));
    let restart = {
        let (cancel, again) = (cancel.clone(), again.clone());
        Arc::new(move || {
            again.store(true, Ordering::Relaxed);
            cancel.cancel();
        })
    };
    let updater = Updater::open(program.clone(), state_dir, VERSION, restart.clone()).map_err(state)?;
    if updater.at_start().map_err(ProgramError::io("the update on trial"))? == AtStart::StartAgain {
        return Err(start_again(program));
    }
    let updater = Arc::new(updater);

    let ambient = ambient();
    let log = Log::new(ambient.clone(), LOG_LINES, redact);
    logging::start(&config.log_level, log.clone());
    let kernel_log = KernelLog::new(&config.roots, ambient.clone(), redact);
    let streams = NodeStreams {
        terminals: Terminals::new(Arc::new(HostShells::new(&config))),
        logs: LogStreams::new(log.clone(), Some(kernel_log)),
        ssh: SshStreams::new(&config, SshLimits::default()),
    };
    let drivers = Arc::new(real::drivers(ambient.clone(), &config));
    let drain = DrainMark::open(state_dir.join("drain.json"));
    let facts = facts(&config.roots, drivers.power.boot_id());
    let handlers =
        Handlers { drivers: drivers.clone(), drain: drain.clone(), replace: Some(Box::new(updater.clone())) };
    let store = Arc::new(FileStore::open(state_dir)?);
    let agent = Agent::new(Parts {
        connect: Arc::new(Tcp),
        journal: FileJournal::open(state_dir)?,
        executor: ThreadExecutor::new(Arc::new(handlers)),
        store: store.clone(),
        ambient,
        facts,
        reports: Arc::new(MachineReports::new(drivers, drain)),
        updates: updater.clone() as Arc<dyn Updates>,
        log,
        settings: Settings { url: config.url.clone(), ..Settings::default() },
        streams: Arc::new(streams),
    });
    tracing::info!(version = VERSION, state_dir = %state_dir.display(), "the agent starts");

    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        tokio::spawn(stop_on_signals(cancel.clone())?);
        if updater.on_trial() {
            tokio::spawn(update_timeout_watch(updater.clone(), restart));
        }
        if let Ok(Some(identity)) = store.load() {
            // Shells of an agent that was killed: nobody can attach to them any more.
            node_terminal::end_leftovers(identity.node_id()).await;
        }
        Box::pin(agent.run(cancel)).await.map_err(ProgramError::from)
    });
    // What hangs in a driver must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome?;
    if again.load(Ordering::Relaxed) { Err(start_again(program)) } else { Ok(ExitCode::SUCCESS) }
}

/// The old program, started as `<program>.previous`, looks after the new one.
pub(super) fn guard(config: Config) -> Result<ExitCode, ProgramError> {
    let this = std::env::current_exe().map_err(ProgramError::io("the path of this program"))?;
    let program = this.to_str().and_then(|path| path.strip_suffix(PREVIOUS)).map(PathBuf::from);
    let program = program.ok_or_else(|| {
        ProgramError::Other(format!("guard is for the program that is kept as *{PREVIOUS}"))
    })?;
    let updater = Updater::open(program, &config.state_dir, VERSION, Arc::new(|| {}))
        .map_err(ProgramError::io(config.state_dir.display().to_string()))?;
    if updater.guard().map_err(ProgramError::io("the update on trial"))? {
        super::print_line("the new program did not start; rolled back to the previous one")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Two agents on one journal would be the end of "at most once".
fn only_one(config: &Config) -> Result<Flock<File>, ProgramError> {
    let path = config.state_dir.join("lock");
    let file = File::create(&path).map_err(ProgramError::io(path.display().to_string()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        ProgramError::Other(format!("another agent uses {}; stop it first", config.state_dir.display()))
    })
}

fn stop_on_signals(
    cancel: CancellationToken,
) -> Result<impl Future<Output = ()> + Send + 'static, ProgramError> {
    let listen = |kind| signal(kind).map_err(ProgramError::io("signals"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop");
        cancel.cancel();
    })
}

async fn update_timeout_watch(updater: Arc<Updater>, restart: Arc<dyn Fn() + Send + Sync>) {
    tokio::time::sleep(PROOF_LIMIT).await;
    if updater.on_trial() {
        match updater.roll_back() {
            Ok(()) => {
                tracing::error!(
                    "the control plane was not reached in time; rolling back to the previous program"
                );
                restart();
            }
            Err(error) => tracing::error!(%error, "the rollback to the previous program failed"),
        }
    }
}

/// Becomes the program that is in this place now. Returns only if that fails.
fn start_again(program: PathBuf) -> ProgramError {
    let text = |text: std::ffi::OsString| CString::new(text.into_vec());
    let args: Result<Vec<CString>, _> = std::env::args_os().map(text).collect();
    let error = match (text(program.into_os_string()), args) {
        (Ok(program), Ok(args)) => match nix::unistd::execv(&program, &args) {
            Ok(never) => match never {},
            Err(error) => error.to_string(),
        },
        _ => "its path or arguments cannot be used".to_owned(),
    };
    ProgramError::Other(format!("the program cannot be started again: {error}"))
}
