//! `gpuaas ssh`: the ssh client of this machine, through the server, to a machine without an open port.
//!
//! `gpuaas ssh` becomes ssh, with options that make it connect through `gpuaas ssh-proxy` (`proxy`): standard input and output
//! on one side, a WebSocket of the server on the other. `gpuaas ssh-config` writes the same options into the configuration of
//! ssh (`config_file`), so that scp, sftp, rsync, git, forwarding and editors work by the name of the machine (`aliases`).
//!
//! - ssh asks no question about the host key: the server knows the keys of the machine, which the machine itself reported
//!   when it was made, and they are the only ones that ssh accepts (`known_hosts`). Whoever answers with another key is
//!   refused, also when it is the server that sends the bytes elsewhere, or that names other keys for the same machine.
//! - Every connection has a token of its own, which the proxy mints with the credentials of this program. It is a header of one
//!   request and stands in no argument, variable, file or log.
//! - The proxy keeps nothing: it reads one side only when the other has taken what was read before.

mod aliases;
mod config_file;
mod known_hosts;
mod machine;
mod proxy;
mod stdio;

pub use aliases::short_alias;
pub use config_file::{Host, Section, default_file, update};
pub use known_hosts::{HOST_KEYS_CHANGED, known_hosts_keep};
pub use machine::{Machine, host_label, proxy_line};
pub use proxy::run as run_proxy;
pub use stdio::{standard_input, standard_output};
