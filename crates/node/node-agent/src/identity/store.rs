//! Where a node keeps who it is: in files, or in memory for simulated nodes.
//!
//! A new pair is kept beside the old one (`key.next.pem`, `chain.next.pem`) until it has worked, and then
//! takes its place. Two files cannot be replaced at once, so whoever loads takes the newest key and chain that
//! fit together, wherever they are: a crash at any point leaves at least one such pair.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use kernel::Secret;
use node_proto::contract::JoinInfo;
use serde::{Serialize, de::DeserializeOwned};

use super::{Certified, Identity, IdentityError, StoredTrust, TrustInForce};
use crate::{atomic, transport::Pair};

/// Writing is durable when it returns.
pub trait IdentityStore: Send + Sync + 'static {
    /// `None` when the node has not joined.
    fn load(&self) -> Result<Option<Identity>, IdentityError>;
    /// The node has joined, or was repaired: everything at once.
    fn save_joined(&self, join: &JoinInfo, pair: &Pair, trust: &StoredTrust) -> Result<(), IdentityError>;
    fn save_trust(&self, trust: &StoredTrust) -> Result<(), IdentityError>;
    /// Beside the pair in use.
    fn save_next(&self, pair: &Pair) -> Result<(), IdentityError>;
    /// The next pair works: it takes the place of the old one.
    fn promote_next(&self) -> Result<(), IdentityError>;
    /// The next pair does not work: it is forgotten.
    fn discard_next(&self) -> Result<(), IdentityError>;
    /// A key whose certificate is asked for. It is kept until the certificate has worked: the control plane certifies
    /// a key once, and answers a request for it again as long as nobody has used its certificate.
    fn save_pending(&self, key_pem: &Secret<String>) -> Result<(), IdentityError>;
    fn load_pending(&self) -> Result<Option<Secret<String>>, IdentityError>;
    fn discard_pending(&self) -> Result<(), IdentityError>;
}

fn identity(
    join: JoinInfo,
    pairs: impl IntoIterator<Item = Pair>,
    trust: StoredTrust,
) -> Result<Identity, IdentityError> {
    let mut newest: Option<Certified> = None;
    let mut problem = IdentityError::Certificate("there is none".to_owned());
    for pair in pairs {
        match Certified::check(pair, join.node_id) {
            Err(error) => problem = error,
            Ok(found) if newest.as_ref().is_none_or(|held| held.issued() < found.issued()) => {
                newest = Some(found)
            }
            Ok(_) => {}
        }
    }
    Ok(Identity { certified: newest.ok_or(problem)?, trust: TrustInForce::open(trust)?, join })
}

const LARGEST_FILE: u64 = 1024 * 1024;
const NODE: &str = "node.json";
const TRUST: &str = "trust.json";
const PENDING: &str = "key.pending.pem";
const KEYS: [&str; 2] = ["key.next.pem", "key.pem"];
const CHAINS: [&str; 2] = ["chain.next.pem", "chain.pem"];

/// Files in the state directory, closed to others.
pub struct FileStore {
    dir: PathBuf,
}

impl FileStore {
    /// Makes the directory if need be; refuses one that is open to others.
    pub fn open(dir: &Path) -> Result<Self, IdentityError> {
        let store = Self { dir: dir.to_owned() };
        atomic::private_dir(dir).map_err(|error| store.failed(".", error))?;
        Ok(store)
    }

    /// What the node joined with, also when the rest cannot be used any more.
    pub fn joined(&self) -> Result<Option<JoinInfo>, IdentityError> {
        self.read_json(NODE)
    }

    fn failed(&self, name: &str, error: io::Error) -> IdentityError {
        IdentityError::Store { path: self.dir.join(name), error }
    }

    fn read(&self, name: &str) -> Result<Option<String>, IdentityError> {
        let bytes =
            atomic::read(&self.dir.join(name), LARGEST_FILE).map_err(|error| self.failed(name, error))?;
        bytes
            .map(|bytes| {
                String::from_utf8(bytes).map_err(|_| self.failed(name, io::Error::other("it is not text")))
            })
            .transpose()
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, IdentityError> {
        let text = self.read(name)?;
        text.map(|text| serde_json::from_str(&text).map_err(|error| self.failed(name, error.into())))
            .transpose()
    }

    fn write(&self, name: &str, content: &str) -> Result<(), IdentityError> {
        atomic::write(&self.dir.join(name), content.as_bytes()).map_err(|error| self.failed(name, error))
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), IdentityError> {
        let text = serde_json::to_string_pretty(value).map_err(|error| self.failed(name, error.into()))?;
        self.write(name, &text)
    }
}

impl IdentityStore for FileStore {
    fn load(&self) -> Result<Option<Identity>, IdentityError> {
        let (Some(join), Some(trust)) = (self.read_json(NODE)?, self.read_json(TRUST)?) else {
            return Ok(None);
        };
        let mut pairs = Vec::new();
        for key in KEYS {
            let Some(key_pem) = self.read(key)?.map(Secret::new) else { continue };
            for chain in CHAINS {
                let chain_pem = self.read(chain)?;
                pairs.extend(chain_pem.map(|chain_pem| Pair { chain_pem, key_pem: key_pem.clone() }));
            }
        }
        identity(join, pairs, trust).map(Some)
    }

