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

use super::aliases::{Others, first_line, first_words, last_line, long_alias, short_alias};
use crate::{
    config::replace_file,
    failure::{Failure, Result, local},
};

const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// The machines of one project.
pub struct Section {
    pub project: String,
    /// What the project is called in host names.
    pub label: String,
    pub hosts: Vec<Host>,
}

/// A machine in the configuration.
pub struct Host {
    /// Of the machine; not its whole host name.
    pub name: String,
    pub options: Vec<(&'static str, String)>,
}

/// What was done.
pub struct Updated {
    pub changed: bool,
    /// How each machine is called, in their order.
    pub aliases: Vec<String>,
    /// Names that machines of other projects have too.
    pub shared: Vec<String>,
}

impl Section {
    /// Where no other project is.
    pub fn text(&self) -> String {
        self.text_among(&Others::new(b"", b"")).0
    }

    /// With its first and last line; nothing when there are no hosts. Also how each machine is called.
    fn text_among(&self, others: &Others<'_>) -> (String, Vec<String>) {
        if self.hosts.is_empty() {
            return (String::new(), Vec::new());
        }
        let label = if others.have_label(&self.label) { &self.project } else { &self.label };
        let mut text = format!("{}\n", first_line(&self.project, label));
        let mut first_aliases = Vec::new();
        for Host { name, options } in &self.hosts {
            let mut aliases = vec![long_alias(name, label)];
            if !others.have_name(name) {
                aliases.insert(0, short_alias(name));
            }
            text.push_str(&format!("Host {}\n", aliases.join(" ")));
            for (name, value) in options {
                text.push_str(&format!("    {name} {value}\n"));
            }
            text.push('\n');
            first_aliases.extend(aliases.into_iter().next());
        }
        text.push_str(&format!("Host *\n{}\n", last_line(&self.project)));
        (text, first_aliases)
    }

    /// The file with this section instead of the one that it has, or before everything else.
    fn put_into(&self, file: &[u8]) -> Result<(Vec<u8>, Updated)> {
        let place = self.find(file)?.unwrap_or(0..0);
        let others = Others::new(&file[..place.start], &file[place.end..]);
        let (text, aliases) = self.text_among(&others);
        let names = self.hosts.iter().map(|host| host.name.as_str());
        let shared: Vec<&str> = names.filter(|name| others.have_name(name)).collect();
        let [before, behind] = others.without_short(&shared);
        let after = [&before, text.as_bytes(), &behind].concat();
        let shared = shared.into_iter().map(str::to_owned).collect();
        let changed = after != file;
        Ok((after, Updated { changed, aliases, shared }))
    }

