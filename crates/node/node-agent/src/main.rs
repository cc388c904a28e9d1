//! `gpuaas-agent`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    node_agent::program::main()
}
