//! Chunks and seals in the object storage: `recordings/<organization>/<session>/<index>`, and `seal` beside them.

use std::sync::Arc;

use aws_lc_rs::{
    error::KeyRejected,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Secret,
    hex::Hex,
    ids::{OrgId, TerminalSessionId},
    ledger::key_id,
    policy::{IntegerKey, Kind, PolicyKey as _, keys},
};
use objects::{InvalidKey, ObjectError, ObjectKey, Objects};
use recording::{CHUNK_BYTES_MAX, Fault, Header, PublicKey, Seal, Statement, Tail};

use crate::{model::recording::RecordingKey, store::recordings::Stored};

const SEAL: &str = "seal";
/// Chunks that are read before the caller notes how far it came: a slow storage gives as many well within the time that a
/// gateway has to go on, and whoever tries again begins after them.
const WALK_CHUNKS: usize = 16;
/// By how much clocks may differ, and a token be older than the session that it opens.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::days(1);

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

/// How far a walk came.
pub struct Walked {
    /// The last chunk that was read; nothing when there is none.
    pub tail: Option<Tail>,
    pub stored: Stored,
    /// Whether there was no chunk after it.
    pub is_end: bool,
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

    /// Whether nothing is read or written: it may be another storage than the installation's.
    pub fn is_held(&self) -> bool {
        self.objects.is_held()
    }

    pub fn key(&self) -> RecordingKey {
        let public_key = self.key.public_key().as_ref();
        RecordingKey { key_id: key_id(public_key), public_key: Hex(public_key.to_vec()) }
    }

