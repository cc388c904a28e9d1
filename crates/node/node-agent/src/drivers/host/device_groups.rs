//! GPUs for accounts that are not root: by membership in the groups that the device files belong to.

use std::{
    collections::BTreeSet,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use node_proto::catalog::AccountSpec;

use super::{RealHost, database};
use crate::drivers::{Done, DriverError};

/// Where device files of GPUs are, below the directory of devices, and how their names begin.
const PLACES: [(&str, &str); 4] =
    [("", "nvidia"), ("nvidia-caps", "nvidia-cap"), ("", "kfd"), ("dri", "renderD")];
const READ_WRITE_BY_GROUP: u32 = 0o060;
/// Their members are as good as root, or read what is nobody's business. No device file of a GPU belongs to them.
const NEVER_JOINED: [&str; 12] = [
    "root",
    "sudo",
    "wheel",
    "admin",
    "adm",
    "shadow",
    "disk",
    "kmem",
    "docker",
    "lxd",
    "libvirt",
    "systemd-journal",
];
const FILES_AT_MOST: usize = 1024;

impl RealHost {
    /// Lets the account into the groups of the GPUs' device files. What is open to everybody needs none.
    pub(super) fn join_device_groups(&self, asked: &AccountSpec) -> Done<()> {
        let gids = device_groups(&self.roots.dev)?;
        for group in database::groups(&self.roots.root)?.into_iter().filter(|g| gids.contains(&g.gid)) {
            if NEVER_JOINED.contains(&group.name.as_str()) {
                return Err(DriverError::failed(format!(
                    "device files of GPUs belong to the group {}; give them a group of their own, such as video",
                    group.name
                )));
            }
            let args = ["--append", "--groups", &group.name, &asked.username];
            self.tool(&self.programs.usermod).args(args).succeed()?;
        }
        Ok(())
    }
}

fn device_groups(dev: &Path) -> Done<BTreeSet<u32>> {
    let mut gids = BTreeSet::new();
    for (dir, prefix) in PLACES {
        let dir = dev.join(dir);
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other
                .map_err(|error| DriverError::failed(format!("{} cannot be read: {error}", dir.display())))?,
        };
        let named = entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
        for entry in named.take(FILES_AT_MOST) {
            // The entry itself: a link elsewhere is no device.
            let Ok(meta) = entry.metadata() else { continue };
            let by_group = meta.mode() & READ_WRITE_BY_GROUP == READ_WRITE_BY_GROUP;
            if meta.file_type().is_char_device() && by_group && meta.gid() != 0 {
                gids.insert(meta.gid());
            }
        }
    }
    Ok(gids)
}
