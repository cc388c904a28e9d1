//! `gpuaas completion`.

use clap::{Args as ClapArgs, ValueEnum};
use clap_complete::env::Shells;

use crate::{
    failure::{Failure, Result, local},
    output::write_bytes,
};

/// The variable by which the shell asks for completions.
pub const VARIABLE: &str = "GPUAAS_COMPLETE";

#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

/// For bash: `gpuaas completion bash > ~/.local/share/bash-completion/completions/gpuaas`.
#[derive(ClapArgs)]
pub struct Command {
    /// Shell to print the script for.
    #[arg(value_enum)]
    shell: Shell,
}

/// A few lines that ask the program itself: names of machines, products and nodes come from the server.
pub fn run(command: &Command) -> Result {
    let name = command.shell.to_possible_value();
    let name = name.as_ref().map(|value| value.get_name()).unwrap_or_default();
    let shells = Shells::builtins();
    let shell = shells.completer(name).ok_or_else(|| Failure::client(format!("no completion for {name}")))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "gpuaas", "gpuaas", "gpuaas", &mut script)
        .map_err(local("the script cannot be printed"))?;
    write_bytes(&script)
}
