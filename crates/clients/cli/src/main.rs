//! The command line program `gpuaas`.
//!
//! A run is: read the command line (`args`), the context (`config`) and the credentials (`credentials`,
//! `session`); send requests through the generated client (`sdk`); print the response in the requested format
//! (`output`) to standard output, and everything else to standard error. Each group of commands is one file in
//! `commands`; `coverage` lists which API operation each of them calls, and a test fails for an operation that
//! no command calls. `menu` orders them by task, `examples` shows their use, `resources` knows what people call things
//! by, `watch` repeats a command, `terminal` is a window on a shell.
//!
//! Guarantees: data goes to standard output and nothing else does; JSON is complete and stable; the exit code says
//! what kind of failure it was (`failure::Exit`); secrets are kept in a file that only its owner can read and
//! never appear in an address or an argument; every wait has a limit.

mod app;
mod args;
mod commands;
mod config;
#[cfg(test)]
mod coverage;
mod credentials;
mod examples;
mod failure;
#[cfg(test)]
mod help;
mod hints;
mod login;
mod menu;
mod output;
mod process;
mod resolve;
mod resources;
#[cfg(test)]
mod runbooks;
mod session;
mod ssh;
mod terminal;
mod watch;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::{
    app::App,
    args::Args,
    commands::completion,
    failure::{Exit, local},
};

fn main() -> ExitCode {
    clap_complete::CompleteEnv::with_factory(menu::command).var(completion::VARIABLE).complete();
    let matches = match menu::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return unreadable(&error),
    };
    let args = match Args::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => return unreadable(&error),
    };
    let format = args.global.output;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the async runtime: {error}");
            return Exit::Client.into();
        }
    };
    let outcome = runtime.block_on(async {
        if watch::is_wanted(&matches) {
            let parse = || Args::from_arg_matches(&matches).map_err(local("the command line cannot be read"));
            return watch::repeat(parse).await.map(|()| ExitCode::SUCCESS);
        }
        let Args { global, command } = args;
        let app = App::new(global)?;
        Box::pin(commands::run(&app, command)).await
    });
    // The name lookup of a request that was given up is not waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            failure.print(format);
            failure.exit.into()
        }
    }
}

/// Help and version are results; everything else is an error in the command line.
fn unreadable(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { Exit::Client.into() } else { ExitCode::SUCCESS }
}
