//! A machine as ssh has to know it.

use std::path::Path;

use sdk::types;

use super::known_hosts::known_hosts_file;
use crate::failure::{Exit, Failure, Result};

/// All of it was checked: it becomes arguments, a line of shell and lines of files.
#[derive(Debug)]
pub struct Machine {
    pub id: String,
    /// What people call it; its id where that cannot be a host name.
    pub name: String,
    pub user: String,
    pub host_keys: Vec<String>,
}

fn is_plain(text: &str, more: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
}

/// What a project is called in host names: its slug, if it can be a part of one.
pub fn host_label<'a>(slug: &'a str, project: &'a str) -> &'a str {
    if is_plain(slug, "_-") { slug } else { project }
}

/// `type base64`.
fn is_key(line: &str) -> bool {
    line.split_once(' ').is_some_and(|(kind, body)| is_plain(kind, "-@.") && is_plain(body, "+/="))
}

impl Machine {
    /// Nothing when its host keys are not known.
    pub fn new(id: &str, name: &str, connection: &types::AllocationConnection) -> Result<Option<Self>> {
        let types::AllocationConnection { username, host_keys, .. } = connection;
        if !is_plain(id, "_") || !is_plain(username, "._-") || !host_keys.iter().all(|key| is_key(key)) {
            return Err(Failure::new(Exit::Server, "the server sent an invalid SSH address"));
        }
        if host_keys.is_empty() {
            return Ok(None);
        }
        let name = if is_plain(name, "._-") { name } else { id };
        Ok(Some(Self {
            id: id.to_owned(),
            name: name.to_owned(),
            user: username.clone(),
            host_keys: host_keys.clone(),
        }))
    }

    /// Options of ssh, by name and value. `proxy` is the line of shell that connects; `directory` has the known hosts.
    pub fn options(&self, proxy: &str, directory: &Path) -> Vec<(&'static str, String)> {
        let known_hosts = known_hosts_file(directory, &self.id);
        vec![
            ("User", self.user.clone()),
            ("HostKeyAlias", self.id.clone()),
            ("ProxyCommand", proxy.replace('%', "%%")),
            ("UserKnownHostsFile", quoted_path(&known_hosts.to_string_lossy())),
            ("GlobalKnownHostsFile", "/dev/null".to_owned()),
            // Never asks, and never learns a key that the server does not know.
            ("StrictHostKeyChecking", "yes".to_owned()),
            ("UpdateHostKeys", "no".to_owned()),
            ("CheckHostIP", "no".to_owned()),
        ]
    }
}

/// As a value of the configuration of ssh.
fn quoted_path(path: &str) -> String {
    format!("\"{}\"", path.replace('%', "%%"))
}

/// One word of a line of shell.
fn quoted_word(word: &str) -> String {
    // What begins with a dash is an option, and meant as one.
    if is_plain(word.trim_start_matches('-'), "/._-:") {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The line of shell that connects to a machine: this program, told where.
pub fn proxy_line(program: &str, server: &str, project: &str, id: &str) -> String {
    let words = [program, "--server", server, "--project", project, "ssh-proxy", id];
    words.map(quoted_word).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDb4KgPU1jW7Hu3tQge9APO7bGZuZVNdWcTfKs7Yr6d+";

    fn connection(user: &str, keys: &[&str]) -> types::AllocationConnection {
        types::AllocationConnection {
            ssh_host: "h".to_owned(),
            ssh_port: 22,
            username: user.to_owned(),
            host_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            simulated: None,
        }
    }

    #[test]
    fn a_machine_without_known_keys_is_none_and_what_is_not_plain_is_refused() {
        let machine = Machine::new("alloc_1", "train-1", &connection("gpu1", &[KEY])).unwrap().unwrap();
        assert_eq!((machine.name.as_str(), machine.user.as_str()), ("train-1", "gpu1"));
        let odd = Machine::new("alloc_1", "a b", &connection("gpu1", &[KEY])).unwrap().unwrap();
        assert_eq!(odd.name, "alloc_1");
        assert!(Machine::new("alloc_1", "train-1", &connection("gpu1", &[])).unwrap().is_none());
        let newline = format!("{KEY}\n@cert-authority * {KEY}");
        for (id, user, key) in [
            ("alloc_1\n", "gpu1", KEY),
            ("alloc_1", "-oProxyCommand=id", KEY),
            ("alloc_1", "gpu1\nHost *", KEY),
            ("alloc_1", "gpu1", "* ssh-ed25519 AAAA"),
            ("alloc_1", "gpu1", newline.as_str()),
            ("alloc_1", "gpu1", ""),
        ] {
            assert!(
                Machine::new(id, "train-1", &connection(user, &[key])).is_err(),
                "{id:?} {user:?} {key:?}"
            );
        }
    }

    #[test]
    fn the_line_of_shell_survives_spaces_quotes_and_percent_signs() {
        let line = proxy_line("/home/o'neil/100% bin/gpuaas", "https://x", "proj_1", "alloc_1");
        assert_eq!(
            line,
            r"'/home/o'\''neil/100% bin/gpuaas' --server https://x --project proj_1 ssh-proxy alloc_1"
        );
        let machine = Machine::new("alloc_1", "train-1", &connection("gpu1", &[KEY])).unwrap().unwrap();
        let options = machine.options(&line, Path::new("/home/100% me"));
        let value = |name| options.iter().find(|(option, _)| *option == name).unwrap().1.clone();
        assert!(value("ProxyCommand").contains("100%% bin"));
        assert_eq!(value("UserKnownHostsFile"), "\"/home/100%% me/ssh/alloc_1.known_hosts\"");
        assert_eq!(value("StrictHostKeyChecking"), "yes");
    }
}
