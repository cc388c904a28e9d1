//! A terminal through a tunnel, as a gateway and a browser together open it. The tests of simulated nodes use it too.

use std::{sync::Arc, time::Duration};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use bytes::BytesMut;
use chrono::TimeDelta;
use kernel::{Ambient, ids::NodeId};
use node_proto::{
    Keyset, SignerKey, SignerState,
    grant::{Grant, Owner, PtyAccess, PtyTarget, SignedGrant, Target, signing_bytes},
    text::Base64,
};
use node_tunnel::{
    Gate, Handler, OpenError, Profile, Stream, Tunnel,
    frame::{Decoder, Frame},
    serve,
};

/// Nothing here takes longer.
pub const SOON: Duration = Duration::from_secs(30);

pub fn grant_of(owner: Owner) -> Grant {
    let ambient = Ambient::system();
    Grant {
        grant_id: ambient.id(),
        node_id: "node_00000000000000000000000000000007".parse().unwrap(),
        owner,
        target: Target::Pty(PtyTarget {
            may_start: true,
            session_id: ambient.id(),
            access: PtyAccess::Write,
            ttl_seconds: 3600,
            idle_seconds: 3600,
            recorded: false,
        }),
        actor: "user_1".to_owned(),
        single_use: true,
        issued_at: ambient.now() + TimeDelta::seconds(1),
        expires_at: ambient.now() + TimeDelta::minutes(5),
        correlation_id: ambient.uuid(),
        signer_version: 3,
    }
}

fn signer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap()
}

pub fn sign(grant: &Grant) -> SignedGrant {
    let payload = grant.canonical().unwrap();
    let signature = Base64(signer().sign(&signing_bytes(&payload)).as_ref().to_vec());
    SignedGrant { payload: Base64(payload), signer_version: grant.signer_version, signature }
}

/// A tunnel to a node on which `handler` answers.
pub async fn tunnel(node: NodeId, handler: Arc<dyn Handler>) -> Tunnel {
    let ambient = Ambient::system();
    let public_key = Base64(signer().public_key().as_ref().to_vec());
    let signers = vec![SignerKey { signer_version: 3, state: SignerState::Active, public_key }];
    let keyset = Arc::new(Keyset { serial: 1, issued_at: ambient.now(), signers });
    let started_at = ambient.now();
    let gate =
        Arc::new(Gate::new(node, ambient, Box::new(move || keyset.clone()), Box::new(move || started_at)));
    let (agent, gateway) = tokio::io::duplex(64 * 1024);
    tokio::spawn(serve(agent, Profile::INTERACTIVE, gate, handler));
    Tunnel::start(gateway, Profile::INTERACTIVE).await.unwrap()
}

pub struct Terminal {
    stream: Stream,
    decoder: Decoder,
    received: u64,
    pub text: String,
}

impl Terminal {
    /// An error is the code of the refusal.
    pub async fn open(tunnel: &Tunnel, grant: &Grant) -> Result<Self, String> {
        let stream = match tunnel.open(&sign(grant)).await {
            Ok(stream) => stream,
            Err(OpenError::Refused(reason)) => return Err(reason),
            Err(other) => panic!("{other}"),
        };
        let mut terminal = Self { stream, decoder: Decoder::default(), received: 0, text: String::new() };
        terminal.send(Frame::Ack { sequence: 0 }).await;
        // Wide enough that no line is broken.
        terminal.send(Frame::Resize { columns: 1000, rows: 50 }).await;
        Ok(terminal)
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        tokio::time::timeout(SOON, self.stream.sender.send(bytes.freeze())).await.unwrap().unwrap();
    }

    pub async fn type_text(&mut self, text: &str) {
        self.send(Frame::Data(text.to_owned().into())).await;
    }

    /// Reads until `found` says what it found.
    pub async fn read<T>(&mut self, found: impl Fn(&str) -> Option<T>) -> T {
        loop {
            if let Some(found) = found(&self.text) {
                return found;
            }
            let frame = tokio::time::timeout(SOON, self.frame()).await;
            match frame.unwrap_or_else(|_| panic!("nothing more came after {:?}", self.text)) {
                Some(Frame::Data(bytes)) => {
                    self.received += bytes.len() as u64;
                    self.text.push_str(&String::from_utf8_lossy(&bytes));
                    self.send(Frame::Ack { sequence: self.received }).await;
                }
                Some(Frame::Ack { .. }) => {}
                other => panic!("{other:?} after {:?}", self.text),
            }
        }
    }

    /// The next frame; none at the end.
    pub async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.frame().unwrap() {
                return Some(frame);
            }
            let bytes = self.stream.receiver.next().await.unwrap()?;
            self.stream.receiver.consumed(bytes.len()).unwrap();
            self.decoder.push(bytes.clone());
        }
    }

    /// What a command prints, and its status.
    pub async fn run(&mut self, command: &str) -> (String, i32) {
        self.text.clear();
        // The marker is not in what is typed, which comes back too.
        self.type_text(&format!("{command}; echo \"@\"\"@$?@\"\n")).await;
        self.read(|text| {
            let (before, after) = text.split_once("@@")?;
            let (status, prompt) = after.split_once('@')?;
            // What is typed before the prompt would come back twice.
            let status = prompt.contains("$ ").then(|| status.parse().ok())??;
            let before = before.replace("\u{1b}[?2004h", "").replace("\u{1b}[?2004l", "").replace('\r', "");
            let printed = before.split_once(&format!("{command};"))?.1.split_once('\n')?.1;
            Some((printed.trim_end().to_owned(), status))
        })
        .await
    }
}
