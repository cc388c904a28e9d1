//! A recording in memory.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::ids::TerminalSessionId;
use recording::{
    Chunk, Event, Fault, Finished, Limits, PublicKey, Recorder, Seal, Size, Verified, Verifier, cast,
};
use uuid::Uuid;

pub fn session() -> TerminalSessionId {
    TerminalSessionId::from(Uuid::from_u128(7))
}

pub fn started() -> DateTime<Utc> {
    DateTime::from_timestamp_micros(1_700_000_000_250_000).unwrap()
}

/// So many milliseconds after the start.
pub fn at(millis: i64) -> DateTime<Utc> {
    started() + TimeDelta::milliseconds(millis)
}

pub fn key(seed: u8) -> (Ed25519KeyPair, PublicKey) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    let public = pair.public_key().as_ref().try_into().unwrap();
    (pair, public)
}

/// Chunks of a few lines.
pub fn small() -> Limits {
    Limits { chunk_bytes: 200, chunk_age: TimeDelta::seconds(5) }
}

pub fn recorder(limits: Limits) -> Recorder {
    Recorder::new(session(), Size { columns: 80, rows: 24 }, started()).with_limits(limits)
}

/// As it is stored.
#[derive(Clone)]
pub struct Stored {
    pub chunks: Vec<Vec<u8>>,
    pub seal: Option<Vec<u8>>,
}

impl Stored {
    pub fn finished(mut chunks: Vec<Chunk>, finished: Finished) -> Self {
        chunks.extend(finished.chunks);
        assert!(chunks.iter().map(|chunk| chunk.index).eq(0..chunks.len() as u64));
        let seal = finished.statement.sign(&key(1).0).to_bytes();
        Self { chunks: chunks.into_iter().map(|chunk| chunk.bytes).collect(), seal: Some(seal) }
    }

    pub fn verify(&self) -> Result<Verified, Fault> {
        let seal = self.seal.as_deref().map(Seal::parse).transpose()?;
        let mut verifier = Verifier::new(session(), seal, &[key(2).1, key(1).1])?;
        for chunk in &self.chunks {
            verifier.chunk(chunk)?;
        }
        verifier.finish()
    }

    pub fn events(&self) -> Vec<Event> {
        let cast: Vec<u8> = self.chunks.iter().flat_map(|chunk| cast(chunk)).copied().collect();
        let lines = cast.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n').skip(1);
        lines.map(|line| Event::parse(line).unwrap().1).collect()
    }

    pub fn output(&self) -> String {
        let text = |event| if let Event::Output(text) = event { Some(text) } else { None };
        self.events().into_iter().filter_map(text).collect()
    }
}

/// Several chunks with output, sizes and what was typed.
pub fn sample() -> Stored {
    let mut recorder = recorder(small());
    let (mut chunks, mut sequence) = (Vec::new(), 0);
    for turn in 0..40 {
        let text = format!("line {turn} ä\r\n");
        chunks.extend(recorder.output(at(turn * 10), sequence, text.as_bytes()));
        sequence += text.len() as u64;
        if turn % 7 == 0 {
            chunks.extend(recorder.resized(at(turn * 10), 100, 30));
            chunks.extend(recorder.input(at(turn * 10), b"ls\r"));
        }
    }
    let stored = Stored::finished(chunks, recorder.finish(at(1000), Some(sequence), "exited"));
    assert!(stored.chunks.len() > 5, "{}", stored.chunks.len());
    stored
}
