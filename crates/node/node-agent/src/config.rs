//! The agent's configuration: where things are on this machine. Nothing in it is secret, and nothing in it
//! weakens a check. Every path can be moved, so that the real drivers can be run against a made-up tree.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

pub const DEFAULT_PATH: &str = "/etc/gpuaas-agent/agent.toml";
const LARGEST_FILE_BYTES: u64 = 64 * 1024;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Keys, trust, journal. Owned by the agent's user, closed to all others.
    pub state_dir: PathBuf,
    /// Where the node listener is now, if it has moved since the node joined.
    pub url: Option<String>,
    /// `error`, `warn`, `info` or `debug`: what the agent writes to its own log.
    pub log_level: String,
    /// Where the machine's SSH server listens on its loopback address: the only port that streams lead to.
    pub ssh_port: u16,
    pub roots: Roots,
    pub programs: Programs,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: "/var/lib/gpuaas-agent".into(),
            url: None,
            log_level: "info".to_owned(),
            ssh_port: 22,
            roots: Roots::default(),
            programs: Programs::default(),
        }
    }
}

/// Where the machine's own trees are.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Roots {
    /// The host's file system: `etc`, `home`, `var` are looked up below it.
    pub root: PathBuf,
    pub sysfs: PathBuf,
    pub proc: PathBuf,
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { root: "/".into(), sysfs: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

impl Roots {
    /// All four below one directory: `sys`, `proc`, `dev` and the rest.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into(), sysfs: root.join("sys"), proc: root.join("proc"), dev: root.join("dev") }
    }
}

/// The programs that drivers may run, by absolute path. `None` means: this machine has none, do without.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Programs {
    pub useradd: PathBuf,
    pub usermod: PathBuf,
    pub userdel: PathBuf,
    pub groupadd: PathBuf,
    pub groupdel: PathBuf,
    pub loginctl: Option<PathBuf>,
    pub systemctl: Option<PathBuf>,
    pub crontab: Option<PathBuf>,
    pub visudo: Option<PathBuf>,
    pub dmesg: Option<PathBuf>,
    pub ipcrm: Option<PathBuf>,
    pub journalctl: Option<PathBuf>,
    pub nvidia_smi: Option<PathBuf>,
    pub rocm_smi: Option<PathBuf>,
    /// Runs the shell of a terminal as the owner's user.
    pub runuser: Option<PathBuf>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            useradd: "/usr/sbin/useradd".into(),
            usermod: "/usr/sbin/usermod".into(),
            userdel: "/usr/sbin/userdel".into(),
            groupadd: "/usr/sbin/groupadd".into(),
            groupdel: "/usr/sbin/groupdel".into(),
            loginctl: Some("/usr/bin/loginctl".into()),
            systemctl: Some("/usr/bin/systemctl".into()),
            crontab: Some("/usr/bin/crontab".into()),
            visudo: Some("/usr/sbin/visudo".into()),
            dmesg: Some("/usr/bin/dmesg".into()),
            ipcrm: Some("/usr/bin/ipcrm".into()),
            journalctl: Some("/usr/bin/journalctl".into()),
            nvidia_smi: Some("/usr/bin/nvidia-smi".into()),
            rocm_smi: Some("/opt/rocm/bin/rocm-smi".into()),
            runuser: Some("/usr/sbin/runuser".into()),
        }
    }
}

impl Programs {
    /// Name and path of each, and whether the agent cannot do its work without it.
    pub fn list(&self) -> Vec<(&'static str, &Path, bool)> {
        let needed: [(&'static str, &PathBuf); 5] = [
            ("useradd", &self.useradd),
            ("usermod", &self.usermod),
            ("userdel", &self.userdel),
            ("groupadd", &self.groupadd),
            ("groupdel", &self.groupdel),
        ];
        let optional: [(&'static str, &Option<PathBuf>); 10] = [
            ("loginctl", &self.loginctl),
            ("systemctl", &self.systemctl),
            ("crontab", &self.crontab),
            ("visudo", &self.visudo),
            ("dmesg", &self.dmesg),
            ("ipcrm", &self.ipcrm),
            ("journalctl", &self.journalctl),
            ("nvidia_smi", &self.nvidia_smi),
            ("rocm_smi", &self.rocm_smi),
            ("runuser", &self.runuser),
        ];
        let needed = needed.into_iter().map(|(name, path)| (name, path.as_path(), true));
        let optional =
            optional.into_iter().filter_map(|(name, path)| path.as_deref().map(|path| (name, path, false)));
        needed.chain(optional).collect()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {error}; check --config and the file's permissions")]
    Read { path: PathBuf, error: io::Error },
    #[error("the configuration {path} is not valid: {error}")]
    Parse { path: PathBuf, error: Box<toml::de::Error> },
    #[error("the configuration {path}: {problem}")]
    Invalid { path: PathBuf, problem: String },
}

impl Config {
    /// Reads the file; a default path that does not exist means the defaults.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let (path, optional) = (path.unwrap_or(Path::new(DEFAULT_PATH)), path.is_none());
        let read = |error| ConfigError::Read { path: path.into(), error };
        let text = match std::fs::metadata(path) {
            Err(error) if optional && error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(read(error)),
            Ok(meta) if meta.len() > LARGEST_FILE_BYTES => {
                return Err(read(io::Error::other("it is larger than 64 KiB")));
            }
            Ok(_) => std::fs::read_to_string(path).map_err(read)?,
        };
        let config: Self = toml::from_str(&text)
            .map_err(|error| ConfigError::Parse { path: path.into(), error: Box::new(error) })?;
        config.check().map_err(|problem| ConfigError::Invalid { path: path.into(), problem })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let roots = &self.roots;
        let dirs = [
            ("state_dir", &self.state_dir),
            ("roots.root", &roots.root),
            ("roots.sysfs", &roots.sysfs),
            ("roots.proc", &roots.proc),
            ("roots.dev", &roots.dev),
        ];
        let relative = dirs.into_iter().map(|(name, path)| (name, path.as_path()));
        let programs = self.programs.list().into_iter().map(|(name, path, _)| (name, path));
        if let Some((name, _)) = relative.chain(programs).find(|(_, path)| !path.is_absolute()) {
            return Err(format!("{name} must be an absolute path"));
        }
        if !["error", "warn", "info", "debug"].contains(&self.log_level.as_str()) {
            return Err("log_level must be error, warn, info or debug".to_owned());
        }
        if self.ssh_port == 0 {
            return Err("ssh_port must be from 1 to 65535".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(Some(&path))
    }

    #[test]
    fn an_empty_file_means_the_defaults_and_odd_values_are_refused() {
        assert_eq!(parse("").unwrap().state_dir, Path::new("/var/lib/gpuaas-agent"));
        assert_eq!(
            parse("[programs]\nuseradd = '/x/useradd'").unwrap().programs.useradd,
            Path::new("/x/useradd")
        );
        for bad in [
            "state_dir = 'here'",
            "insecure = true",
            "log_level = 'loud'",
            "ssh_port = 0",
            "[programs]\nuserdel = 'userdel'",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_named_file_must_exist() {
        assert!(Config::load(Some(Path::new("/nonexistent/config.toml"))).is_err());
    }
}
