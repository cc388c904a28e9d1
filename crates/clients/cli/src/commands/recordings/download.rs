//! The chunks of a recording, from the server to a directory.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kernel::ids::TerminalSessionId;
use sdk::Client;

use crate::{
    failure::{Failure, Result, local},
    output::note,
};

/// The file beside the chunks of a directory.
pub const SEAL: &str = "seal";

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
    /// Known after the last chunk.
    pub seal: Option<String>,
}

impl<'a> Source<'a> {
    /// Opens a view, which the audit trail keeps.
    pub async fn open(
        client: &'a Client,
        project: &'a str,
        allocation: &'a str,
        session: TerminalSessionId,
    ) -> Result<Self> {
        let view = send!(client.terminal_recording_view_create(project, allocation, &session.to_string()));
        let (view, key) = (view.id, view.key.public_key);
        Ok(Self {
            client,
            project,
            allocation,
            session,
            view,
            key,
            read: VecDeque::new(),
            next: Some(0),
            seal: None,
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
            (self.next, self.seal) = (answer.next, answer.seal);
        }
    }
}

/// Writes a directory that `verify` reads.
pub async fn write_directory(mut source: Source<'_>, dir: Option<PathBuf>) -> Result {
    let dir = dir.unwrap_or_else(|| PathBuf::from(source.session.to_string()));
    let failed = |path: &Path| local(format!("{} cannot be written", path.display()));
    fs::create_dir(&dir).map_err(|error: std::io::Error| {
        Failure::client(format!("{} cannot be made: {error}", dir.display()))
            .suggest("Name a directory that does not exist with --dir.")
    })?;
    let mut count = 0;
    while let Some((index, chunk)) = source.chunk().await? {
        let file = dir.join(chunk_name(index));
        fs::write(&file, chunk).map_err(failed(&file))?;
        count += 1;
    }
    let Source { seal, key, .. } = source;
    if let Some(seal) = &seal {
        let file = dir.join(SEAL);
        fs::write(&file, seal).map_err(failed(&file))?;
    }
    let sealed = if seal.is_some() { "and the seal" } else { "and no seal: the recording is not sealed yet" };
    note(&format!("Wrote {count} chunks {sealed} to {}.", dir.display()));
    note(&format!("Verify with: gpuaas recordings verify {} --key {key}", dir.display()));
    Ok(())
}
