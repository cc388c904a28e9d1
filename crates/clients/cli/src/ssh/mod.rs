//! `gpuaas ssh`: the ssh client of this machine, through the server, to a machine without an open port.
//!
//! `gpuaas ssh` becomes ssh, with options that make it connect through `gpuaas ssh-proxy` (`proxy`): standard input and output
//! on one side, a WebSocket of the server on the other. `gpuaas ssh-config` writes the same options into the configuration of
//! ssh (`config_file`), so that scp, sftp, rsync, git, forwarding and editors work by the name of the machine.
//!
//! - ssh asks no question about the host key: the server knows the keys of the machine, which the machine itself reported
//!   when it was made, and they are the only ones that ssh accepts (`known_hosts`). Whoever answers with another key is
//!   refused, also when it is the server that sends the bytes elsewhere.
//! - Every connection has a token of its own, which the proxy mints with the credentials of this program. It is a header of one
//!   request and stands in no argument, variable, file or log.
//! - The proxy keeps nothing: it reads one side only when the other has taken what was read before.

mod config_file;
mod known_hosts;
mod machine;
mod proxy;

pub use config_file::{Section, default_file, update};
pub use known_hosts::known_hosts_write;
pub use machine::{Machine, proxy_line};
pub use proxy::run as run_proxy;
