//! `gpuaas terminal`.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use kernel::ids::TerminalSessionId;

use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    output::{note, write},
    process::open_browser,
    resolve,
    terminal::{
        Access, ApiMint, CommandLine, EscapeKey, Leave, Local, Outcome, Run, Screen, http_client,
        require_terminal,
    },
};

/// Opens a shell on the machine through the server: no SSH key, and no open port of the machine. The shell outlives this
/// window: a connection that is lost is made again, and --session comes back to it later. The exit code is that of the
/// shell.
#[derive(ClapArgs)]
#[command(after_help = "At the beginning of a line:\n  \
                        ~.  detach; the shell goes on\n  \
                        ~~  a ~\n  \
                        ~?  help\n\n\
                        Keys that are typed while the connection is lost are dropped.")]
pub struct Command {
    /// Allocation, by name or id.
    allocation: String,
    /// Come back to this session instead of starting one, by id.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only show what happens in the session.
    #[arg(long, conflicts_with = "take_over")]
    watch: bool,
    /// Take the session over from the window that types in it.
    #[arg(long)]
    take_over: bool,
    /// Open it in a browser instead of here, and print the address.
    #[arg(long, conflicts_with_all = ["watch", "take_over"])]
    web: bool,
    /// Key that begins an escape at the beginning of a line, or `none`.
    #[arg(long, value_name = "KEY", default_value = "~")]
    escape_key: EscapeKey,
}

pub async fn run(app: &App, command: Command) -> Result<ExitCode> {
    if !command.web {
        require_terminal()?;
    }
    let client = app.client().await?;
    let project = resolve::project(app, &client).await?;
    let allocation = resolve::allocation(&client, &project, &command.allocation).await?;
    let session = match &command.session {
        Some(text) => Some(resolve::terminal_session(&client, &project, &allocation, text).await?),
        None => None,
    };
    if command.web {
        let session = session.map(|session| format!("#{session}")).unwrap_or_default();
        return open_page(app, &format!("{}/terminal/{project}/{allocation}{session}", app.server));
    }
    let access = match (command.watch, command.take_over) {
        (true, _) => Access::Watch,
        (_, true) => Access::TakeOver,
        _ => Access::Write,
    };
    let mut run = Run {
        mint: ApiMint::new(app, project, allocation)?,
        http: http_client()?,
        server: &app.server,
        ambient: &app.ambient,
        command: CommandLine {
            allocation: command.allocation,
            org: app.given.org.clone(),
            project: app.given.project.clone(),
        },
        session,
        access,
    };
    let mut local = Local::of_process(command.escape_key)?;
    let screen = Screen::start(std::io::stdout(), std::io::stderr());
    let outcome = Box::pin(run.run(&mut local, &screen)).await;
    // The terminal has its modes again before anything is printed.
    drop(local);
    match outcome? {
        Outcome::Exited(status) => {
            note(&format!("The session ended: exit status {status}."));
            Ok(ExitCode::from(status))
        }
        Outcome::Left(leave) => left(leave, &run.command, run.session, access),
    }
}

/// Where there is nobody to look at a browser, the address is only printed.
fn open_page(app: &App, address: &str) -> Result<ExitCode> {
    if app.may_ask() {
        open_browser(address);
    }
    write(&format!("{address}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The session goes on, if there is one.
fn left(
    leave: Leave,
    command: &CommandLine,
    session: Option<TerminalSessionId>,
    access: Access,
) -> Result<ExitCode> {
    let option = if access == Access::Watch { "--watch" } else { "" };
    let back = session.map(|_| format!("come back with: {}", command.line(session, option)));
    let (exit, why) = match leave {
        Leave::Detached => {
            note(&back.map_or("Detached.".to_owned(), |back| format!("Detached; {back}")));
            return Ok(ExitCode::SUCCESS);
        }
        Leave::Interrupted => (Exit::Interrupted, "interrupted"),
        Leave::Terminated => (Exit::Client, "ended by a signal"),
        Leave::NoKeyboard => (Exit::Client, "standard input ended"),
    };
    let failure = Failure::new(exit, why);
    Err(match back {
        Some(back) => failure.suggest(format!("The session goes on; {back}")),
        None => failure,
    })
}