    fn public_key(&self) -> Option<PublicKey> {
        self.key.public_key().as_ref().try_into().ok()
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

    /// No gateway stores a chunk that is larger than all chunks are.
    pub async fn chunk_get(&self, index: u64) -> Result<Option<Bytes>, StorageError> {
        match self.objects().get(&self.chunk_key(index)?).await {
            Ok(Some(chunk)) if chunk.len() > CHUNK_BYTES_MAX => Err(Fault::TooLarge { index }.into()),
            Ok(chunk) => Ok(chunk),
            Err(ObjectError::TooLarge) => Err(Fault::TooLarge { index }.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes from what was noted towards the end of what is stored. The last noted chunk must be the one that was noted, and
    /// those after it must follow from it and hold what they say: what does not was changed by somebody else. Once something
    /// was found changed (`tampering`), only chunks that were noted are believed: there must be none after them.
    pub async fn tail_walk(&self, noted: Stored, tampering: Option<&str>) -> Result<Walked, StorageError> {
        let mut stored = noted;
        let mut tail = match stored.chunks.unsigned_abs().checked_sub(1) {
            Some(index) => Some(self.noted_get(index, stored.head.as_deref()).await?),
            None => None,
        };
        for _ in 0..WALK_CHUNKS {
            let index = stored.chunks.unsigned_abs();
            let Some(chunk) = self.chunk_get(index).await? else {
                return Ok(Walked { tail, stored, is_end: true });
            };
            if tampering.is_some() {
                return Err(Fault::NotStoredByGateway { index }.into());
            }
            let next = match &tail {
                Some(before) => before.read_next(&chunk)?,
                None => Tail::read_first(self.session, &chunk)?,
            };
            stored = Stored {
                chunks: stored.chunks + 1,
                end_sequence: i64::try_from(next.header.end_sequence).unwrap_or(i64::MAX),
                bytes: stored.bytes.saturating_add(i64::try_from(chunk.len()).unwrap_or(i64::MAX)),
                head: Some(next.digest.0.clone()),
            };
            tail = Some(next);
        }
        Ok(Walked { tail, stored, is_end: false })
    }

    async fn noted_get(&self, index: u64, head: Option<&[u8]>) -> Result<Tail, StorageError> {
        let missing = Fault::Missing { from: index, to: index + 1 };
        let tail = Tail::read(self.session, index, &self.chunk_get(index).await?.ok_or(missing)?)?;
        match head {
            Some(head) if tail.digest.0 != head => Err(Fault::HeadMismatch { index }.into()),
            _ => Ok(tail),
        }
    }

    /// Whether the last chunk is stored as it is about to be sealed.
    pub async fn head_check(&self, statement: &Statement) -> Result<(), StorageError> {
        let Some(index) = statement.chunks.checked_sub(1) else { return Ok(()) };
        self.noted_get(index, Some(&statement.head.0)).await.map(drop)
    }

    /// Until when the recording is kept, as its first chunk says; nothing when there is no chunk that says so. Whoever can write
    /// to the object storage can change what it says, but not make it later than policy allows.
    pub async fn kept_until(&self) -> Result<Option<DateTime<Utc>>, StorageError> {
        match self.chunk_get(0).await {
            Ok(chunk) => {
                let header = chunk.as_deref().and_then(Header::parse);
                let until = header.and_then(|(header, _)| header.expires_at);
                Ok(until.map(|until| kept_at_most(self.session).map_or(until, |most| until.min(most))))
            }
            Err(StorageError::Fault(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Signs and stores the seal. When there is one already, that one counts, if it is ours.
    pub async fn seal_put(&self, statement: Statement) -> Result<Seal, StorageError> {
        let stored = Stored {
            chunks: i64::try_from(statement.chunks).unwrap_or(i64::MAX),
            head: Some(statement.head.0.clone()),
            ..Stored::default()
        };
        let seal = statement.sign(&self.storage.key);
        match self.objects().put_new(&self.folder.child(SEAL)?, seal.to_bytes().into()).await {
            Ok(()) => Ok(seal),
            Err(ObjectError::AlreadyExists) => {
                Ok(self.seal_find(&stored).await?.ok_or(Fault::SealUnreadable)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The seal that is stored. It is believed when one of our keys signed it, for this session, and when it ends where, or
    /// after where, the chunks were noted to end.
    pub async fn seal_find(&self, noted: &Stored) -> Result<Option<Seal>, StorageError> {
        let seal = match self.objects().get(&self.folder.child(SEAL)?).await {
            Ok(Some(seal)) => Seal::parse(&seal)?,
            Ok(None) => return Ok(None),
            Err(ObjectError::TooLarge) => return Err(Fault::SealUnreadable.into()),
            Err(error) => return Err(error.into()),
        };
        seal.verify(self.storage.public_key().as_slice())?;
        let statement = &seal.statement;
        if statement.session_id != self.session {
            return Err(Fault::SealForeign { found: statement.session_id }.into());
        }
        let is_noted = statement.chunks == noted.chunks.unsigned_abs();
        let is_other = is_noted && noted.head.as_ref().is_some_and(|head| *head != statement.head.0);
        if is_other || statement.chunks < noted.chunks.unsigned_abs() {
            return Err(Fault::SealContradicts.into());
        }
        // Whoever sealed chunks that were changed knew that they do not fit.
        if statement.tampering.is_none() {
            self.head_check(statement).await?;
        }
        Ok(Some(seal))
    }

    pub async fn seal_get(&self) -> Result<Option<Bytes>, StorageError> {
        Ok(self.objects().get(&self.folder.child(SEAL)?).await?)
    }

    /// Removes what gateways that died were storing. Nobody stores anything after the seal.
    pub async fn staged_remove(&self) -> Result<(), StorageError> {
        Ok(self.objects().staged_remove(&self.folder).await?)
    }

    pub async fn delete(&self) -> Result<usize, StorageError> {
        Ok(self.objects().delete_below(&self.folder).await?)
    }
}

/// The latest time until which policy lets anybody keep the recording of this session. When the session was made is in its id,
/// which names the objects and the row: nobody who can write to one of them changes it.
fn kept_at_most(session: TerminalSessionId) -> Option<DateTime<Utc>> {
    let (seconds, nanos) = session.uuid().get_timestamp()?.to_unix();
    let made_at = DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)?;
    let lasts = TimeDelta::try_seconds(largest(keys::TERMINAL_SESSION_MAX_TTL_SECONDS)?)?;
    let retention = TimeDelta::try_days(largest(keys::TERMINAL_RECORDING_RETENTION_DAYS)?)?;
    made_at.checked_add_signed(lasts + retention + CLOCKS_DIFFER)
}

fn largest(key: IntegerKey) -> Option<i64> {
    match key.definition().kind {
        Kind::Integer { max, .. } => Some(max),
        Kind::Boolean { .. } | Kind::Choice { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_recording_is_kept_longer_than_policy_allows() {
        let session: TerminalSessionId = kernel::Ambient::system().id();
        let now = kernel::Ambient::system().now();
        let most = kept_at_most(session).unwrap();
        // Ten years and a week, the largest values of both keys.
        assert!(most > now + TimeDelta::days(3650 + 7) && most < now + TimeDelta::days(3650 + 9), "{most}");
    }
}
