//! The first administrator: made once, the password shown once.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::{compose::Platform, config::Config};

/// Where the one-time password waits for whoever installs the product; they read and delete it.
pub const PASSWORD_FILE: &str = "first-admin-password";

/// Makes the account when nobody administers the platform yet. The password goes into a private file and
/// nowhere else: not into a log, not onto a screen that nobody asked.
///
/// Where people sign in at external issuers only, the first administrator is whoever comes with the
/// configured address.
pub async fn seed(config: &Config, platform: &Platform) -> anyhow::Result<()> {
    if !config.auth.builtin {
        if config.auth.external_admin.is_none() && !platform.has_admin().await? {
            tracing::warn!(
                "the platform has no administrator; set auth.admin_email to the address of the first one, and let them sign in"
            );
        }
        return Ok(());
    }
    let directory = &config.server.data_dir;
    let keep = |password: &kernel::Secret<String>| write(directory, password.expose());
    if platform.seed_admin(&config.auth.admin_email, keep).await? {
        let file = directory.join(PASSWORD_FILE);
        tracing::info!(email = %config.auth.admin_email, file = %file.display(), "made the first administrator");
    }
    Ok(())
}

/// On disk when this returns, and whole or not there at all. What an earlier start left behind was never a
/// password of anybody, and is replaced.
fn write(directory: &Path, password: &str) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let draft = directory.join(format!("{PASSWORD_FILE}.new"));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{password}")?;
    file.sync_all()?;
    fs::rename(&draft, directory.join(PASSWORD_FILE))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_an_interrupted_start_left_behind_is_replaced_by_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(PASSWORD_FILE);
        fs::write(&path, "old").unwrap();
        fs::write(directory.path().join("first-admin-password.new"), "half").unwrap();
        write(directory.path(), "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
