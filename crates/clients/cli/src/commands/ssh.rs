//! `gpuaas ssh`.

use clap::Args as ClapArgs;
use sdk::types;

use super::allocations::refusal::quoted;
use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    output::note,
    process, resolve,
};

/// Runs the local ssh client with the address of the allocation. The ssh client itself asks whether to trust an unknown
/// host key.
#[derive(ClapArgs)]
pub struct Command {
    /// Allocation, by name or id.
    allocation: String,
    /// Arguments of the ssh client: options, or a command to run on the machine.
    #[arg(last = true, value_name = "ARGUMENT")]
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
        let text =
            format!("{} runs on a simulated node: there is no machine to log in to", command.allocation);
        return Err(Failure::new(Exit::Conflict, text).suggest(
            "Everything else works as on a real one. For a machine to log in to, add a server: gpuaas nodes create HOSTNAME \
             --region REGION",
        ));
    }
    if !allocation.access_current {
        note("The latest SSH keys are not installed on the machine yet.");
    }
    let mut arguments = destination(connection)?;
    arguments.extend(command.arguments);
    Err(process::become_ssh(&arguments))
}

/// The arguments of ssh. Values from the server must not be parsed as options.
fn destination(connection: &types::AllocationConnection) -> Result<Vec<String>> {
    let types::AllocationConnection { ssh_host, ssh_port, username, simulated: _ } = connection;
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
    let types::AllocationConnection { ssh_host, ssh_port, username, simulated: _ } = connection;
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
        types::AllocationConnection { ssh_host, ssh_port: port, username, simulated: None }
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
