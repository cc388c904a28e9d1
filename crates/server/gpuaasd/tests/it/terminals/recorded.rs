//! A recording, as somebody downloads it.

use std::path::{Path, PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use recording::{Event, Fault, PublicKey, Seal, Verified, Verifier, cast};
use serde_json::{Value, json};
use testkit::{Answer, Tenant, World, eventually_within};

use super::client::LATER;

pub struct Recorded {
    session: String,
    pub chunks: Vec<Vec<u8>>,
    pub seal: Option<Vec<u8>>,
    pub key: PublicKey,
}

pub fn path(tenant: &Tenant, allocation: &str, rest: &str) -> String {
    tenant.path(&format!("/{allocation}/recordings{rest}"))
}

pub async fn get(tenant: &Tenant, allocation: &str, session: &str) -> Value {
    tenant.api().get(&path(tenant, allocation, &format!("/{session}"))).await.expect(200)
}

pub async fn view(tenant: &Tenant, allocation: &str, session: &str) -> Answer {
    tenant.api().post(&path(tenant, allocation, &format!("/{session}/views")), json!({})).await
}

/// Waits until somebody has sealed it.
pub async fn sealed(tenant: &Tenant, allocation: &str, session: &str) -> Value {
    eventually_within(LATER, "the recording is sealed", || async {
        Some(get(tenant, allocation, session).await).filter(|recording| recording["sealed_at"].is_string())
    })
    .await
}

/// Without its prefix, as the database has it.
pub fn uuid(session: &str) -> uuid::Uuid {
    session.trim_start_matches("term_").parse().unwrap()
}

pub fn chunk(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("{index:08}"))
}

/// Ends a session from outside, and lets nobody wait for its gateway to seal the recording.
pub async fn end(world: &World, tenant: &Tenant, allocation: &str, session: &str) {
    let path = tenant.path(&format!("/{allocation}/terminal-sessions/{session}"));
    tenant.api().delete(&path).await.expect(204);
    let id = uuid(session);
    let ended = format!("SELECT count(*) FROM terminal_sessions WHERE ended_at IS NOT NULL AND id = '{id}'");
    eventually_within(LATER, "the session has ended", || async {
        (world.db.one::<i64>(&ended).await == 1).then_some(())
    })
    .await;
    let earlier = "UPDATE terminal_sessions SET ended_at = ended_at - interval '1 minute'";
    world.db.sql(&format!("{earlier} WHERE id = '{id}'")).await;
}

/// Where a server keeps the objects of a recording.
pub fn folder(world: &World, session: &str) -> PathBuf {
    let recordings = world.server.dir.path().join("data/objects/recordings");
    let orgs = std::fs::read_dir(recordings).unwrap().map(|org| org.unwrap().path().join(session));
    orgs.into_iter().find(|folder| folder.exists()).expect("the objects of the recording")
}

impl Recorded {
    pub async fn download(tenant: &Tenant, allocation: &str, session: &str) -> Self {
        let view = view(tenant, allocation, session).await.expect(201);
        let (id, key) = (view["id"].as_str().unwrap(), view["key"]["public_key"].as_str().unwrap());
        let mut from = Some(0);
        let (mut chunks, mut seal) = (Vec::new(), None);
        while let Some(index) = from {
            let rest = format!("/{session}/views/{id}/chunks?from={index}");
            let answer = tenant.api().get(&path(tenant, allocation, &rest)).await.expect(200);
            for chunk in answer["items"].as_array().unwrap() {
                chunks.push(BASE64_STANDARD.decode(chunk["content"].as_str().unwrap()).unwrap());
            }
            seal = answer["seal"].as_str().map(|seal| seal.as_bytes().to_vec());
            from = answer["next"].as_u64();
        }
        let key = (0..32).map(|at| u8::from_str_radix(&key[2 * at..2 * at + 2], 16).unwrap());
        let key = key.collect::<Vec<_>>().try_into().unwrap();
        Self { session: session.to_owned(), chunks, seal, key }
    }

    pub fn verify(&self) -> Result<Verified, Fault> {
        let seal = self.seal.as_deref().map(Seal::parse).transpose()?;
        let mut verifier = Verifier::new(self.session.parse().unwrap(), seal, &[self.key])?;
        for chunk in &self.chunks {
            verifier.chunk(chunk)?;
        }
        verifier.finish()
    }

    /// All of it as one asciicast.
    pub fn cast_file(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(|chunk| cast(chunk)).copied().collect()
    }

    pub fn events(&self) -> Vec<Event> {
        let file = self.cast_file();
        let lines = file.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"["));
        lines.map(|line| Event::parse(line).expect("an event").1).collect()
    }

    pub fn output(&self) -> String {
        let text = |event| if let Event::Output(text) = event { Some(text) } else { None };
        self.events().into_iter().filter_map(text).collect()
    }

    pub fn input(&self) -> String {
        let text = |event| if let Event::Input(text) = event { Some(text) } else { None };
        self.events().into_iter().filter_map(text).collect()
    }
}
