//! A node with terminal sessions, and tunnels to it.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use async_trait::async_trait;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Ambient, ManualClock,
    ids::{AllocationId, GrantId, NodeId, TerminalSessionId},
};
use node_proto::{
    Keyset, SignerKey, SignerState,
    grant::{Grant, Owner, PtyAccess, PtyTarget, SignedGrant, Target, signing_bytes},
    text::Base64,
};
use node_terminal::{Limits, SessionStatus, Sessions, Shell, Shells};
use node_tunnel::{Gate, OpenError, Profile, Refusal, Stream, Tunnel, TunnelError, serve};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::client::Client;

/// Nothing here takes longer.
pub const SOON: Duration = Duration::from_secs(30);
/// Nothing happens for so long where nothing is to happen.
pub const A_WHILE: Duration = Duration::from_millis(200);

const DAY_SECONDS: u32 = 86_400;

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn signer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap()
}

pub fn owner(number: u128) -> Owner {
    Owner::Allocation { allocation_id: AllocationId::from(Uuid::from_u128(number)) }
}

/// Runs the script that a session was registered with; `bash` where that is empty.
#[derive(Default)]
struct Scripts(Mutex<HashMap<TerminalSessionId, String>>);

#[async_trait]
impl Shells for Scripts {
    async fn shell(&self, grant: &Grant) -> Result<Shell, Refusal> {
        let Target::Pty(target) = &grant.target else { return Err(Refusal("not_a_terminal")) };
        let script = self.0.lock().unwrap().get(&target.session_id).cloned().unwrap_or_default();
        let (program, args) = match script.as_str() {
            "" => ("/bin/bash", vec!["--norc", "--noprofile"]),
            "absent" => ("/bin/not_installed", vec![]),
            script => ("/bin/bash", vec!["-c", script]),
        };
        Ok(Shell {
            program: PathBuf::from(program),
            args: args.into_iter().map(OsString::from).collect(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("PS1".into(), "> ".into())],
            cwd: PathBuf::from("/"),
            terminal_owner: None,
        })
    }
}

pub struct Node {
    pub id: NodeId,
    pub sessions: Arc<Sessions>,
    scripts: Arc<Scripts>,
    gate: Arc<Gate>,
    dir: TempDir,
}

/// One tunnel to the node.
pub struct Link {
    pub tunnel: Tunnel,
    agent: JoinHandle<Result<(), TunnelError>>,
    sessions: Weak<Sessions>,
}

impl Node {
    pub fn new() -> Self {
        Self::with(Limits { sessions_per_owner: 256, ..Limits::default() })
    }

    pub fn with(limits: Limits) -> Self {
        let id = NodeId::from(Ambient::system().uuid());
        let public_key = Base64(signer().public_key().as_ref().to_vec());
        let signers = vec![SignerKey { signer_version: 3, state: SignerState::Active, public_key }];
        let keyset = Arc::new(Keyset { serial: 5, issued_at: now(), signers });
        let clock = ManualClock::starting_at(now());
        let gate = Arc::new(Gate::new(id, clock.ambient(), Box::new(move || keyset.clone()), Box::new(now)));
        let scripts = Arc::new(Scripts::default());
        let sessions = Sessions::new(scripts.clone(), limits);
        Self { id, sessions, scripts, gate, dir: TempDir::new().unwrap() }
    }

    pub fn session(&self, script: &str) -> TerminalSessionId {
        let id = TerminalSessionId::from(Ambient::system().uuid());
        self.scripts.0.lock().unwrap().insert(id, script.to_owned());
        id
    }

    /// A file with bytes that look like noise, and the bytes.
    pub fn noise(&self, length: usize) -> (PathBuf, Vec<u8>) {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64 ^ length as u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 32) as u8
        })
        .take(length)
        .collect();
        let path = self.path("noise");
        std::fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub async fn connect(&self) -> Link {
        let (agent, gateway) = tokio::io::duplex(64 * 1024);
        let profile = Profile::INTERACTIVE;
        let agent = tokio::spawn(serve(agent, profile, self.gate.clone(), self.sessions.clone()));
        let sessions = Arc::downgrade(&self.sessions);
        Link { tunnel: Tunnel::start(gateway, profile).await.unwrap(), agent, sessions }
    }

    pub fn grant(&self, session_id: TerminalSessionId, access: PtyAccess) -> Grant {
        Grant {
            grant_id: GrantId::from(Ambient::system().uuid()),
            node_id: self.id,
            owner: owner(1),
            target: Target::Pty(PtyTarget {
                may_start: true,
                session_id,
                access,
                ttl_seconds: DAY_SECONDS,
                idle_seconds: DAY_SECONDS,
                recorded: false,
            }),
            actor: "user_1".to_owned(),
            single_use: true,
            issued_at: now(),
            expires_at: now() + TimeDelta::minutes(5),
            correlation_id: Uuid::from_u128(0xC),
            signer_version: 3,
        }
    }

    /// Attaches to a session that is recorded.
    pub async fn attach_recorded(
        &self,
        link: &Link,
        session: TerminalSessionId,
        access: PtyAccess,
    ) -> Client {
        let mut grant = self.grant(session, access);
        if let Target::Pty(target) = &mut grant.target {
            target.recorded = true;
        }
        Client::begin(link.tunnel.open(&sign(&grant)).await.unwrap(), 0).await
    }

    pub async fn open(&self, link: &Link, session: TerminalSessionId, access: PtyAccess) -> Stream {
        link.tunnel.open(&sign(&self.grant(session, access))).await.unwrap()
    }

    /// Attaches a client that has the first `received` bytes.
    pub async fn attach(
        &self,
        link: &Link,
        session: TerminalSessionId,
        access: PtyAccess,
        received: u64,
    ) -> Client {
        Client::begin(self.open(link, session, access).await, received).await
    }

    /// Attaches the first writer.
    pub async fn write(&self, link: &Link, session: TerminalSessionId) -> Client {
        self.attach(link, session, PtyAccess::Write, 0).await
    }

    pub async fn refused(&self, link: &Link, session: TerminalSessionId, access: PtyAccess) -> String {
        refused(link, &self.grant(session, access)).await
    }

    pub fn status(&self, session: TerminalSessionId) -> Option<SessionStatus> {
        self.sessions.list().into_iter().find(|status| status.session_id == session)
    }

    pub fn produced(&self, session: TerminalSessionId) -> u64 {
        self.status(session).map_or(0, |status| status.produced)
    }
}

impl Link {
    /// The only tunnel breaks; the node has noticed when this returns.
    pub async fn cut(self) {
        drop(self.tunnel);
        let _ = tokio::time::timeout(SOON, self.agent).await.expect("the agent notices").unwrap();
        let Some(sessions) = self.sessions.upgrade() else { return };
        eventually("nobody is attached", || sessions.list().iter().all(|status| status.attached == 0)).await;
    }
}

pub fn sign(grant: &Grant) -> SignedGrant {
    let payload = grant.canonical().unwrap();
    let signature = signer().sign(&signing_bytes(&payload)).as_ref().to_vec();
    SignedGrant {
        payload: Base64(payload),
        signer_version: grant.signer_version,
        signature: Base64(signature),
    }
}

pub async fn refused(link: &Link, grant: &Grant) -> String {
    match link.tunnel.open(&sign(grant)).await {
        Err(OpenError::Refused(reason)) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => "opened".to_owned(),
    }
}

/// Waits until it holds.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

/// A script line that waits for a file.
pub fn wait_for(path: &Path) -> String {
    format!("until [ -e {} ]; do sleep 0.02; done", path.display())
}
