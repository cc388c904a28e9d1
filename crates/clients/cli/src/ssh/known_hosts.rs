//! The host keys of one machine, as ssh reads them. One file for each machine, so that several programs can write at once.
//!
//! A machine is an allocation: one that is launched again has another id, and another file. The keys of one that stays do not
//! change, and so other keys are not taken over, whoever names them: not even the server may replace what is known.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD},
};
use kernel::{Ambient, digest::sha256};

use super::machine::Machine;
use crate::{
    config::replace_file,
    failure::{Exit, Failure, Result, local},
};

/// The code of the failure when keys are named that were not known.
pub const HOST_KEYS_CHANGED: &str = "host_keys_changed";

pub fn known_hosts_file(directory: &Path, id: &str) -> PathBuf {
    directory.join("ssh").join(format!("{id}.known_hosts"))
}

/// Keeps the keys of a machine that was not seen before. Fails when keys are named that a machine which was seen did not have.
pub fn known_hosts_keep(directory: &Path, machine: &Machine, ambient: &Ambient) -> Result {
    let path = known_hosts_file(directory, &machine.id);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(local(format!("{} cannot be read", path.display())))?,
    };
    let is_own = |line: &&str| line.split(' ').next() == Some(machine.id.as_str());
    let known: Vec<&str> =
        text.lines().filter(is_own).filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    if known.is_empty() {
        let line = |key: &String| format!("{} {key}\n", machine.id);
        let text: String = machine.host_keys.iter().map(line).collect();
        return replace_file(&path, text.as_bytes(), 0o600, ambient);
    }
    let unknown: Vec<&str> =
        machine.host_keys.iter().map(String::as_str).filter(|key| !known.contains(key)).collect();
    if unknown.is_empty() { Ok(()) } else { Err(changed(machine, &path, &known, &unknown)) }
}

fn changed(machine: &Machine, path: &Path, known: &[&str], unknown: &[&str]) -> Failure {
    let list = |keys: &[&str]| keys.iter().map(|key| fingerprint(key)).collect::<Vec<_>>().join(", ");
    let message = format!(
        "THE SSH HOST KEYS OF {} HAVE CHANGED. Somebody may be listening in: a machine keeps its keys until it is released. \
         Known on this computer: {}. Now named by the server: {}. You are not connected.",
        machine.name,
        list(known),
        list(unknown),
    );
    let suggestion = format!(
        "Ask your operators. To look at the keys on the machine itself: gpuaas terminal {}, and there: ssh-keygen -lf \
         /etc/ssh/ssh_host_ed25519_key.pub. If you know why they changed, remove {} and run the command again.",
        machine.name,
        path.display()
    );
    Failure { code: Some(HOST_KEYS_CHANGED.to_owned()), ..Failure::new(Exit::Conflict, message) }
        .suggest(suggestion)
}

/// As ssh shows it.
fn fingerprint(key: &str) -> String {
    let (kind, body) = key.split_once(' ').unwrap_or((key, ""));
    let blob = BASE64_STANDARD.decode(body).unwrap_or_default();
    format!("{kind} SHA256:{}", BASE64_STANDARD_NO_PAD.encode(sha256(&blob)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDb4KgPU1jW7Hu3tQge9APO7bGZuZVNdWcTfKs7Yr6d+";
    const MORE: &str = "ssh-rsa AAAAB3NzaC1yc2E=";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn machine(id: &str, keys: &[&str]) -> Machine {
        Machine {
            id: id.to_owned(),
            name: "train-1".to_owned(),
            user: "gpu1".to_owned(),
            host_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    #[test]
    fn keys_of_a_machine_are_kept_once_and_others_are_refused_until_a_person_decides() {
        let directory = tempfile::tempdir().unwrap();
        let keep = |machine: &Machine| known_hosts_keep(directory.path(), machine, &Ambient::system());
        let file = known_hosts_file(directory.path(), "alloc_1");
        keep(&machine("alloc_1", &[OWN, MORE])).unwrap();
        let kept = fs::read_to_string(&file).unwrap();
        assert_eq!(kept, format!("alloc_1 {OWN}\nalloc_1 {MORE}\n"));
        for same in [&[OWN, MORE][..], &[MORE, OWN], &[OWN]] {
            keep(&machine("alloc_1", same)).unwrap();
        }
        for changed in [&[OTHER][..], &[OWN, MORE, OTHER]] {
            let refused = keep(&machine("alloc_1", changed)).unwrap_err();
            assert_eq!((refused.exit, refused.code.as_deref()), (Exit::Conflict, Some(HOST_KEYS_CHANGED)));
            assert!(refused.message.contains("train-1") && refused.message.contains(&fingerprint(OTHER)));
            assert!(refused.suggestion.unwrap().contains(&*file.to_string_lossy()));
            assert_eq!(fs::read_to_string(&file).unwrap(), kept, "what is known stays");
        }
        // Launched again, it is another machine; and a person may decide.
        keep(&machine("alloc_2", &[OTHER])).unwrap();
        fs::remove_file(&file).unwrap();
        keep(&machine("alloc_1", &[OTHER])).unwrap();
    }

    #[test]
    fn a_fingerprint_is_what_ssh_keygen_shows() {
        assert_eq!(fingerprint(OTHER), "ssh-ed25519 SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk");
    }
}
