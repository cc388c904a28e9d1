//! `gpuaas ssh-config`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use sdk::types;

use super::ssh::proxy_command;
use crate::{
    app::App,
    failure::Result,
    output::{note, write},
    resolve,
    ssh::{Machine, Section, default_file, known_hosts_write, update},
};

/// Writes the machines of the project into the configuration of ssh, as NAME.gpuaas: then ssh, scp, sftp, rsync, git, port
/// forwarding and editors reach them by that name, through the server. Run it again after a launch. Everything else in the file
/// stays as it is.
#[derive(ClapArgs)]
pub struct Command {
    /// File to write to, instead of ~/.ssh/config.
    #[arg(long, value_name = "PATH", conflicts_with = "print")]
    file: Option<PathBuf>,
    /// Print the lines, and write no configuration.
    #[arg(long)]
    print: bool,
}

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let project = resolve::project(app, &client).await?;
    let (group_id, state, live) = (None, Some(types::AllocationState::Active), None);
    let active: Vec<types::Allocation> = pages!(None, |page| client.allocation_list(
        &project,
        page.cursor(),
        group_id,
        live,
        page.size(),
        state
    ))?;
    let mut section = Section { project: project.clone(), hosts: Vec::new() };
    for allocation in &active {
        let Some(connection) = &allocation.connection else { continue };
        let Some(machine) = Machine::new(&allocation.id, &allocation.name, connection)? else { continue };
        known_hosts_write(&app.directory, &machine, &app.ambient)?;
        let options = machine.options(&proxy_command(app, &project, &machine.id)?, &app.directory);
        section.hosts.push((machine.host, options));
    }
    if section.hosts.len() < active.len() {
        let others = active.len() - section.hosts.len();
        note(&format!(
            "Machines without known SSH host keys are left out: {others}. Use `gpuaas terminal` for them."
        ));
    }
    if command.print {
        return write(&section.text());
    }
    let path = command.file.map_or_else(default_file, Ok)?;
    let changed = update(&path, &section, &app.ambient)?;
    let names = section.hosts.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>().join(", ");
    note(&match (changed, names.is_empty()) {
        (false, _) => format!("{} is up to date.", path.display()),
        (true, true) => format!("Removed the machines of the project from {}.", path.display()),
        (true, false) => format!("Wrote {} to {}.", names, path.display()),
    });
    Ok(())
}
