//! `enroll` and `repair`.

use std::{
    io::{IsTerminal as _, Read as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use kernel::Secret;
use node_proto::contract::JoinInfo;

use super::{EnrollArgs, ProgramError, RepairArgs, TokenArgs, ambient, facts, print_line, runtime};
use crate::{
    config::Config,
    identity::{self, FileStore},
    transport::Tcp,
};

const LARGEST_TOKEN: u64 = 1024;

pub(super) fn enroll(config: &Config, args: EnrollArgs) -> Result<ExitCode, ProgramError> {
    let EnrollArgs { url, node_id, hostname, root_sha256, keyset_key, token } = args;
    join(config, &JoinInfo { node_id, hostname, url, root_sha256, keyset_key }, &token)
}

pub(super) fn repair(config: &Config, args: RepairArgs) -> Result<ExitCode, ProgramError> {
    let joined = FileStore::open(&config.state_dir)?.joined()?;
    let known = joined.as_ref();
    let missing = || {
        ProgramError::Other(
            "this node has not enrolled; give --url, --node-id, --hostname, --root-sha256 and --keyset-key"
                .to_owned(),
        )
    };
    let mut root_sha256 = args.root_sha256;
    if root_sha256.is_empty() {
        root_sha256 = known.map(|join| join.root_sha256.clone()).ok_or_else(missing)?;
    }
    let text = |given: Option<String>, pick: fn(&JoinInfo) -> &String| {
        given.or_else(|| known.map(|join| pick(join).clone())).ok_or_else(missing)
    };
    let info = JoinInfo {
        node_id: args.node_id.or(known.map(|join| join.node_id)).ok_or_else(missing)?,
        hostname: text(args.hostname, |join| &join.hostname)?,
        url: text(args.url.or_else(|| config.url.clone()), |join| &join.url)?,
        root_sha256,
        keyset_key: text(args.keyset_key, |join| &join.keyset_key)?,
    };
    join(config, &info, &args.token)
}

fn join(config: &Config, info: &JoinInfo, token: &TokenArgs) -> Result<ExitCode, ProgramError> {
    let store = FileStore::open(&config.state_dir)?;
    let token = read_token(token.token_file.as_deref())?;
    let facts = facts(&config.roots, String::new());
    let runtime = runtime()?;
    let ambient = ambient();
    let joining = identity::enroll(Arc::new(Tcp), &ambient, &store, &facts, info, &token);
    let identity = runtime.block_on(Box::pin(joining))?;
    print_line(&format!(
        "{} has enrolled; its certificate expires at {}",
        identity.node_id(),
        identity.expires_at()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Of the opened file, so that it cannot be exchanged between check and reading.
fn private(file: std::fs::File) -> std::io::Result<std::fs::File> {
    if file.metadata()?.mode() & 0o077 == 0 {
        return Ok(file);
    }
    let text = "other users can reach the token; ask for a new one and keep it in a private file (chmod 600)";
    Err(std::io::Error::other(text))
}

/// From a file or standard input: what stands in a command line can be seen by everybody on the machine.
fn read_token(file: Option<&Path>) -> Result<Secret<String>, ProgramError> {
    let mut text = String::new();
    let read = match file {
        Some(path) => std::fs::File::open(path)
            .and_then(private)
            .and_then(|file| file.take(LARGEST_TOKEN + 1).read_to_string(&mut text))
            .map_err(ProgramError::io(path.display().to_string())),
        None => {
            if std::io::stdin().is_terminal() {
                let _ = write!(std::io::stderr(), "Token: ");
            }
            let mut line = std::io::BufReader::new(std::io::stdin().take(LARGEST_TOKEN + 1));
            std::io::BufRead::read_line(&mut line, &mut text).map_err(ProgramError::io("standard input"))
        }
    };
    let read = read?;
    let token = Secret::new(text.trim().to_owned());
    if token.expose().is_empty() || u64::try_from(read).unwrap_or(u64::MAX) > LARGEST_TOKEN {
        return Err(ProgramError::Other("there is no token on standard input or in --token-file".to_owned()));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "secret\n").unwrap();
        for (mode, read) in [(0o644, false), (0o640, false), (0o600, true), (0o400, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_token(Some(&path)).is_ok(), read, "{mode:o}");
        }
    }
}
