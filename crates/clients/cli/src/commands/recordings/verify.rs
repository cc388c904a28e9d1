//! Verifies a directory that `gpuaas recordings download` made, without a server.

use std::{fs, path::Path};

use kernel::{hex::Hex, ids::TerminalSessionId, ledger::key_id};
use recording::{CHUNK_BYTES_MAX, Fault, Header, PublicKey, Seal, Verified, Verifier};
use serde_json::json;

use super::download::SEAL;
use crate::{
    app::App,
    failure::{Exit, Failure, Result, local},
    output::{Columns, note},
};

const VERIFIED: Columns = &[
    ("OK", "ok"),
    ("SESSION", "session_id"),
    ("CHUNKS", "chunks"),
    ("OUTPUT", "output_bytes"),
    ("COMPLETE", "complete"),
    ("ENDED", "ended_at"),
    ("REASON", "reason"),
    ("KEY", "key_id"),
];

pub fn run(app: &App, dir: &Path, keys: &[String], session: Option<TerminalSessionId>) -> Result {
    if keys.is_empty() {
        let text = "without the key of the installation nobody can tell whether the seal is forged: give it with --key";
        return Err(Failure::client(text).suggest(
            "`gpuaas recordings download` prints the key; an auditor gets it from the operator of the installation.",
        ));
    }
    // `download` names the directory after the session that was asked for.
    let named = dir.canonicalize().ok();
    let named = named.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok());
    let asked = session.or(named);
    let unreadable = |path: &Path| local(format!("{} cannot be read", path.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable(dir))? {
        names.push(entry.map_err(unreadable(dir))?.file_name());
    }
    names.sort();
    let seal_file = dir.join(SEAL);
    let seal = match names.iter().any(|name| name == SEAL) {
        true => Some(Seal::parse(&fs::read(&seal_file).map_err(unreadable(&seal_file))?).map_err(fault)?),
        false => None,
    };
    let chunks = names.iter().filter(|name| name.to_str().is_some_and(|name| name.parse::<u64>().is_ok()));
    let read = |name: &std::ffi::OsString| {
        let path = dir.join(name);
        let length = fs::metadata(&path).map_err(unreadable(&path))?.len();
        if length > CHUNK_BYTES_MAX as u64 {
            let index = name.to_str().and_then(|name| name.parse().ok()).unwrap_or_default();
            return Err(fault(Fault::TooLarge { index }));
        }
        fs::read(&path).map_err(unreadable(&path))
    };
    let mut chunks = chunks.peekable();
    let session = match (asked, chunks.peek()) {
        (Some(session), _) => session,
        (None, Some(first)) => {
            let first = read(first)?;
            let (header, _) =
                Header::parse(&first).ok_or_else(|| fault(Fault::HeaderUnreadable { index: 0 }))?;
            note(&format!(
                "The first chunk is of session {}. Compare it with the one you asked for, or give that with --session.",
                header.session_id
            ));
            header.session_id
        }
        (None, None) => return Err(fault(Fault::Empty)),
    };
    let accepted = accepted_keys(seal.as_ref(), keys);
    let mut verifier = Verifier::new(session, seal, &accepted).map_err(fault)?;
    for name in chunks {
        verifier.chunk(&read(name)?).map_err(fault)?;
    }
    let found = verifier.finish().map_err(fault)?;
    tampering_refuse(&found)?;
    incomplete_note(&found);
    let shown = json!({
        "ok": true, "session_id": session, "chunks": found.chunks, "output_bytes": found.end_sequence,
        "complete": found.complete, "gaps": found.gaps, "ended_at": found.ended_at, "reason": found.reason,
        "key_id": found.key_id,
    });
    app.out.item(&shown, VERIFIED)
}

/// What the installation knows of a recording without its objects, from before they were read.
pub struct Known {
    /// How many chunks are stored at least.
    pub chunks: u64,
    /// The recording is sealed, and there is no seal.
    pub is_seal_missing: bool,
}

impl Known {
    /// Refuses a recording of which less is there than was stored: what is left may be in one piece.
    fn missing_refuse(&self, count: u64) -> Result {
        let chunks = (count < self.chunks).then_some(Fault::Missing { from: count, to: self.chunks });
        match (self.is_seal_missing, chunks) {
            (false, None) => Ok(()),
            (false, Some(chunks)) => Err(fault(chunks)),
            (true, chunks) => {
                let chunks = chunks.map(|chunks| format!("; {chunks}")).unwrap_or_default();
                let text = format!(
                    "the recording failed verification (seal_missing): the installation sealed it, and the seal is missing in \
                     the object storage; restore it from a backup{chunks}"
                );
                Err(Failure::new(Exit::Client, text))
            }
        }
    }
}

