//! The key that seals other keys: a 0600 file, made on first start.

use std::{
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use kernel::{Ambient, Secret};

use crate::secret_file::{self, SecretFileError};

#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    #[error("the master key cannot be used: {0}")]
    File(#[from] SecretFileError),
    #[error("the master key {path} must hold 64 hex digits; restore it from your backup")]
    Malformed { path: String },
    #[error("the master key {path} cannot be read or made")]
    Io {
        path: String,
        #[source]
        error: io::Error,
    },
}

/// Reads the key, or makes one when there is no file yet. Losing the file loses what it seals.
pub fn load_or_create(path: &Path, ambient: &Ambient) -> Result<Secret<[u8; 32]>, MasterKeyError> {
    let shown = path.display().to_string();
    let io = |error| MasterKeyError::Io { path: shown.clone(), error };
    if let Some(dir) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io)?;
    }
    let fresh: [u8; 32] = ambient.bytes();
    // Written aside and linked into place, so that two starting replicas agree on one key.
    let aside = path.with_extension(format!("new-{}", ambient.uuid().simple()));
    let create = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside);
    if !path.exists() {
        let mut file = create.map_err(io)?;
        let text: String = fresh.iter().map(|b| format!("{b:02x}")).collect();
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        match std::fs::hard_link(&aside, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
            _ => {}
        }
    }
    let _ = std::fs::remove_file(&aside);
    let text = match secret_file::read(path) {
        Err(SecretFileError::Length { .. }) => return Err(MasterKeyError::Malformed { path: shown }),
        read => read?,
    };
    parse(text.expose().trim()).ok_or(MasterKeyError::Malformed { path: shown })
}

fn parse(text: &str) -> Option<Secret<[u8; 32]>> {
    let mut key = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(Secret::new(key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_made_once_private_and_an_exposed_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets/master.key");
        let ambient = Ambient::system();
        let first = load_or_create(&path, &ambient).unwrap();
        assert!(first == load_or_create(&path, &ambient).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            load_or_create(&path, &ambient),
            Err(MasterKeyError::File(SecretFileError::Exposed { .. }))
        ));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "xyz").unwrap();
        assert!(matches!(load_or_create(&path, &ambient), Err(MasterKeyError::Malformed { .. })));
    }
}