    fn save_joined(&self, join: &JoinInfo, pair: &Pair, trust: &StoredTrust) -> Result<(), IdentityError> {
        self.write_json(TRUST, trust)?;
        self.save_next(pair)?;
        self.write_json(NODE, join)?;
        self.promote_next()?;
        self.discard_pending()
    }

    fn save_trust(&self, trust: &StoredTrust) -> Result<(), IdentityError> {
        self.write_json(TRUST, trust)
    }

    fn save_next(&self, pair: &Pair) -> Result<(), IdentityError> {
        self.write(KEYS[0], pair.key_pem.expose())?;
        self.write(CHAINS[0], &pair.chain_pem)
    }

    fn promote_next(&self) -> Result<(), IdentityError> {
        for [next, current] in [KEYS, CHAINS] {
            match std::fs::rename(self.dir.join(next), self.dir.join(current)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(next, error)),
                _ => {}
            }
        }
        atomic::sync_dir(&self.dir).map_err(|error| self.failed(".", error))
    }

    fn discard_next(&self) -> Result<(), IdentityError> {
        for name in [CHAINS[0], KEYS[0]] {
            atomic::remove(&self.dir.join(name)).map_err(|error| self.failed(name, error))?;
        }
        Ok(())
    }

    fn save_pending(&self, key_pem: &Secret<String>) -> Result<(), IdentityError> {
        self.write(PENDING, key_pem.expose())
    }

    fn load_pending(&self) -> Result<Option<Secret<String>>, IdentityError> {
        Ok(self.read(PENDING)?.map(Secret::new))
    }

    fn discard_pending(&self) -> Result<(), IdentityError> {
        atomic::remove(&self.dir.join(PENDING)).map_err(|error| self.failed(PENDING, error))
    }
}

/// In memory; clones share, so that a simulated node can crash and come back.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    join: Option<JoinInfo>,
    trust: Option<StoredTrust>,
    current: Option<Pair>,
    next: Option<Pair>,
    pending: Option<Secret<String>>,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl IdentityStore for MemoryStore {
    fn load(&self) -> Result<Option<Identity>, IdentityError> {
        let memory = self.lock();
        let (Some(join), Some(trust)) = (memory.join.clone(), memory.trust.clone()) else { return Ok(None) };
        let pairs: Vec<Pair> = [&memory.next, &memory.current].into_iter().flatten().cloned().collect();
        identity(join, pairs, trust).map(Some)
    }

    fn save_joined(&self, join: &JoinInfo, pair: &Pair, trust: &StoredTrust) -> Result<(), IdentityError> {
        *self.lock() = Memory {
            join: Some(join.clone()),
            trust: Some(trust.clone()),
            current: Some(pair.clone()),
            next: None,
            pending: None,
        };
        Ok(())
    }

    fn save_trust(&self, trust: &StoredTrust) -> Result<(), IdentityError> {
        self.lock().trust = Some(trust.clone());
        Ok(())
    }

    fn save_next(&self, pair: &Pair) -> Result<(), IdentityError> {
        self.lock().next = Some(pair.clone());
        Ok(())
    }

    fn promote_next(&self) -> Result<(), IdentityError> {
        let mut memory = self.lock();
        if let Some(next) = memory.next.take() {
            memory.current = Some(next);
        }
        Ok(())
    }

    fn discard_next(&self) -> Result<(), IdentityError> {
        self.lock().next = None;
        Ok(())
    }

    fn save_pending(&self, key_pem: &Secret<String>) -> Result<(), IdentityError> {
        self.lock().pending = Some(key_pem.clone());
        Ok(())
    }

    fn load_pending(&self) -> Result<Option<Secret<String>>, IdentityError> {
        Ok(self.lock().pending.clone())
    }

    fn discard_pending(&self) -> Result<(), IdentityError> {
        self.lock().pending = None;
        Ok(())
    }
}
