//! `gpuaas agents`.

use clap::Subcommand;
use sdk::{Client, types};

use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    output::Columns,
};

#[derive(Subcommand)]
pub enum Command {
    /// List the available agent programs.
    List,
}

const COLUMNS: Columns =
    &[("VERSION", "version"), ("ARCHITECTURE", "architecture"), ("SIZE", "size_bytes"), ("SHA256", "sha256")];

pub async fn run(app: &App, command: Command) -> Result {
    let Command::List = command;
    let client = app.client().await?;
    app.out.list(&programs(&client).await?, COLUMNS)
}

async fn programs(client: &Client) -> Result<Vec<types::AgentProgram>> {
    Ok(send!(client.agent_program_list()).items)
}

/// The digest of the only program of a version, or of the one for an architecture.
pub async fn digest(client: &Client, version: &str, architecture: Option<&str>) -> Result<String> {
    let programs = programs(client).await?;
    let fits = |program: &&types::AgentProgram| {
        program.version == version && architecture.is_none_or(|name| program.architecture == name)
    };
    let found: Vec<&types::AgentProgram> = programs.iter().filter(fits).collect();
    match found.as_slice() {
        [program] => Ok(program.sha256.clone()),
        [] => Err(Failure::new(Exit::NotFound, format!("there is no agent program {version}"))
            .suggest("List them with `gpuaas agents list`.")),
        _ => {
            let names: Vec<&str> = found.iter().map(|program| program.architecture.as_str()).collect();
            Err(Failure::client(format!("there is a program {version} for {}", names.join(" and for ")))
                .suggest("Give --architecture."))
        }
    }
}
