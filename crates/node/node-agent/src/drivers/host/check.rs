//! What is asked is checked before anything is done: names, ids, shells, keys.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use node_proto::catalog::{AccountLimits, AccountSpec};

use crate::drivers::{Done, DriverError};

/// Below are the system's own accounts and those that people make by hand.
pub const FIRST_ID: u32 = 20_000;
/// Above, ids are read as negative numbers by some programs.
const LAST_ID: u32 = 2_000_000_000;
const NOBODY: [u32; 2] = [65_534, 65_535];
const KEYS_AT_MOST: usize = 256;
const KEY_LINE_BYTES: usize = 8 * 1024;
const KEY_TYPES: &[&str] = &[
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

pub fn username(name: &str) -> Done<()> {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    let rest = chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
    if !first || !rest || name.len() > 32 {
        return Err(DriverError::invalid("the user name must be [a-z_][a-z0-9_-]{0,31}"));
    }
    Ok(())
}

pub fn account(account: &AccountSpec) -> Done<()> {
    username(&account.username)?;
    for (what, id) in [("uid", account.uid), ("gid", account.gid)] {
        if !(FIRST_ID..=LAST_ID).contains(&id) || NOBODY.contains(&id) {
            return Err(DriverError::invalid(format!(
                "the {what} {id} is not an allocation's: it must be from {FIRST_ID} to {LAST_ID} and not nobody's"
            )));
        }
    }
    Ok(())
}

pub fn owner(owner: &str) -> Done<()> {
    let good = owner.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !good || owner.is_empty() || owner.len() > 64 {
        return Err(DriverError::invalid("the owner must be [a-z0-9_]{1,64}"));
    }
    Ok(())
}

pub fn shell(shell: &str) -> Done<()> {
    let plain = shell.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if !plain || !shell.starts_with('/') || shell.split('/').any(|part| part == "..") || shell.len() > 128 {
        return Err(DriverError::invalid("the shell must be a plain absolute path"));
    }
    Ok(())
}

pub fn limits(limits: &AccountLimits) -> Done<()> {
    if limits.processes == Some(0) || limits.open_files == Some(0) {
        return Err(DriverError::invalid("a limit of 0 would lock the user out; leave it out instead"));
    }
    Ok(())
}

/// The keys as they are written: one per line, each once, in the order given.
pub fn keys(lines: &[String]) -> Done<Vec<String>> {
    if lines.len() > KEYS_AT_MOST {
        return Err(DriverError::invalid(format!("at most {KEYS_AT_MOST} keys")));
    }
    let mut keys: Vec<String> = Vec::with_capacity(lines.len());
    for (number, line) in lines.iter().enumerate() {
        let key = key(line).map_err(|why| DriverError::invalid(format!("key {}: {why}", number + 1)))?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// `type base64`, without a comment.
pub fn bare_key(line: &str) -> Result<String, &'static str> {
    let key = key(line)?;
    Ok(key.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" "))
}

/// `type base64 [comment]`: options would let a key do other things than sign in, and a line break would be
/// another key.
fn key(line: &str) -> Result<String, &'static str> {
    if line.len() > KEY_LINE_BYTES {
        return Err("longer than 8 KiB");
    }
    if line.chars().any(|c| c.is_control()) {
        return Err("it must be one line without control characters");
    }
    let mut parts = line.trim().splitn(3, ' ');
    let (kind, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !KEY_TYPES.contains(&kind) {
        return Err("it must begin with the type of an OpenSSH public key, without options");
    }
    let bytes = STANDARD.decode(body).map_err(|_| "its second part is not base64")?;
    let named = bytes.split_first_chunk::<4>().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        (rest.len() > length).then(|| rest.get(..length)).flatten()
    });
    if named != Some(kind.as_bytes()) {
        return Err("it is not a key of the type that it names");
    }
    let comment = parts.next().unwrap_or_default().trim();
    Ok(if comment.is_empty() { format!("{kind} {body}") } else { format!("{kind} {body} {comment}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1rbtDqO3zIp0Oj7bF2e5rWzNwyXcOkRmDqSbfGUpt9 someone@home";

    #[test]
    fn only_plain_keys_are_taken_and_each_once() {
        assert_eq!(keys(&[KEY.into(), KEY.into()]).unwrap(), [KEY]);
        let body = KEY.split(' ').nth(1).unwrap();
        for bad in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 !!!!",
            &format!("command=\"/bin/sh\" {KEY}"),
            &format!("{KEY}\n{KEY}"),
            &format!("{KEY}\r"),
            &format!("ssh-rsa {body}"),
            &format!("ssh-dss {body}"),
            &format!("ssh-ed25519 {}", body.get(..20).unwrap()),
            &format!("ssh-ed25519  {body}"),
        ] {
            assert!(keys(&[bad.to_string()]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_accounts_of_allocations_pass() {
        let spec = |username: &str, uid, gid| AccountSpec { username: username.into(), uid, gid };
        assert!(account(&spec("a_user-1", 20_000, 20_000)).is_ok());
        for (name, uid, gid) in [
            ("", 20_000, 20_000),
            ("-rf", 20_000, 20_000),
            ("a b", 20_000, 20_000),
            ("Root", 20_000, 20_000),
            ("a:b", 20_000, 20_000),
            ("../x", 20_000, 20_000),
            ("abcdefghijklmnopqrstuvwxyzabcdefg", 20_000, 20_000),
            ("a", 0, 20_000),
            ("a", 20_000, 19_999),
            ("a", 65_534, 20_000),
            ("a", u32::MAX, 20_000),
        ] {
            assert!(account(&spec(name, uid, gid)).is_err(), "{name} {uid} {gid}");
        }
        assert!(owner("alloc_01").is_ok());
        assert!(["", "a/b", "a.b", "A", "a b", "a\n"].iter().all(|bad| owner(bad).is_err()));
        assert!(shell("/bin/bash").is_ok());
        assert!(["bash", "/bin/../x", "/bin/sh -c", "/a:b", ""].iter().all(|bad| shell(bad).is_err()));
    }
}
