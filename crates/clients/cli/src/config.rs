//! The context: which server, organization and project commands work with. Kept in `config.toml` in the
//! directory `gpuaas` of `$XDG_CONFIG_HOME` (or `~/.config`).

use std::{
    fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use kernel::Ambient;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result, local};

pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// The configuration directory, which may not exist yet.
pub fn directory() -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    base.map(|base| base.join("gpuaas")).ok_or_else(|| {
        Failure::client("the configuration directory is unknown").suggest("Set HOME or XDG_CONFIG_HOME.")
    })
}

pub fn config_path(directory: &Path) -> PathBuf {
    directory.join("config.toml")
}

impl Config {
    pub fn load(directory: &Path) -> Result<Self> {
        let path = config_path(directory);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| {
                Failure::client(format!("{} cannot be read: {}", path.display(), error.message()))
                    .suggest("Correct the file, or remove it and use `gpuaas context use`.")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(local(format!("{} cannot be read", path.display()))(error)),
        }
    }

    pub fn save(&self, directory: &Path) -> Result {
        let text = toml::to_string(self).map_err(local("the context cannot be written"))?;
        write_private(&config_path(directory), text.as_bytes())
    }
}

/// Replaces a file as a whole, also while others do. What is half written is never seen.
pub fn replace_file(path: &Path, content: &[u8], mode: u32, ambient: &Ambient) -> Result {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", ambient.uuid().simple()));
    let temporary = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        // A new file, so that no symbolic link is followed.
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        local(format!("{} cannot be written", path.display()))(error)
    })
}

/// Replaces a file as a whole, readable by its owner only.
pub fn write_private(path: &Path, content: &[u8]) -> Result {
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A new file, so that the mode is ours and no symbolic link is followed.
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(local(format!("{} cannot be written", path.display())))
}
