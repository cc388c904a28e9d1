//! Where simulated nodes keep who they are: one small file per node, replaced as a whole. What their machines
//! have and what they did lies beside it.
//!
//! A file survives the end of this process, however sudden. It is not forced to the disk: a simulated node that
//! is lost with its machine can be made again.

use std::{
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use kernel::{Secret, ids::NodeId};
use node_agent::{
    identity::{Certified, Identity, IdentityError, IdentityStore, StoredTrust, TrustInForce},
    transport::Pair,
};
use node_proto::contract::JoinInfo;
use serde::{Deserialize, Serialize};

const LARGEST_FILE_BYTES: u64 = 256 * 1024;

/// The directory of all nodes' files, closed to others.
#[derive(Clone)]
pub struct StateDir(PathBuf);

impl StateDir {
    pub fn open(dir: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(Self(dir.to_owned()))
    }

    pub fn node(&self, node: NodeId) -> NodeStore {
        NodeStore { path: self.0.join(format!("{node}.json")), writing: Mutex::new(()) }
    }

    pub fn machine(&self, node: NodeId) -> PathBuf {
        self.0.join(format!("{node}.machine"))
    }

    pub fn journal(&self, node: NodeId) -> PathBuf {
        self.0.join(format!("{node}.journal"))
    }
}

/// Writes a file that is closed to others, as a whole or not at all.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(content)?;
    drop(file);
    std::fs::rename(&next, path)
}

/// One node's file. Nothing of it is kept in memory.
pub struct NodeStore {
    path: PathBuf,
    writing: Mutex<()>,
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    join: Option<JoinInfo>,
    trust: Option<StoredTrust>,
    current: Option<KeptPair>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<KeptPair>,
    /// The key of a request whose answer has not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
}

/// The one place where a node's key is written down; the file is closed to others.
#[derive(Serialize, Deserialize)]
struct KeptPair {
    chain_pem: String,
    key_pem: String,
}

impl From<&Pair> for KeptPair {
    fn from(pair: &Pair) -> Self {
        Self { chain_pem: pair.chain_pem.clone(), key_pem: pair.key_pem.expose().clone() }
    }
}

impl From<KeptPair> for Pair {
    fn from(kept: KeptPair) -> Self {
        Self { chain_pem: kept.chain_pem, key_pem: Secret::new(kept.key_pem) }
    }
}

impl NodeStore {
    fn failed(&self, error: io::Error) -> IdentityError {
        IdentityError::Store { path: self.path.clone(), error }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Result<Option<Kept>, IdentityError> {
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
            Ok(meta) if meta.len() > LARGEST_FILE_BYTES => {
                return Err(self.failed(io::Error::other("it is larger than 256 KiB")));
            }
            Ok(_) => {}
        }
        let bytes = std::fs::read(&self.path).map_err(|error| self.failed(error))?;
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.failed(error.into()))
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) -> Result<(), IdentityError> {
        let _writing = self.lock();
        let mut kept = self.read()?.unwrap_or_default();
        change(&mut kept);
        self.write(&kept)
    }

    fn write(&self, kept: &Kept) -> Result<(), IdentityError> {
        let bytes = serde_json::to_vec(kept).map_err(|error| self.failed(error.into()))?;
        replace(&self.path, &bytes).map_err(|error| self.failed(error))
    }
}

impl IdentityStore for NodeStore {
    fn load(&self) -> Result<Option<Identity>, IdentityError> {
        let Some(Kept { join: Some(join), trust: Some(trust), current, next, .. }) = self.read()? else {
            return Ok(None);
        };
        let mut found: Result<Certified, IdentityError> =
            Err(IdentityError::Certificate("there is none".to_owned()));
        for pair in [current, next].into_iter().flatten() {
            match (Certified::check(pair.into(), join.node_id), &found) {
                (Ok(checked), Ok(held)) if checked.not_before <= held.not_before => {}
                (Err(_), Ok(_)) => {}
                (checked, _) => found = checked,
            }
        }
        Ok(Some(Identity { certified: found?, trust: TrustInForce::open(trust)?, join }))
    }

    fn save_joined(&self, join: &JoinInfo, pair: &Pair, trust: &StoredTrust) -> Result<(), IdentityError> {
        let _writing = self.lock();
        let (join, trust) = (Some(join.clone()), Some(trust.clone()));
        self.write(&Kept { join, trust, current: Some(pair.into()), next: None, pending: None })
    }

    fn save_trust(&self, trust: &StoredTrust) -> Result<(), IdentityError> {
        self.change(|kept| kept.trust = Some(trust.clone()))
    }

    fn save_next(&self, pair: &Pair) -> Result<(), IdentityError> {
        self.change(|kept| kept.next = Some(pair.into()))
    }

    fn promote_next(&self) -> Result<(), IdentityError> {
        self.change(|kept| kept.current = kept.next.take().or_else(|| kept.current.take()))
    }

    fn discard_next(&self) -> Result<(), IdentityError> {
        self.change(|kept| kept.next = None)
    }

    fn save_pending(&self, key_pem: &Secret<String>) -> Result<(), IdentityError> {
        self.change(|kept| kept.pending = Some(key_pem.expose().clone()))
    }

    fn load_pending(&self) -> Result<Option<Secret<String>>, IdentityError> {
        Ok(self.read()?.and_then(|kept| kept.pending).map(Secret::new))
    }

    fn discard_pending(&self) -> Result<(), IdentityError> {
        self.change(|kept| kept.pending = None)
    }
}
