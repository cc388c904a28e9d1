//! The public keys of the machine's SSH server.

use std::path::Path;

use super::check;
use crate::drivers::files::read_bounded;

const DIRECTORY: &str = "etc/ssh";
const LARGEST_FILE: usize = 16 * 1024;
/// A machine has one of each type.
const MOST_KEYS: usize = 8;

/// Each as `type base64`, in the order of the files' names. What cannot be read is left out: the machine is usable without,
/// but not by SSH through the tunnel.
pub fn read(root: &Path) -> Vec<String> {
    let directory = root.join(DIRECTORY);
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(directory = %directory.display(), %error, "there are no SSH host keys to report");
            return Vec::new();
        }
    };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("ssh_host_") && name.ends_with("_key.pub")
    });
    files.sort_unstable();
    files.iter().filter_map(|path| key(path)).take(MOST_KEYS).collect()
}

fn key(path: &Path) -> Option<String> {
    let text = match read_bounded(path, LARGEST_FILE) {
        Ok((bytes, false)) => String::from_utf8(bytes).ok(),
        Ok((_, true)) | Err(_) => None,
    };
    let key = text.and_then(|text| check::bare_key(text.trim()).ok());
    if key.is_none() {
        tracing::warn!(path = %path.display(), "the file is no SSH host key");
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1rbtDqO3zIp0Oj7bF2e5rWzNwyXcOkRmDqSbfGUpt9";

    #[test]
    fn public_host_keys_are_read_without_their_comments_and_nothing_else_is() {
        let root = tempfile::tempdir().unwrap();
        assert!(read(root.path()).is_empty(), "no SSH server");
        let ssh = root.path().join(DIRECTORY);
        std::fs::create_dir_all(&ssh).unwrap();
        for (name, text) in [
            ("ssh_host_ed25519_key.pub", format!("{KEY} root@gpu-01\n")),
            ("ssh_host_ed25519_key", "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned()),
            ("ssh_host_rsa_key.pub", "ssh-rsa damaged".to_owned()),
            ("ssh_host_two_key.pub", format!("{KEY}\n{KEY}\n")),
            ("ssh_host_large_key.pub", format!("{KEY} {}", "x".repeat(LARGEST_FILE))),
            ("id_ed25519.pub", KEY.to_owned()),
        ] {
            std::fs::write(ssh.join(name), text).unwrap();
        }
        assert_eq!(read(root.path()), [KEY]);
    }
}
