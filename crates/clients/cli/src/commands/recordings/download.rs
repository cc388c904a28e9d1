//! The chunks of a recording, from the server to a directory.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kernel::ids::TerminalSessionId;
use recording::{Seal, Verified, Verifier};
use sdk::Client;

use super::verify::{Known, fault, finished, public_key, verified_note};
use crate::{
    failure::{Failure, Result, local},
    output::note,
};

/// The file beside the chunks of a directory.
pub const SEAL: &str = "seal";

/// No recording has so many chunks: after it there is only the seal.
const AFTER_ALL_CHUNKS: i64 = 99_999_999;

/// The name of a chunk's file: files in order of their names are chunks in order of their index.
pub fn chunk_name(index: u64) -> String {
    format!("{index:08}")
}

/// A recording that is being read.
pub struct Source<'a> {
    client: &'a Client,
    project: &'a str,
    allocation: &'a str,
    pub session: TerminalSessionId,
    view: String,
    /// With which the installation seals, as it says itself.
    pub key: String,
    read: VecDeque<(u64, Vec<u8>)>,
    next: Option<i64>,
    /// Nothing while the recording is not sealed.
    pub seal: Option<String>,
    known: Known,
}

/// Whether a recording that fails verification is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    Verified,
    /// Whoever asks wants it all the same.
    Unverified,
}

/// What verifies chunks while they are used; nothing for whoever wants them all the same.
pub struct Reverification(Option<Verifier>);

/// What was found when all chunks were used.
pub enum Verdict {
    /// Nothing when it is not sealed.
    Verified(Option<Verified>),
    Unverified,
}

impl Verdict {
    /// Tells it. `used` is what was done with the recording.
    pub fn print_verdict(&self, used: &str) {
        match self {
            Self::Verified(found) => verified_note(found.as_ref()),
            Self::Unverified => note(&format!("What was {used} is not verified.")),
        }
    }
}

impl<'a> Source<'a> {
    /// Opens a view, which the audit trail keeps.
    pub async fn open(
        client: &'a Client,
        project: &'a str,
        allocation: &'a str,
        session: TerminalSessionId,
    ) -> Result<Self> {
        let text = session.to_string();
        // Before the objects are read: what it says is stored must be found then.
        let recording = send!(client.terminal_recording_get(project, allocation, &text));
        let view = send!(client.terminal_recording_view_create(project, allocation, &text));
        let (view, key) = (view.id, view.key.public_key);
        let end = send!(client.terminal_recording_chunk_list(
            project,
            allocation,
            &text,
            &view,
            Some(AFTER_ALL_CHUNKS)
        ));
        let known = Known {
            chunks: u64::try_from(recording.chunks).unwrap_or_default(),
            is_seal_missing: recording.sealed_at.is_some() && end.seal.is_none(),
        };
        Ok(Self {
            client,
            project,
            allocation,
            session,
            view,
            key,
            read: VecDeque::new(),
            next: Some(0),
            seal: end.seal,
            known,
        })
    }

    /// For chunks from the first one on, with the key of the installation that was asked.
    pub fn verifier(&self) -> Result<Verifier> {
        let key = public_key(&self.key).ok_or_else(|| Failure::client("the server sent an invalid key"))?;
        let seal =
            self.seal.as_deref().map(|seal| Seal::parse(seal.as_bytes())).transpose().map_err(fault)?;
        Verifier::new(self.session, seal, &[key]).map_err(fault)
    }

    /// Reads everything once, before anything of it is used. What was found; nothing when it is not sealed.
    pub async fn verify(&mut self) -> Result<Option<Verified>> {
        let mut verifier = self.verifier()?;
        while let Some((_, chunk)) = self.chunk().await? {
            verifier.chunk(&chunk).map_err(fault)?;
        }
        self.next = Some(0);
        finished(verifier, &self.known)
    }

