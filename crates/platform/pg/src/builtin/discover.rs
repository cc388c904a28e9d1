//! Finds the server binaries: the configured directory, then PATH, then Debian's versioned directories.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::BuiltinError;
use super::exec;
use super::user::RunAs;

/// The oldest major version we run on.
const MINIMUM_MAJOR: u32 = 15;
/// Where Debian keeps `<major>/bin`.
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";
/// `postgres --version` answers in milliseconds; a cold disk gets more.
pub(super) const VERSION_LIMIT: Duration = Duration::from_secs(20);

/// A directory with `postgres` and `initdb` of one major version.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) dir: PathBuf,
    pub(super) major: u32,
}

impl Binaries {
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Finds binaries the server's user can run. A configured directory is the only one considered; otherwise the
/// first with the cluster's own major version wins, and failing that the first of all.
pub(super) async fn find(
    configured: Option<&Path>,
    recorded_major: Option<u32>,
    user: &RunAs,
) -> Result<Binaries, BuiltinError> {
    let mut tried = Vec::new();
    let mut first = None;
    for dir in candidates(configured, &mut tried) {
        let found = match probe(&dir, user).await {
            Ok(found) => found,
            Err(why) => {
                tried.push(format!("{} ({why})", dir.display()));
                continue;
            }
        };
        if recorded_major.is_none_or(|major| major == found.major) {
            return Ok(found);
        }
        first.get_or_insert(found);
    }
    first.ok_or_else(|| BuiltinError::NotFound { minimum: MINIMUM_MAJOR, tried: tried.join("; ") })
}

fn candidates(configured: Option<&Path>, tried: &mut Vec<String>) -> Vec<PathBuf> {
    if let Some(dir) = configured {
        return vec![dir.to_owned()];
    }
    let mut found: Vec<PathBuf> = Vec::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for dir in std::env::split_paths(&path).filter(|dir| dir.is_absolute() && is_complete(dir)) {
        found.push(home_of(dir));
    }
    if found.is_empty() {
        tried.push("PATH (no directory holds both `postgres` and `initdb`)".to_owned());
    }
    let mut majors: Vec<u32> = std::fs::read_dir(DEBIAN_ROOT)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    majors.sort_unstable_by(|a, b| b.cmp(a));
    if majors.is_empty() {
        tried.push(format!("{DEBIAN_ROOT}/*/bin (none)"));
    }
    found.extend(majors.into_iter().map(|major| Path::new(DEBIAN_ROOT).join(major.to_string()).join("bin")));
    let mut seen = std::collections::HashSet::new();
    found.retain(|dir| seen.insert(dir.clone()));
    found
}

fn is_complete(dir: &Path) -> bool {
    ["postgres", "initdb"].iter().all(|name| dir.join(name).is_file())
}

/// Where links lead to, so that a linked and a direct mention of one installation are the same.
fn home_of(dir: PathBuf) -> PathBuf {
    let target = std::fs::canonicalize(dir.join("postgres")).ok();
    target
        .as_deref()
        .and_then(Path::parent)
        .filter(|home| is_complete(home))
        .map(Path::to_owned)
        .unwrap_or(dir)
}

async fn probe(dir: &Path, user: &RunAs) -> Result<Binaries, String> {
    if !is_complete(dir) {
        return Err("`postgres` or `initdb` is missing".to_owned());
    }
    let mut command = exec::command(&dir.join("postgres"), user);
    command.arg("--version");
    let output = exec::run(command, VERSION_LIMIT).await.map_err(|error| match error {
        BuiltinError::Exec { source, .. } => format!("cannot be run by the server's user: {source}"),
        other => other.to_string(),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    match parse_major(&text) {
        Some(major) if major >= MINIMUM_MAJOR => Ok(Binaries { dir: dir.to_owned(), major }),
        Some(major) => Err(format!("version {major} is too old")),
        None => Err("`postgres --version` gave no version".to_owned()),
    }
}

/// The major version in a line such as `postgres (PostgreSQL) 15.18 (Debian ...)`.
fn parse_major(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("(PostgreSQL) ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_read_from_releases_and_previews() {
        assert_eq!(parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(parse_major("postgres (PostgreSQL) devel"), None);
        assert_eq!(parse_major("bash 5"), None);
    }

    #[tokio::test]
    async fn missing_binaries_are_reported_with_what_was_tried_and_what_to_install() {
        let user = RunAs::Current { uid: 1 };
        let error =
            find(Some(Path::new("/nowhere")), None, &user).await.map(|b| b.dir).expect_err("nothing there");
        let text = error.to_string();
        assert!(text.contains("/nowhere") && text.contains("apt-get install postgresql"), "{text}");
    }
}
