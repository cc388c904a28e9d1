//! `gpuaas completion`.

use clap::{Args as ClapArgs, CommandFactory as _};
use clap_complete::Shell;

use crate::{args::Args, failure::Result, output::write_bytes};

/// For bash: `gpuaas completion bash > ~/.local/share/bash-completion/completions/gpuaas`.
#[derive(ClapArgs)]
pub struct Command {
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(command: &Command) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut Args::command(), "gpuaas", &mut script);
    write_bytes(&script)
}
