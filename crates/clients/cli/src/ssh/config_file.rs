//! The configuration of ssh: a section of ours, and everything else as it was, byte for byte.
//!
//! A section stands at the beginning of the file, because ssh takes the first value that it finds, and ends with `Host *`, so
//! that what follows applies to all hosts as it did before. It is found again by its first and last line.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use kernel::Ambient;

use crate::{
    config::replace_file,
    failure::{Failure, Result, local},
};

const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// The hosts of one project.
pub struct Section {
    pub project: String,
    /// Host and its options.
    pub hosts: Vec<(String, Vec<(&'static str, String)>)>,
}

impl Section {
    fn first_line(&self) -> String {
        format!("# BEGIN gpuaas {} (written by `gpuaas ssh-config`; changes here are lost)", self.project)
    }

    fn last_line(&self) -> String {
        format!("# END gpuaas {}", self.project)
    }

    /// With its first and last line; nothing when there are no hosts.
    pub fn text(&self) -> String {
        if self.hosts.is_empty() {
            return String::new();
        }
        let mut text = format!("{}\n", self.first_line());
        for (host, options) in &self.hosts {
            text.push_str(&format!("Host {host}\n"));
            for (name, value) in options {
                text.push_str(&format!("    {name} {value}\n"));
            }
            text.push('\n');
        }
        text.push_str(&format!("Host *\n{}\n", self.last_line()));
        text
    }

    /// The file with this section instead of the one that it has, or before everything else.
    fn put_into(&self, file: &[u8]) -> Result<Vec<u8>> {
        let place = self.find(file)?.unwrap_or(0..0);
        Ok([&file[..place.start], self.text().as_bytes(), &file[place.end..]].concat())
    }

    /// Where the section stands, with its last line break.
    fn find(&self, file: &[u8]) -> Result<Option<std::ops::Range<usize>>> {
        let (first, last) = (format!("# BEGIN gpuaas {} ", self.project), self.last_line());
        let (mut begins, mut ends, mut at) = (Vec::new(), Vec::new(), 0);
        for line in file.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(first.as_bytes()) {
                begins.push(at);
            } else if line.trim_ascii_end() == last.as_bytes() {
                ends.push(at + line.len());
            }
            at += line.len();
        }
        match (begins[..].first(), ends[..].first(), begins.len(), ends.len()) {
            (None, None, 0, 0) => Ok(None),
            (Some(begin), Some(end), 1, 1) if begin < end => Ok(Some(*begin..*end)),
            _ => Err(Failure::client(format!("the lines `{first}…` and `{last}` do not fit together"))
                .suggest("Remove both lines and what is between them, and run the command again.")),
        }
    }
}

/// Of this user.
pub fn default_file() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    home.map(|home| home.join(".ssh/config")).ok_or_else(|| {
        Failure::client("the configuration of ssh is not found")
            .suggest("Set HOME, or name the file with --file.")
    })
}

/// Puts the section into the file. Answers whether the file changed.
pub fn update(path: &Path, section: &Section, ambient: &Ambient) -> Result<bool> {
    let named =
        |error: Failure| Failure { message: format!("{}: {}", path.display(), error.message), ..error };
    let (before, mode) = read_own(path).map_err(named)?;
    let after = section.put_into(&before).map_err(named)?;
    if after == before {
        return Ok(false);
    }
    replace_file(path, &after, mode, ambient)?;
    Ok(true)
}

/// The file and its mode, if it is a plain one of this user. A link is not followed: replacing the file would break it, and
/// somebody else may have put it there.
fn read_own(path: &Path) -> Result<(Vec<u8>, u32)> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0o600)),
        found => found.map_err(local("it cannot be read"))?,
    };
    let refuse = |why: &str| Failure::client(why).suggest("Name another file with --file, or use --print.");
    if found.is_symlink() {
        return Err(refuse("it is a symbolic link; name the file that it leads to with --file"));
    }
    if !found.is_file() || found.len() > LARGEST_FILE {
        return Err(refuse("it is no file of ssh"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse("it belongs to somebody else"));
    }
    let bytes = fs::read(path).map_err(local("it cannot be read"))?;
    Ok((bytes, found.permissions().mode() & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(project: &str, hosts: &[&str]) -> Section {
        let options = |host: &str| vec![("User", "gpu1".to_owned()), ("HostKeyAlias", host.to_owned())];
        let hosts = hosts.iter().map(|host| ((*host).to_owned(), options(host))).collect();
        Section { project: project.to_owned(), hosts }
    }

    fn put(section: &Section, file: &str) -> String {
        String::from_utf8(section.put_into(file.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_section_comes_first_is_replaced_where_it_stands_and_goes_without_hosts() {
        const REST: &str = "ServerAliveInterval 5\nHost x\n  User me";
        let one = put(&section("proj_1", &["a"]), REST);
        assert!(one.ends_with(&format!("Host *\n# END gpuaas proj_1\n{REST}")), "{one}");
        assert_eq!(put(&section("proj_1", &["a"]), &one), one, "nothing changes");
        let two = put(&section("proj_2", &["b"]), &one);
        assert!(two.contains("Host a\n") && two.contains("Host b\n"));
        let other = put(&section("proj_1", &["c", "d"]), &two);
        assert!(!other.contains("Host a\n") && other.contains("Host d\n") && other.contains("Host b\n"));
        let gone = put(&section("proj_2", &[]), &put(&section("proj_1", &[]), &other));
        assert_eq!(gone, REST);
        // A project whose id begins like another's.
        assert!(section("proj_", &["z"]).find(one.as_bytes()).unwrap().is_none());
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_and_damaged_sections_are_not_guessed() {
        let file = b"# \xff\xfe\r\nHost x\r\n";
        let after = section("proj_1", &["a"]).put_into(file).unwrap();
        assert!(after.ends_with(file));
        let text = String::from_utf8(section("proj_1", &["a"]).put_into(b"").unwrap()).unwrap();
        let (begin, end) = (text.lines().next().unwrap(), text.lines().last().unwrap());
        for damaged in [
            format!("{begin}\nHost a\n"),
            format!("{end}\n"),
            format!("{end}\n{begin}\n"),
            format!("{text}{text}"),
        ] {
            assert!(section("proj_1", &["a"]).put_into(damaged.as_bytes()).is_err(), "{damaged}");
        }
    }

    #[test]
    fn the_file_keeps_its_mode_and_a_link_is_not_followed() {
        let ambient = Ambient::system();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/.ssh/config");
        assert!(update(&path, &section("proj_1", &["a"]), &ambient).unwrap());
        assert!(!update(&path, &section("proj_1", &["a"]), &ambient).unwrap(), "written once");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(update(&path, &section("proj_1", &["b"]), &ambient).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);

        let target = directory.path().join("target");
        fs::write(&target, "mine").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(
            update(&link, &section("proj_1", &["a"]), &ambient)
                .unwrap_err()
                .message
                .contains("symbolic link")
        );
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }
}
