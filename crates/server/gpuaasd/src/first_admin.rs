//! The first administrator: made once, the password shown once.

use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};

use crate::{compose::Platform, config::Config};

/// Where the one-time password waits for whoever installs the product; they read and delete it.
pub const PASSWORD_FILE: &str = "first-admin-password";

/// Makes the account when nobody administers the platform yet. The password goes into a private file and
/// nowhere else: not into a log, not onto a screen that nobody asked.
pub async fn seed(config: &Config, platform: &Platform) -> anyhow::Result<()> {
    if !config.auth.builtin {
        return Ok(());
    }
    let Some(password) = platform.seed_admin(&config.auth.admin_email).await? else { return Ok(()) };
    let path = config.server.data_dir.join(PASSWORD_FILE);
    std::fs::create_dir_all(&config.server.data_dir)?;
    let _ = std::fs::remove_file(&path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    writeln!(file, "{}", password.expose())?;
    tracing::info!(email = %config.auth.admin_email, file = %path.display(), "made the first administrator");
    Ok(())
}
