//! Verifies a directory that `gpuaas recordings download` made, without a server.

use std::{fs, path::Path};

use kernel::{hex::Hex, ledger::key_id};
use recording::{CHUNK_BYTES_MAX, Fault, Header, PublicKey, Seal, Verifier};
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

pub fn run(app: &App, dir: &Path, keys: &[String]) -> Result {
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
    let session = match (&seal, chunks.peek()) {
        (Some(seal), _) => seal.statement.session_id,
        (None, Some(first)) => {
            let first = read(first)?;
            Header::parse(&first).ok_or_else(|| fault(Fault::HeaderUnreadable { index: 0 }))?.0.session_id
        }
        (None, None) => return Err(fault(Fault::Empty)),
    };
    let accepted = accepted_keys(seal.as_ref(), keys)?;
    let mut verifier = Verifier::new(session, seal, &accepted).map_err(fault)?;
    for name in chunks {
        verifier.chunk(&read(name)?).map_err(fault)?;
    }
    let found = verifier.finish().map_err(fault)?;
    if keys.is_empty() {
        note("Compare the key with the one of the installation, or pin it with --key.");
    }
    if !found.complete {
        let lost: u64 = found.gaps.iter().map(|gap| gap.to - gap.from).sum();
        note(&format!(
            "The recording is as it was written, and not complete: {lost} bytes of output are known to be missing; output at \
             the end may be missing when nobody saw the session end."
        ));
    }
    let shown = json!({
        "ok": true, "session_id": session, "chunks": found.chunks, "output_bytes": found.end_sequence,
        "complete": found.complete, "gaps": found.gaps, "ended_at": found.ended_at, "reason": found.reason,
        "key_id": found.key_id,
    });
    app.out.item(&shown, VERIFIED)
}

fn fault(fault: Fault) -> Failure {
    Failure::new(Exit::Client, format!("the recording failed verification ({}): {fault}", fault.code()))
}

/// Without `--key`, whatever key the seal names: then it only proves that the recording is in one piece.
fn accepted_keys(seal: Option<&Seal>, keys: &[String]) -> Result<Vec<PublicKey>> {
    let named = seal.and_then(|seal| PublicKey::try_from(seal.public_key.0.as_slice()).ok());
    if keys.is_empty() {
        return Ok(named.into_iter().collect());
    }
    let mut accepted = Vec::new();
    for key in keys {
        let decoded = serde_json::from_value::<Hex>(key.as_str().into()).ok();
        match decoded.and_then(|key| PublicKey::try_from(key.0).ok()) {
            Some(key) => accepted.push(key),
            // An id: the key itself comes with the seal, and its id is a digest of it.
            None => accepted.extend(named.filter(|named| key_id(named) == *key)),
        }
    }
    Ok(accepted)
}