/// What was found of a recording; nothing when it is not sealed, and in one piece so far.
pub fn finished(verifier: Verifier, known: &Known) -> Result<Option<Verified>> {
    match verifier.finish() {
        Ok(found) => {
            tampering_refuse(&found)?;
            known.missing_refuse(found.chunks)?;
            Ok(Some(found))
        }
        Err(Fault::NotSealed { count }) => known.missing_refuse(count).map(|()| None),
        Err(other) => {
            if other == Fault::Empty {
                known.missing_refuse(0)?;
            }
            Err(fault(other))
        }
    }
}

/// Tells what was verified.
pub fn verified_note(found: Option<&Verified>) {
    match found {
        Some(found) => {
            note(&format!("Verified: as it was recorded, sealed with key {}.", found.key_id));
            incomplete_note(found);
        }
        None => note("In one piece so far, and not sealed: its end may be missing."),
    }
}

fn incomplete_note(found: &Verified) {
    if !found.complete {
        let lost: u64 = found.gaps.iter().map(|gap| gap.to - gap.from).sum();
        note(&format!(
            "The recording is as it was written, and not complete: {lost} bytes of output are known to be missing; output at \
             the end may be missing when nobody saw the session end."
        ));
    }
}

/// A recording that was found changed before it was sealed is not as it was written, even if it is in one piece now.
fn tampering_refuse(found: &Verified) -> Result {
    let Some(code) = &found.tampering else { return Ok(()) };
    let text = format!(
        "the recording failed verification (tampering_found): before it was sealed, the installation found it changed ({code}); \
         ask the operator of the installation"
    );
    Err(Failure::new(Exit::Client, text))
}

pub fn fault(fault: Fault) -> Failure {
    Failure::new(Exit::Client, format!("the recording failed verification ({}): {fault}", fault.code()))
}

/// A public key in hexadecimal.
pub fn public_key(text: &str) -> Option<PublicKey> {
    let decoded = serde_json::from_value::<Hex>(text.into()).ok()?;
    PublicKey::try_from(decoded.0).ok()
}

/// The keys that are given, and for an id the key that comes with the seal, if that is its id: an id is a digest of its key.
fn accepted_keys(seal: Option<&Seal>, keys: &[String]) -> Vec<PublicKey> {
    let named = seal.and_then(|seal| PublicKey::try_from(seal.public_key.0.as_slice()).ok());
    let accepted = |key: &String| public_key(key).or_else(|| named.filter(|named| key_id(named) == *key));
    keys.iter().filter_map(accepted).collect()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn a_recording_that_was_found_changed_is_refused_although_it_is_in_one_piece_now() {
        let found = Verified {
            chunks: 1,
            end_sequence: 0,
            complete: false,
            gaps: Vec::new(),
            ended_at: DateTime::UNIX_EPOCH,
            reason: "exited".to_owned(),
            tampering: Some("chunk_edited".to_owned()),
            key_id: "00".to_owned(),
        };
        let refused = tampering_refuse(&found).unwrap_err();
        assert_eq!(refused.exit, Exit::Client);
        assert!(refused.message.contains("tampering_found") && refused.message.contains("chunk_edited"));
        assert!(tampering_refuse(&Verified { tampering: None, ..found }).is_ok());
    }

    #[test]
    fn less_than_the_installation_stored_is_refused_and_what_is_missing_is_named() {
        let said = |chunks, is_seal_missing| {
            Known { chunks, is_seal_missing }.missing_refuse(2).err().map(|failure| failure.message)
        };
        assert_eq!((said(2, false), said(1, false)), (None, None), "there may be more by now");
        let chunks = said(4, false).unwrap();
        assert!(chunks.contains("chunk_missing") && chunks.contains("chunks 2 to 3 are"), "{chunks}");
        let seal = said(2, true).unwrap();
        assert!(seal.contains("seal_missing") && !seal.contains("chunk"), "{seal}");
        let both = said(3, true).unwrap();
        assert!(both.contains("seal_missing") && both.contains("chunk 2 is missing"), "{both}");
    }
}
