//! A server that a test plays: it gives a recording that is other when it is read again.

use std::sync::{Arc, Mutex};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::hex::Hex;
use recording::{Recorder, Size};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::kit::Gpuaas;

pub const SESSION: &str = "term_0193b3a000007000800000000000c0de";
pub const ALLOCATION: &str = "alloc_0193b3a000007000800000000000c0de";
const PROJECT: &str = "proj_0193b3a000007000800000000000c0de";

/// What is stored of a recording, and what the database says about it.
#[derive(Clone)]
pub struct Stored {
    pub chunks: Vec<Vec<u8>>,
    /// What is there from the second reading on.
    pub chunks_later: Option<Vec<Vec<u8>>>,
    pub seal: Option<String>,
    pub is_sealed: bool,
    /// How many chunks the database knows.
    pub known: usize,
    pub key: Hex,
}

fn time() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000)
}

impl Stored {
    /// Each of these outputs, so many seconds after the start, in a chunk of its own.
    pub fn from_outputs(outputs: &[(i64, &str)]) -> Self {
        let size = Size { columns: 80, rows: 24 };
        let mut recorder = Recorder::new(SESSION.parse().unwrap(), size, time());
        let mut chunks = Vec::new();
        for (seconds, text) in outputs {
            let at = time() + TimeDelta::seconds(*seconds);
            // The first chunk holds the header of the file, too.
            if recorder.next_sequence() > 0 {
                chunks.extend(recorder.flush());
            }
            chunks.extend(recorder.output(at, recorder.next_sequence(), text.as_bytes()));
        }
        let (ended, sequence) = (time() + TimeDelta::days(1), recorder.next_sequence());
        let finished = recorder.finish(ended, Some(sequence), "exited");
        chunks.extend(finished.chunks);
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let seal = String::from_utf8(finished.statement.sign(&key).to_bytes()).unwrap();
        Self {
            known: chunks.len(),
            chunks: chunks.into_iter().map(|chunk| chunk.bytes).collect(),
            chunks_later: None,
            seal: Some(seal),
            is_sealed: true,
            key: Hex(key.public_key().as_ref().to_vec()),
        }
    }

    fn recording(&self) -> Value {
        let sealed_at = self.is_sealed.then(time);
        json!({
            "session_id": SESSION, "allocation_id": ALLOCATION, "created_by": "user_0193b3a000007000800000000000c0de",
            "mode": "output", "started_at": time(), "chunks": self.known, "output_bytes": 0, "stored_bytes": 0,
            "sealed_at": sealed_at, "expires_at": time(),
        })
    }

    fn view(&self) -> Value {
        let key = json!({ "key_id": "00", "public_key": self.key });
        let id = "rview_0193b3a000007000800000000000c0de";
        json!({ "id": id, "session_id": SESSION, "expires_at": time(), "key": key })
    }

    fn chunks(&mut self, from: usize) -> Value {
        let items = self.chunks.iter().enumerate().skip(from);
        let items =
            items.map(|(index, chunk)| json!({ "index": index, "content": BASE64_STANDARD.encode(chunk) }));
        let answer = json!({ "items": items.collect::<Vec<_>>(), "seal": self.seal });
        if from == 0
            && let Some(later) = self.chunks_later.take()
        {
            self.chunks = later;
        }
        answer
    }
}

/// Serves until the test ends. Somebody who may read it.
pub async fn person(stored: Stored) -> Gpuaas {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let stored = Arc::new(Mutex::new(stored));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stored = stored.clone();
            tokio::spawn(async move { answer(stream, &stored).await });
        }
    });
    Gpuaas::new(&base).env("GPUAAS_TOKEN", "sample").env("GPUAAS_PROJECT", PROJECT)
}

async fn answer(mut stream: TcpStream, stored: &Mutex<Stored>) -> Option<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.read_buf(&mut request).await.ok().filter(|read| *read > 0)?;
    }
    let line = String::from_utf8_lossy(&request).lines().next()?.to_owned();
    let path = line.split(' ').nth(1)?;
    let rest = path.split_once(&format!("/allocations/{ALLOCATION}/recordings/{SESSION}"))?.1;
    let (status, body) = {
        let mut stored = stored.lock().unwrap();
        match rest.split_once("from=") {
            Some((_, from)) => (200, stored.chunks(from.parse().unwrap())),
            None if rest == "/views" => (201, stored.view()),
            None => (200, stored.recording()),
        }
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}
