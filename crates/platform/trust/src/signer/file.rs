//! Keys in a directory.
//!
//! ```text
//! keyset.pk8      0600   the key that signs the list of signers
//! keyset.pub      0644   its public half, in hexadecimal: for processes that only check
//! keyset.serial   0600   the highest serial that it signed
//! signer-<n>.pk8  0600   the signing key of version n
//! ```
//!
//! Replicas that sign share the directory, by whatever means secrets are shared between them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

use super::{
    CustodyError, KeyCustody, PublicKey, Signature,
    files::{self, PRIVATE, PUBLIC},
};

const KEYSET: &str = "keyset.pk8";
const KEYSET_PUBLIC: &str = "keyset.pub";
const KEYSET_SERIAL: &str = "keyset.serial";

pub struct FileCustody {
    directory: PathBuf,
    keyset: Ed25519KeyPair,
    /// Those that were used so far.
    signers: Mutex<HashMap<u32, Arc<Ed25519KeyPair>>>,
    /// One change of the serial at a time in this process.
    serial: Mutex<()>,
}

impl FileCustody {
    /// Opens the directory, and makes it and the keyset key when they are missing. Refuses what others can read.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, CustodyError> {
        let directory = directory.into();
        files::directory(&directory)?;
        let path = directory.join(KEYSET);
        let keyset = obtain(&path)?;
        let public = hex(keyset.public_key().as_ref()) + "\n";
        let public_path = directory.join(KEYSET_PUBLIC);
        files::create(&public_path, public.as_bytes(), PUBLIC)?;
        let this = Self { directory, keyset, signers: Mutex::default(), serial: Mutex::default() };
        // Somebody who exchanged the public half would have gateways believe another key.
        if KeysetKey::load(&public_path)?.bytes() != this.keyset_public() {
            return Err(CustodyError::Content { path: public_path });
        }
        Ok(this)
    }

    fn path(&self, version: u32) -> PathBuf {
        self.directory.join(format!("signer-{version}.pk8"))
    }

    fn signers(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Ed25519KeyPair>>> {
        self.signers.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl KeyCustody for FileCustody {
    fn generate(&self, version: u32) -> Result<PublicKey, CustodyError> {
        let key = Arc::new(obtain(&self.path(version))?);
        let public = public_key(&key);
        self.signers().insert(version, key);
        Ok(public)
    }

    fn sign(&self, version: u32, bytes: &[u8]) -> Result<Signature, CustodyError> {
        let known = self.signers().get(&version).cloned();
        let key = match known {
            Some(key) => key,
            None => {
                let key = load(&self.path(version))?.ok_or(CustodyError::Missing(version))?;
                let key = Arc::new(key);
                self.signers().insert(version, key.clone());
                key
            }
        };
        sign(&key, bytes)
    }

    fn destroy(&self, version: u32) -> Result<(), CustodyError> {
        self.signers().remove(&version);
        files::destroy(&self.path(version))
    }

    fn keyset_public(&self) -> PublicKey {
        public_key(&self.keyset)
    }

    fn sign_keyset(&self, serial: u64, bytes: &[u8]) -> Result<Signature, CustodyError> {
        let _one_at_a_time = self.serial.lock().unwrap_or_else(|e| e.into_inner());
        if serial > self.highest_serial()? {
            files::replace(&self.directory.join(KEYSET_SERIAL), format!("{serial}\n").as_bytes(), PRIVATE)?;
        }
        sign(&self.keyset, bytes)
    }

    fn highest_serial(&self) -> Result<u64, CustodyError> {
        let path = self.directory.join(KEYSET_SERIAL);
        let Some(content) = files::read(&path, PRIVATE)? else { return Ok(0) };
        let number = std::str::from_utf8(&content).ok().and_then(|text| text.trim_end().parse().ok());
        number.ok_or(CustodyError::Content { path })
    }
}

/// The public half of the keyset key, from `keyset.pub` or a copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysetKey(PublicKey);

impl KeysetKey {
    /// Others may read the file; it is refused when they could have written it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, CustodyError> {
        let path = path.as_ref();
        let content = files::read(path, PUBLIC)?;
        let content =
            content.ok_or_else(|| files::failed(path, "opening")(std::io::ErrorKind::NotFound.into()))?;
        let key = std::str::from_utf8(&content).ok().and_then(|text| unhex(text.trim_end()));
        key.map(Self).ok_or_else(|| CustodyError::Content { path: path.to_owned() })
    }

    /// Of a custody that is in this process.
    pub fn from_custody(custody: &dyn KeyCustody) -> Self {
        Self(custody.keyset_public())
    }

    pub const fn bytes(&self) -> PublicKey {
        self.0
    }

    /// As nodes are told it when they join.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

fn obtain(path: &Path) -> Result<Ed25519KeyPair, CustodyError> {
    if let Some(key) = load(path)? {
        return Ok(key);
    }
    let key = Ed25519KeyPair::generate().map_err(|_| CustodyError::Make)?;
    let content = key.to_pkcs8v1().map_err(|_| CustodyError::Make)?;
    files::create(path, content.as_ref(), PRIVATE)?;
    // What counts is what lies there: another process may have been faster.
    load(path)?.ok_or(CustodyError::Make)
}

fn load(path: &Path) -> Result<Option<Ed25519KeyPair>, CustodyError> {
    let Some(content) = files::read(path, PRIVATE)? else { return Ok(None) };
    let key = Ed25519KeyPair::from_pkcs8(&content);
    key.map(Some).map_err(|_| CustodyError::Content { path: path.to_owned() })
}

fn sign(key: &Ed25519KeyPair, bytes: &[u8]) -> Result<Signature, CustodyError> {
    key.sign(bytes).as_ref().try_into().map_err(|_| CustodyError::Make)
}

fn public_key(key: &Ed25519KeyPair) -> PublicKey {
    let mut out = [0; 32];
    out.copy_from_slice(key.public_key().as_ref());
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<PublicKey> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(out)
}
