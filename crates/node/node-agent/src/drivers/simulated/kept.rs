//! What of a simulated machine is on its disks: written whenever it has changed, as a whole or not at all. It is
//! not forced to the disk: it survives the end of the process, not that of the real machine.

use std::{
    io,
    ops::{Deref, DerefMut},
    path::Path,
    sync::MutexGuard,
};

use super::Changing;
use crate::atomic;

const LARGEST_FILE_BYTES: u64 = 16 * 1024 * 1024;

pub(super) fn read(path: &Path) -> io::Result<Changing> {
    let Some(bytes) = atomic::read(path, LARGEST_FILE_BYTES)? else { return Ok(Changing::default()) };
    Ok(serde_json::from_slice(&bytes)?)
}

/// The machine while somebody looks at it or changes it.
pub(super) struct StateGuard<'a> {
    held: MutexGuard<'a, Changing>,
    file: Option<&'a Path>,
    changed: bool,
}

impl<'a> StateGuard<'a> {
    pub(super) const fn new(held: MutexGuard<'a, Changing>, file: Option<&'a Path>) -> Self {
        Self { held, file, changed: false }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let next = path.with_extension("machine-next");
        std::fs::write(&next, serde_json::to_vec(&*self.held)?)?;
        std::fs::rename(&next, path)
    }
}

impl Deref for StateGuard<'_> {
    type Target = Changing;

    fn deref(&self) -> &Changing {
        &self.held
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut Changing {
        self.changed = true;
        &mut self.held
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.file.filter(|_| self.changed)
            && let Err(error) = self.write(path)
        {
            tracing::error!(path = %path.display(), %error, "a simulated machine cannot be kept");
        }
    }
}
