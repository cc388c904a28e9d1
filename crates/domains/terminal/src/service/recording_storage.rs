//! Chunks and seals in the object storage: `recordings/<organization>/<session>/<index>`, and `seal` beside them.

use std::sync::Arc;

use aws_lc_rs::{
    error::KeyRejected,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use bytes::Bytes;
use kernel::{
    Secret,
    hex::Hex,
    ids::{OrgId, TerminalSessionId},
    ledger::key_id,
};
use objects::{InvalidKey, ObjectError, ObjectKey, Objects};
use recording::{Fault, Seal, Statement, Tail};

use crate::model::recording::RecordingKey;

const SEAL: &str = "seal";

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// What is stored is not what a recorder wrote.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Where recordings are, and the key that seals them. Cheap to clone.
#[derive(Clone)]
pub struct RecordingStorage {
    objects: Objects,
    key: Arc<Ed25519KeyPair>,
}

/// The objects of one recording.
#[derive(Clone)]
pub struct RecordingFolder {
    storage: RecordingStorage,
    session: TerminalSessionId,
    folder: ObjectKey,
}

impl RecordingStorage {
    pub fn new(objects: Objects, seed: &Secret<[u8; 32]>) -> Result<Self, KeyRejected> {
        Ok(Self { objects, key: Arc::new(Ed25519KeyPair::from_seed_unchecked(seed.expose())?) })
    }

    pub fn key(&self) -> RecordingKey {
        let public_key = self.key.public_key().as_ref();
        RecordingKey { key_id: key_id(public_key), public_key: Hex(public_key.to_vec()) }
    }

    pub fn folder(&self, org: OrgId, session: TerminalSessionId) -> Result<RecordingFolder, InvalidKey> {
        let folder = ObjectKey::new(["recordings", &org.to_string(), &session.to_string()])?;
        Ok(RecordingFolder { storage: self.clone(), session, folder })
    }
}

impl RecordingFolder {
    fn objects(&self) -> &Objects {
        &self.storage.objects
    }

    fn chunk_key(&self, index: u64) -> Result<ObjectKey, InvalidKey> {
        self.folder.child(&format!("{index:08}"))
    }

    pub async fn chunk_put(&self, index: u64, content: Bytes) -> Result<(), StorageError> {
        Ok(self.objects().put_new(&self.chunk_key(index)?, content).await?)
    }

    pub async fn chunk_get(&self, index: u64) -> Result<Option<Bytes>, StorageError> {
        Ok(self.objects().get(&self.chunk_key(index)?).await?)
    }

    async fn chunk_exists(&self, index: u64) -> Result<bool, StorageError> {
        Ok(self.objects().exists(&self.chunk_key(index)?).await?)
    }

    /// The last chunk; nothing when there is none. `known` is how many there are at least: chunks are stored in order, so
    /// that the end is found by steps that double, and then halve, without a list.
    pub async fn tail_find(&self, known: u64) -> Result<Option<Tail>, StorageError> {
        let count = if self.chunk_exists(known).await? {
            let (mut low, mut step) = (known, 1);
            while self.chunk_exists(low + step).await? {
                low += step;
                step *= 2;
            }
            let mut high = low + step;
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.chunk_exists(middle).await? { low = middle } else { high = middle }
            }
            high
        } else {
            known
        };
        let Some(index) = count.checked_sub(1) else { return Ok(None) };
        let chunk = self.chunk_get(index).await?.ok_or(Fault::Missing { from: index, to: count })?;
        Ok(Some(Tail::read(self.session, index, &chunk)?))
    }

    /// Signs and stores the seal. When there is one already, that one counts.
    pub async fn seal_put(&self, statement: Statement) -> Result<Seal, StorageError> {
        let seal = statement.sign(&self.storage.key);
        match self.objects().put_new(&self.folder.child(SEAL)?, seal.to_bytes().into()).await {
            Ok(()) => Ok(seal),
            Err(ObjectError::AlreadyExists) => {
                let existing = self.seal_get().await?.ok_or(Fault::SealUnreadable)?;
                Ok(Seal::parse(&existing)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub async fn seal_get(&self) -> Result<Option<Bytes>, StorageError> {
        Ok(self.objects().get(&self.folder.child(SEAL)?).await?)
    }

    pub async fn delete(&self) -> Result<usize, StorageError> {
        Ok(self.objects().delete_below(&self.folder).await?)
    }
}
