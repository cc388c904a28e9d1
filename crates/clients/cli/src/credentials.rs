//! Tokens, kept in `credentials.json` beside the context, one sign-in per server.
//!
//! The file is readable by its owner only, and one that others can read is refused. Refreshing uses up the
//! refresh token, so only one process may do it at a time: a lock file is locked from reading to writing.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sdk::oidc::{PublicClient, TokenSet};
use serde::{Deserialize, Serialize};

use crate::{
    config::write_private,
    failure::{Exit, Failure, Result, local},
};

const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_POLL: Duration = Duration::from_millis(50);
/// A token that expires this soon counts as expired: the server ends a response when the token of its request expires,
/// and a long poll lasts up to half a minute.
const MARGIN_SECONDS: i64 = 40;

/// A sign-in. No `Debug`: it holds tokens.
#[derive(Clone, Serialize, Deserialize)]
pub struct SignIn {
    pub issuer: String,
    pub client_id: String,
    /// The audience that an external issuer needs when the tokens are refreshed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Unix seconds.
    pub expires_at: i64,
}

impl SignIn {
    pub fn new(issuer: &str, client: &PublicClient, tokens: TokenSet, now: i64) -> Self {
        Self {
            issuer: issuer.to_owned(),
            client_id: client.id.clone(),
            audience: client.audience.clone(),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            expires_at: now.saturating_add(i64::try_from(tokens.expires_in).unwrap_or(i64::MAX)),
        }
    }

    pub fn client(&self) -> PublicClient {
        PublicClient { id: self.client_id.clone(), audience: self.audience.clone() }
    }

    pub fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.expires_at, now)
    }
}

/// Whether a token that expires at this time (Unix seconds) is valid for another request.
pub fn is_fresh(expires_at: i64, now: i64) -> bool {
    expires_at.saturating_sub(now) > MARGIN_SECONDS
}

#[derive(Default, Serialize, Deserialize)]
struct Content {
    #[serde(default)]
    servers: BTreeMap<String, SignIn>,
}

pub struct Credentials {
    path: PathBuf,
}

/// A file lock, taken while the file is read and written. Released with the value, or by the kernel with the process.
pub struct Locked<'a> {
    file: &'a Credentials,
    _lock: fs::File,
}

impl Credentials {
    pub fn at(directory: &Path) -> Self {
        Self { path: directory.join("credentials.json") }
    }

    pub fn get(&self, server: &str) -> Result<Option<SignIn>> {
        Ok(self.load()?.servers.remove(server))
    }

    /// Waits for other processes, within a limit.
    pub async fn lock(&self) -> Result<Locked<'_>> {
        let path = self.path.with_extension("lock");
        let cannot = |error: std::io::Error| local(format!("{} cannot be locked", path.display()))(error);
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(cannot)?;
        }
        let lock =
            fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(cannot)?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Locked { file: self, _lock: lock }),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    tokio::time::sleep(LOCK_POLL).await;
                }
                Err(error) => return Err(cannot(std::io::Error::from(error))),
            }
        }
    }

    fn load(&self) -> Result<Content> {
        let unreadable =
            |error: std::io::Error| local(format!("{} cannot be read", self.path.display()))(error);
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::default()),
            Err(error) => return Err(unreadable(error)),
        };
        // The mode of the opened file, so that the file cannot be replaced between check and read.
        let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            let message = format!("{} can be read by others (mode {mode:03o})", self.path.display());
            return Err(Failure::new(Exit::Auth, message).suggest(format!(
                "Others may have read your tokens: run `chmod 600 {}`, then sign in again with `gpuaas auth login`.",
                self.path.display()
            )));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unreadable)?;
        // The error's own text could quote a token.
        serde_json::from_str(&text).map_err(|_| {
            Failure::new(Exit::Auth, format!("{} is not a valid credentials file", self.path.display()))
                .suggest("Remove it and sign in again with `gpuaas auth login`.")
        })
    }
}

impl Locked<'_> {
    pub fn get(&self, server: &str) -> Result<Option<SignIn>> {
        self.file.get(server)
    }

    pub fn put(&self, server: &str, sign_in: SignIn) -> Result {
        let mut content = self.file.load()?;
        content.servers.insert(server.to_owned(), sign_in);
        self.write(&content)
    }

    /// Returns whether there was a sign-in to remove.
    pub fn forget(&self, server: &str) -> Result<bool> {
        let mut content = self.file.load()?;
        let known = content.servers.remove(server).is_some();
        if known {
            self.write(&content)?;
        }
        Ok(known)
    }

    fn write(&self, content: &Content) -> Result {
        let text = serde_json::to_vec_pretty(content).map_err(local("the credentials cannot be written"))?;
        write_private(&self.file.path, &text)
    }
}
