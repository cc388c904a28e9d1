//! `gpuaas ssh-proxy`: what ssh runs to connect. `gpuaas ssh` and `gpuaas ssh-config` name it to ssh.

use clap::Args as ClapArgs;

use crate::{
    app::App,
    failure::Result,
    resolve,
    ssh::{run_proxy, standard_input, standard_output},
    terminal::{Ticket, connect_to, http_client},
};

const PROTOCOL: &str = "gpuaas.ssh.v1";

/// Carries one SSH connection between standard input and output and the machine, through the server.
#[derive(ClapArgs)]
pub struct Command {
    /// Allocation, by name or id.
    allocation: String,
}

pub async fn run(app: &App, command: Command) -> Result {
    // The keys that interrupt or suspend ssh are not meant for its connection: a suspended ssh finds it when it goes on.
    // Where this program was started by hand it may lead a group, and stays in it.
    let _ = rustix::process::setsid();
    let client = app.client().await?;
    let project = resolve::project(app, &client).await?;
    let allocation = resolve::allocation(&client, &project, &command.allocation).await?;
    let issued = send!(client.ssh_token_create(&project, &allocation));
    let ticket = Ticket { url: &issued.url, token: &issued.token, protocol: PROTOCOL };
    let socket = connect_to(&http_client()?, &app.server, &ticket).await?;
    drop(issued);
    run_proxy(socket, standard_input(), standard_output(), &command.allocation).await
}