    /// Refuses what fails verification, unless it is wanted all the same.
    pub async fn verify_unless(&mut self, trust: Trust) -> Result {
        match self.verify().await {
            Err(failure) if trust == Trust::Unverified => {
                note(&format!("Not verified: {}.", failure.message));
                self.read.clear();
                self.next = Some(0);
                Ok(())
            }
            Err(failure) => Err(failure.suggest("With --unverified it is used all the same.")),
            Ok(_) => Ok(()),
        }
    }

    /// Verifies what is used, again: it was read again, and may have been changed since.
    pub fn reverification(&self, trust: Trust) -> Result<Reverification> {
        Ok(Reverification(match trust {
            Trust::Verified => Some(self.verifier()?),
            Trust::Unverified => None,
        }))
    }

    /// The next chunk, which may be used.
    pub async fn chunk_reverified(&mut self, reverification: &mut Reverification) -> Result<Option<Vec<u8>>> {
        let Some((_, chunk)) = self.chunk().await? else { return Ok(None) };
        if let Some(verifier) = &mut reverification.0 {
            verifier.chunk(&chunk).map_err(fault)?;
        }
        Ok(Some(chunk))
    }

    /// After the last chunk. What there is to tell about the recording.
    pub fn verdict(&self, reverification: Reverification) -> Result<Verdict> {
        Ok(match reverification.0 {
            Some(verifier) => Verdict::Verified(finished(verifier, &self.known)?),
            None => Verdict::Unverified,
        })
    }

    /// The next chunk and its index; nothing after the last one.
    pub async fn chunk(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        loop {
            if let Some(chunk) = self.read.pop_front() {
                return Ok(Some(chunk));
            }
            let Some(from) = self.next else { return Ok(None) };
            let session = self.session.to_string();
            let answer = send!(self.client.terminal_recording_chunk_list(
                self.project,
                self.allocation,
                &session,
                &self.view,
                Some(from)
            ));
            for chunk in answer.items {
                let content = BASE64_STANDARD.decode(chunk.content.as_bytes());
                let content = content.map_err(local("the server sent an invalid chunk"))?;
                self.read.push_back((u64::try_from(chunk.index).unwrap_or_default(), content));
            }
            self.next = answer.next;
        }
    }
}

/// Writes a directory that `verify` reads.
pub async fn write_directory(mut source: Source<'_>, dir: Option<PathBuf>, trust: Trust) -> Result {
    let dir = dir.unwrap_or_else(|| PathBuf::from(source.session.to_string()));
    let failed = |path: &Path| local(format!("{} cannot be written", path.display()));
    fs::create_dir(&dir).map_err(|error: std::io::Error| {
        Failure::client(format!("{} cannot be made: {error}", dir.display()))
            .suggest("Name a directory that does not exist with --dir.")
    })?;
    let mut count = 0;
    let mut verifier = source.verifier();
    while let Some((index, chunk)) = source.chunk().await? {
        let file = dir.join(chunk_name(index));
        fs::write(&file, &chunk).map_err(failed(&file))?;
        count += 1;
        // What is wrong with it is said when all of it is there: it is evidence.
        verifier = verifier.and_then(|mut verifier| verifier.chunk(&chunk).map(|()| verifier).map_err(fault));
    }
    let Source { seal, key, known, .. } = source;
    if let Some(seal) = &seal {
        let file = dir.join(SEAL);
        fs::write(&file, seal).map_err(failed(&file))?;
    }
    let sealed = match (&seal, known.is_seal_missing) {
        (Some(_), _) => "and the seal",
        (None, true) => "and no seal, although the recording is sealed,",
        (None, false) => "and no seal: the recording is not sealed yet",
    };
    note(&format!("Wrote {count} chunks {sealed} to {}.", dir.display()));
    note(&format!("Verify with: gpuaas recordings verify {} --key {key}", dir.display()));
    match verifier.and_then(|verifier| finished(verifier, &known)) {
        Ok(found) => {
            verified_note(found.as_ref());
            Ok(())
        }
        Err(failure) if trust == Trust::Unverified => {
            note(&format!("Not verified: {}.", failure.message));
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}