    /// Where the section stands, with its last line break.
    fn find(&self, file: &[u8]) -> Result<Option<std::ops::Range<usize>>> {
        let (first, last) = (first_words(&self.project), last_line(&self.project));
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

/// Puts the section into the file.
pub fn update(path: &Path, section: &Section, ambient: &Ambient) -> Result<Updated> {
    let named =
        |error: Failure| Failure { message: format!("{}: {}", path.display(), error.message), ..error };
    let (before, mode) = read_own(path).map_err(named)?;
    let (after, updated) = section.put_into(&before).map_err(named)?;
    if updated.changed {
        replace_file(path, &after, mode, ambient)?;
    }
    Ok(updated)
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
        let host = |host: &&str| Host { name: (*host).to_owned(), options: options(host) };
        let hosts = hosts.iter().map(host).collect();
        Section { project: project.to_owned(), label: project.replace("proj_", "lab-"), hosts }
    }

    fn put(section: &Section, file: &str) -> String {
        String::from_utf8(section.put_into(file.as_bytes()).unwrap().0).unwrap()
    }

    /// The lines that name machines.
    fn host_lines(file: &str) -> Vec<&str> {
        file.lines().filter_map(|line| line.strip_prefix("Host ")).filter(|names| *names != "*").collect()
    }

    #[test]
    fn a_section_comes_first_is_replaced_where_it_stands_and_goes_without_hosts() {
        const REST: &str = "ServerAliveInterval 5\nHost x\n  User me";
        let one = put(&section("proj_1", &["a"]), REST);
        assert!(one.ends_with(&format!("Host *\n# END gpuaas proj_1\n{REST}")), "{one}");
        assert_eq!(put(&section("proj_1", &["a"]), &one), one, "nothing changes");
        let two = put(&section("proj_2", &["b"]), &one);
        assert_eq!(host_lines(&two), ["b.gpuaas b.lab-2.gpuaas", "a.gpuaas a.lab-1.gpuaas", "x"]);
        let other = put(&section("proj_1", &["c", "d"]), &two);
        let c_and_d = ["c.gpuaas c.lab-1.gpuaas", "d.gpuaas d.lab-1.gpuaas"];
        assert_eq!(host_lines(&other), ["b.gpuaas b.lab-2.gpuaas", c_and_d[0], c_and_d[1], "x"]);
        let gone = put(&section("proj_2", &[]), &put(&section("proj_1", &[]), &other));
        assert_eq!(gone, REST);
        // A project whose id begins like another's.
        assert!(section("proj_", &["z"]).find(one.as_bytes()).unwrap().is_none());
    }

    #[test]
    fn a_name_in_two_projects_is_nobodys_until_it_is_one_machines_again() {
        const REST: &str = "Host train.gpuaas\n  User mine\n";
        let one = put(&section("proj_1", &["train", "own"]), REST);
        let (two, updated) = section("proj_2", &["train"]).put_into(one.as_bytes()).unwrap();
        assert_eq!(updated.aliases, ["train.lab-2.gpuaas"]);
        assert_eq!(updated.shared, ["train"]);
        let two = String::from_utf8(two).unwrap();
        let own = "own.gpuaas own.lab-1.gpuaas";
        let both = ["train.lab-2.gpuaas", "train.lab-1.gpuaas", own, "train.gpuaas"];
        assert_eq!(host_lines(&two), both, "the last line is not ours");
        // The same from the other side, and again.
        let again = put(&section("proj_1", &["train", "own"]), &two);
        assert_eq!(again, two);
        let gone = put(&section("proj_1", &["train"]), &put(&section("proj_2", &[]), &two));
        assert_eq!(host_lines(&gone), ["train.gpuaas train.lab-1.gpuaas", "train.gpuaas"]);
    }

    #[test]
    fn projects_of_one_label_and_sections_of_earlier_versions_are_told_apart() {
        let mut one = section("proj_1", &["train"]);
        let mut two = section("proj_2", &["train"]);
        (one.label, two.label) = ("default".to_owned(), "default".to_owned());
        let file = put(&two, &put(&one, ""));
        assert_eq!(host_lines(&file), ["train.proj_2.gpuaas", "train.default.gpuaas"]);

        let earlier = "# BEGIN gpuaas proj_1 (written by `gpuaas ssh-config`; changes here are lost)\n\
                       Host train.gpuaas\n    User gpu1\n\nHost *\n# END gpuaas proj_1\n";
        let file = put(&section("proj_2", &["train"]), earlier);
        assert_eq!(host_lines(&file), ["train.lab-2.gpuaas", "train.proj_1.gpuaas"]);
        let file = put(&section("proj_1", &["train"]), earlier);
        assert_eq!(host_lines(&file), ["train.gpuaas train.lab-1.gpuaas"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_and_damaged_sections_are_not_guessed() {
        let file = b"# \xff\xfe\r\nHost x\r\n";
        let after = section("proj_1", &["a"]).put_into(file).unwrap().0;
        assert!(after.ends_with(file));
        let text = String::from_utf8(section("proj_1", &["a"]).put_into(b"").unwrap().0).unwrap();
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
        assert!(update(&path, &section("proj_1", &["a"]), &ambient).unwrap().changed);
        assert!(!update(&path, &section("proj_1", &["a"]), &ambient).unwrap().changed, "written once");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(update(&path, &section("proj_1", &["b"]), &ambient).unwrap().changed);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);

        let target = directory.path().join("target");
        fs::write(&target, "mine").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(
            update(&link, &section("proj_1", &["a"]), &ambient)
                .err()
                .unwrap()
                .message
                .contains("symbolic link")
        );
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }
}
