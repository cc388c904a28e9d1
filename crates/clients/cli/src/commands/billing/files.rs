//! Documents that are streamed to files.

use std::{fs, io::Write as _};

use futures_util::StreamExt as _;

use crate::{
    failure::{Result, local},
    output::{note, write_bytes},
};

/// To a file, or to standard output. A document may be larger than memory.
pub async fn save(mut stream: sdk::ByteStream, out: Option<&str>) -> Result {
    let mut file = match out {
        Some(out) => Some(fs::File::create(out).map_err(local(format!("{out} cannot be written")))?),
        None => None,
    };
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(sdk::Error::Network)?;
        match &mut file {
            Some(file) => file.write_all(&chunk).map_err(local("the document cannot be written"))?,
            None => write_bytes(&chunk)?,
        }
    }
    if let (Some(file), Some(out)) = (file, out) {
        file.sync_all().map_err(local("the document cannot be written"))?;
        note(&format!("Written to {out}."));
    }
    Ok(())
}
