//! `--watch`: the same command again and again.

use std::{io::IsTerminal as _, time::Duration};

use clap::ArgMatches;

use crate::{
    app::App,
    args::{Args, REPEAT},
    commands,
    failure::{Exit, Result},
    output,
};

const PAUSE: Duration = Duration::from_secs(2);

/// Whether the innermost command has `--watch`.
pub fn is_wanted(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) => is_wanted(inner),
        None => matches.try_get_one::<bool>(REPEAT).ok().flatten().copied().unwrap_or(false),
    }
}

/// Runs a command until it fails or is interrupted. A server that does not answer for a moment does not end it.
pub async fn repeat(parse: impl Fn() -> Result<Args>) -> Result {
    let screen = std::io::stdout().is_terminal();
    let mut first = true;
    loop {
        if screen {
            output::clear_before_next();
        }
        let Args { global, command } = parse()?;
        let app = App::new(global)?;
        let ran = tokio::select! {
            ran = Box::pin(commands::run(&app, command)) => ran,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        match ran {
            Err(failure) if failure.exit == Exit::Server && !first => failure.print(app.out.format),
            other => drop(other?),
        }
        first = false;
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}
