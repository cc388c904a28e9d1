//! Secrets in private files, made when they are not there.

use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::Context as _;
use kernel::Ambient;

use crate::state::random_text;

/// Makes the file with one new secret in it, readable by its owner only, unless it is there.
pub fn ensure(path: &Path, prefix: &str, ambient: &Ambient) -> anyhow::Result<()> {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(mut file) => writeln!(file, "{prefix}{}", random_text(ambient, 32))
            .with_context(|| format!("cannot write {}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot make {}", path.display())),
    }
}

/// One secret per line; two while one is replaced by another.
pub fn read(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let secrets: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    anyhow::ensure!(
        !secrets.is_empty(),
        "{} has no secret in it; remove it to get a new one",
        path.display()
    );
    Ok(secrets)
}
