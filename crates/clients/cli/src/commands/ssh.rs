//! `gpuaas ssh`.

use std::path::Path;

use clap::Args as ClapArgs;
use sdk::types;

use super::allocations::refusal::quoted;
use crate::{
    app::App,
    failure::{Exit, Failure, Result, local},
    output::note,
    process, resolve,
    ssh::{Machine, known_hosts_keep, proxy_line, short_alias},
};

/// Runs the ssh client of this machine, connected through the server: the machine needs no open port. The server knows the
/// host keys of the machine, and no others are accepted. `gpuaas ssh-config` makes scp, rsync, git and editors work too.
#[derive(ClapArgs)]
pub struct Command {
    /// Connect to the address of the machine itself, where the network allows it. The ssh client asks whether to trust an
    /// unknown host key.
    #[arg(long)]
    direct: bool,
    /// Allocation, by name or id.
    allocation: String,
    /// Command to run on the machine; after `--`, options of the ssh client too.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    arguments: Vec<String>,
}

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let project = resolve::project(app, &client).await?;
    let id = resolve::allocation(&client, &project, &command.allocation).await?;
    let (state, wait) = (None, None);
    let allocation = send!(client.allocation_get(&project, &id, state, wait));
    let Some(connection) = &allocation.connection else {
        let text =
            format!("{} is {}; you can log in only while it is active", command.allocation, allocation.state);
        return Err(Failure::new(Exit::Conflict, text).suggest(format!(
            "Follow its progress with `gpuaas allocations show {} --watch`.",
            quoted(&command.allocation)
        )));
    };
    if connection.simulated == Some(true) {
        let text = format!("{} runs on a simulated node, which has no SSH server", command.allocation);
        return Err(Failure::new(Exit::Conflict, text)
            .suggest(format!("Open a shell on it with: gpuaas terminal {}", quoted(&command.allocation))));
    }
    if !allocation.access_current {
        note("The latest SSH keys are not installed on the machine yet.");
    }
    let mut arguments = if command.direct {
        destination(connection)?
    } else {
        let Some(machine) = Machine::new(&id, &allocation.name, connection)? else {
            let text = format!("the SSH host keys of {} are not known", command.allocation);
            let name = quoted(&command.allocation);
            return Err(Failure::new(Exit::Conflict, text).suggest(format!(
                "Open a shell on it with: gpuaas terminal {name}. Where the network allows it: gpuaas ssh --direct {name}"
            )));
        };
        known_hosts_keep(&app.directory, &machine, &app.ambient)?;
        through_server(&machine, &proxy_command(app, &project, &id)?, &app.directory)
    };
    arguments.extend(command.arguments);
    Err(process::become_ssh(&arguments))
}

/// The arguments of ssh that connect through this program.
fn through_server(machine: &Machine, proxy: &str, directory: &Path) -> Vec<String> {
    let options = machine.options(proxy, directory).into_iter();
    let mut arguments: Vec<String> =
        options.flat_map(|(name, value)| ["-o".to_owned(), format!("{name}={value}")]).collect();
    arguments.push(short_alias(&machine.name));
    arguments
}

/// The line of shell by which ssh connects to a machine.
pub fn proxy_command(app: &App, project: &str, id: &str) -> Result<String> {
    let program = std::env::current_exe().map_err(local("the path of this program is not known"))?;
    let program = program.to_str().ok_or_else(|| Failure::client("the path of this program is not text"))?;
    Ok(proxy_line(program, &app.server, project, id))
}

/// The arguments of ssh. Values from the server must not be parsed as options.
fn destination(connection: &types::AllocationConnection) -> Result<Vec<String>> {
    let types::AllocationConnection { ssh_host, ssh_port, username, .. } = connection;
    let plain = |text: &str, more: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
    };
    if !plain(ssh_host, ".-:_") || !plain(username, "._-") || !(1..=65_535).contains(ssh_port) {
        return Err(Failure::new(Exit::Server, "the server sent an invalid SSH address"));
    }
    Ok(vec!["-p".to_owned(), ssh_port.to_string(), "-l".to_owned(), username.clone(), ssh_host.clone()])
}

/// The same for people to type.
pub fn line(connection: &types::AllocationConnection) -> String {
    let types::AllocationConnection { ssh_host, ssh_port, username, .. } = connection;
    match ssh_port {
        22 => format!("ssh {username}@{ssh_host}"),
        port => format!("ssh -p {port} {username}@{ssh_host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: i32, user: &str) -> types::AllocationConnection {
        let (ssh_host, username) = (host.to_owned(), user.to_owned());
        types::AllocationConnection {
            ssh_host,
            ssh_port: port,
            username,
            host_keys: Vec::new(),
            simulated: None,
        }
    }

    #[test]
    fn the_way_to_a_machine_is_given_as_arguments() {
        let arguments = destination(&at("gpu.example.org", 2222, "u1")).unwrap();
        assert_eq!(arguments, ["-p", "2222", "-l", "u1", "gpu.example.org"]);
        assert_eq!(line(&at("10.0.0.7", 22, "u1")), "ssh u1@10.0.0.7");
        assert_eq!(line(&at("10.0.0.7", 2222, "u1")), "ssh -p 2222 u1@10.0.0.7");
        assert!(destination(&at("2001:db8::1", 22, "u1")).is_ok());
    }

    #[test]
    fn an_address_cannot_be_an_option_or_a_command() {
        for (host, port, user) in [
            ("-oProxyCommand=id", 22, "u"),
            ("a b", 22, "u"),
            ("$(id)", 22, "u"),
            ("", 22, "u"),
            ("h", 0, "u"),
            ("h", 70_000, "u"),
            ("h", 22, "-x"),
            ("h", 22, "u@other"),
        ] {
            assert!(destination(&at(host, port, user)).is_err(), "{host} {port} {user}");
        }
    }
}
