//! The verifier: chunks in, in their order, one at a time; the first fault out.
//!
//! A chunk is attested when the next chunk, or the seal, names its digest. What is odd inside a chunk is only reported
//! when it is attested: otherwise it was edited, and that is what is said. When a chunk does not name the digest of the
//! one before it, one of both was edited. If it is attested itself it is as it was written, and the one before was
//! edited; if not, it was.

use chrono::{DateTime, Utc};
use kernel::{hex::Hex, ids::TerminalSessionId};

use crate::{
    chunk::{CHUNK_BYTES_MAX, Gap, Header, digest, no_digest},
    content,
    fault::Fault,
    seal::{PublicKey, Seal},
};

/// What was found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub chunks: u64,
    pub end_sequence: u64,
    /// Whether all output of the session is there.
    pub complete: bool,
    pub gaps: Vec<Gap>,
    pub ended_at: DateTime<Utc>,
    pub reason: String,
    /// What whoever sealed it found changed in the storage, as a [`Fault::code`].
    pub tampering: Option<String>,
    /// Which of the given keys signed.
    pub key_id: String,
}

/// Verifies one recording in the memory of one chunk.
#[derive(Debug)]
pub struct Verifier {
    session: TerminalSessionId,
    seal: Option<Seal>,
    /// How many chunks came.
    count: u64,
    last: Option<Last>,
    /// Another chunk came where this one belongs. Whether it is missing or only misplaced is known at the end.
    absent: Option<Absent>,
}

/// The chunk that came last, which nothing attested yet.
#[derive(Debug)]
struct Last {
    header: Header,
    digest: Hex,
    /// Whether it names the digest of the chunk before it.
    is_linked: bool,
    /// What is odd about it.
    oddity: Option<Fault>,
}

#[derive(Debug)]
struct Absent {
    index: u64,
    found: u64,
}

impl Verifier {
    /// Checks the seal, when there is one: it must be of this session and signed with one of these keys.
    pub fn new(session: TerminalSessionId, seal: Option<Seal>, keys: &[PublicKey]) -> Result<Self, Fault> {
        if let Some(seal) = &seal {
            seal.verify(keys)?;
            if seal.statement.session_id != session {
                return Err(Fault::SealForeign { found: seal.statement.session_id });
            }
        }
        Ok(Self { session, seal, count: 0, last: None, absent: None })
    }

    /// The next chunk. After a fault there is nothing more to verify.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let index = self.count;
        self.count += 1;
        let parsed = Header::parse(bytes);
        if let Some(absent) = &self.absent {
            return match parsed {
                Some((header, _)) if header.index == absent.index && header.session_id == self.session => {
                    Err(Fault::Reordered { position: absent.index, found: absent.found })
                }
                _ => Ok(()),
            };
        }
        if bytes.len() > CHUNK_BYTES_MAX {
            return Err(Fault::TooLarge { index });
        }
        let (header, body) = parsed.ok_or(Fault::HeaderUnreadable { index })?;
        let previous = self.last.as_ref().map_or_else(no_digest, |last| last.digest.clone());
        let is_linked = header.previous == previous;
        self.check_place(&header, index, is_linked)?;
        if self.absent.is_some() {
            return Ok(());
        }
        if self.seal.as_ref().is_some_and(|seal| index >= seal.statement.chunks) {
            return Err(Fault::AfterSeal { index });
        }
        if index == 0 && !is_linked {
            return Err(Fault::Edited { index });
        }
        self.attest_last(is_linked)?;
        let before = self.last.take().map(|last| last.header);
        let oddity = content::check(&header, body, before.as_ref()).err();
        self.last = Some(Last { header, digest: digest(bytes), is_linked, oddity });
        Ok(())
    }

    /// Whether a chunk says that it belongs here. One that is linked to the chunk before it does, whatever else it
    /// says: then it was edited.
    fn check_place(&mut self, header: &Header, index: u64, is_linked: bool) -> Result<(), Fault> {
        let was_edited = is_linked && (index > 0 || header.index != 0);
        if header.session_id != self.session {
            let found = header.session_id;
            return Err(if was_edited {
                Fault::Edited { index }
            } else {
                Fault::SessionForeign { index, found }
            });
        }
        if header.index == index {
            return Ok(());
        }
        if is_linked {
            return Err(Fault::Edited { index });
        }
        if header.index < index {
            return Err(Fault::Reordered { position: index, found: header.index });
        }
        self.absent = Some(Absent { index, found: header.index });
        Ok(())
    }

    /// Decides about the last chunk: whether what came after it names its digest.
    fn attest_last(&self, is_attested: bool) -> Result<(), Fault> {
        let Some(last) = &self.last else { return Ok(()) };
        let index = last.header.index;
        match (last.is_linked, is_attested) {
            (true, true) => last.oddity.clone().map_or(Ok(()), Err),
            (false, true) => Err(Fault::Edited { index: index.saturating_sub(1) }),
            (_, false) => match &last.oddity {
                // A chunk that was cut off is told as such, not as edited.
                Some(cut @ Fault::Truncated { .. }) => Err(cut.clone()),
                // It may still be as it was written, and the one after it edited: the chunk after that decides.
                _ if last.is_linked => Ok(()),
                _ => Err(Fault::Edited { index }),
            },
        }
    }

    /// No more chunks come.
    pub fn finish(self) -> Result<Verified, Fault> {
        if let Some(Absent { index, found }) = self.absent {
            return Err(Fault::Missing { from: index, to: found });
        }
        let Some(last) = &self.last else { return Err(Fault::Empty) };
        let index = last.header.index;
        let Some(seal) = &self.seal else {
            return Err(match &last.oddity {
                _ if !last.is_linked => Fault::LinkBroken { index: index.saturating_sub(1) },
                Some(oddity) => oddity.clone(),
                None => Fault::NotSealed { count: self.count },
            });
        };
        let statement = &seal.statement;
        if self.count < statement.chunks {
            return Err(Fault::Missing { from: self.count, to: statement.chunks });
        }
        let is_attested = statement.head == last.digest;
        self.attest_last(is_attested)?;
        if !is_attested {
            return Err(Fault::HeadMismatch { index });
        }
        let is_whole = statement.gaps.is_empty() || !statement.complete;
        if statement.end_sequence != last.header.end_sequence
            // Whoever found the chunks changed sealed what was known without them.
            || statement.gaps != last.header.gaps && statement.tampering.is_none()
            || !is_whole
        {
            return Err(Fault::SealContradicts);
        }
        Ok(Verified {
            chunks: self.count,
            end_sequence: statement.end_sequence,
            complete: statement.complete,
            gaps: statement.gaps.clone(),
            ended_at: statement.ended_at,
            reason: statement.reason.clone(),
            tampering: statement.tampering.clone(),
            key_id: seal.key_id.clone(),
        })
    }
}
