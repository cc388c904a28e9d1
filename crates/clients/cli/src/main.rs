//! The command line program `gpuaas`.
//!
//! A run is: read the command line (`args`), the context (`config`) and the credentials (`credentials`,
//! `session`); send requests through the generated client (`sdk`); print the response in the requested format
//! (`output`) to standard output, and everything else to standard error. Each group of commands is one file in
//! `commands`; `coverage` lists which API operation each of them calls, and a test fails for an operation that
//! no command calls.
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
mod failure;
mod login;
mod output;
mod process;
mod resolve;
#[cfg(test)]
mod runbooks;
mod session;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{app::App, args::Args, failure::Exit};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are results; everything else is an error in the command line.
            let _ = error.print();
            return if error.use_stderr() { Exit::Client.into() } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the async runtime: {error}");
            return Exit::Client.into();
        }
    };
    let outcome = runtime.block_on(async {
        let Args { global, command } = args;
        let app = App::new(global)?;
        Box::pin(commands::run(&app, command)).await
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit.into()
        }
    }
}
