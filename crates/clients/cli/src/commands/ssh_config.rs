//! `gpuaas ssh-config`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use sdk::types;

use super::ssh::proxy_command;
use crate::{
    app::App,
    failure::{Failure, Result},
    output::{note, write},
    resolve,
    ssh::{HOST_KEYS_CHANGED, Host, Machine, Section, default_file, host_label, known_hosts_keep, update},
};

/// Writes the machines of the project into the configuration of ssh, as NAME.gpuaas and NAME.PROJECT.gpuaas: then ssh, scp,
/// sftp, rsync, git, port forwarding and editors reach them by that name, through the server. A name that machines of several
/// projects have works with the project only. Run it again after a launch. Everything else in the file stays as it is.
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
    let mut machines = Vec::new();
    for allocation in &active {
        let Some(connection) = &allocation.connection else { continue };
        machines.extend(Machine::new(&allocation.id, &allocation.name, connection)?);
    }
    let shown = Box::pin(client.project_get(&project)).await;
    // A name for people, where it can be read.
    let slug = shown.map_or_else(|_| project.clone(), |shown| shown.into_inner().slug);
    let label = host_label(&slug, &project).to_owned();
    let mut section = Section { project: project.clone(), label, hosts: Vec::new() };
    let mut changed: Option<Failure> = None;
    for machine in &machines {
        // One whose keys have changed keeps those that are known: ssh refuses the others.
        if let Err(failure) = known_hosts_keep(&app.directory, machine, &app.ambient) {
            if failure.code.as_deref() != Some(HOST_KEYS_CHANGED) {
                return Err(failure);
            }
            if let Some(before) = changed.replace(failure) {
                note(&before.message);
            }
        }
        let options = machine.options(&proxy_command(app, &project, &machine.id)?, &app.directory);
        let is_only = machines.iter().filter(|other| other.name == machine.name).count() == 1;
        let name = if is_only { &machine.name } else { &machine.id };
        section.hosts.push(Host { name: name.clone(), options });
    }
    if section.hosts.len() < active.len() {
        let others = active.len() - section.hosts.len();
        note(&format!(
            "Machines without known SSH host keys are left out: {others}. Use `gpuaas terminal` for them."
        ));
    }
    if command.print {
        write(&section.text())?;
        return changed.map_or(Ok(()), Err);
    }
    let path = command.file.map_or_else(default_file, Ok)?;
    let updated = update(&path, &section, &app.ambient)?;
    let names = updated.aliases.join(", ");
    note(&match (updated.changed, names.is_empty()) {
        (false, _) => format!("{} is up to date.", path.display()),
        (true, true) => format!("Removed the machines of the project from {}.", path.display()),
        (true, false) => format!("Wrote {} to {}.", names, path.display()),
    });
    if !updated.shared.is_empty() {
        note(&format!(
            "Machines of other projects are called so too, and are reached with their project in the name only: {}",
            updated.shared.join(", ")
        ));
    }
    changed.map_or(Ok(()), Err)
}
