//! How long the last frames of a session may take. Time is tokio's and stands still while anything happens.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Ambient, ManualClock, ids::AllocationId};
use node_proto::{
    Keyset, SignerKey, SignerState,
    grant::{Grant, Owner, PtyAccess, PtyTarget, SignedGrant, Target, signing_bytes},
    text::Base64,
};
use node_tunnel::{Gate, Handler, Refusal, Tunnel, serve};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::*;
use crate::{Limits, state::End};

const OWNER: u128 = 1;
/// A gateway waits no longer for its storage.
const STORAGE: Duration = Duration::from_secs(10);

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn owner() -> Owner {
    Owner::Allocation { allocation_id: AllocationId::from(Uuid::from_u128(OWNER)) }
}

fn signer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap()
}

/// A recorded session without a program, and a tunnel to it.
struct Node {
    session: Arc<Session>,
    tunnel: Tunnel,
}

struct Attaching(Arc<Session>);

#[async_trait]
impl Handler for Attaching {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        let Target::Pty(target) = &grant.target else { return Err(Refusal("not_supported")) };
        let seat = self.0.join(target.access, true)?;
        Ok(Box::new(Attachment { seat, grace: Duration::ZERO, open: TaskTracker::new().token() }))
    }
}

impl Node {
    async fn new() -> Self {
        let id = Uuid::from_u128(2).into();
        let session = Session::new(id, owner(), "user_1".to_owned(), true, &Limits::default());
        let public_key = Base64(signer().public_key().as_ref().to_vec());
        let signers = vec![SignerKey { signer_version: 1, state: SignerState::Active, public_key }];
        let keyset = Arc::new(Keyset { serial: 1, issued_at: now(), signers });
        let clock = ManualClock::starting_at(now());
        let signers = Box::new(move || keyset.clone());
        let gate = Gate::new(Uuid::from_u128(3).into(), clock.ambient(), signers, Box::new(now));
        let (agent, gateway) = tokio::io::duplex(64 * 1024);
        let handler = Arc::new(Attaching(session.clone()));
        tokio::spawn(serve(agent, Profile::INTERACTIVE, Arc::new(gate), handler));
        Self { session, tunnel: Tunnel::start(gateway, Profile::INTERACTIVE).await.unwrap() }
    }

    async fn open(&self, access: PtyAccess) -> Client {
        let grant = Grant {
            grant_id: Ambient::system().id(),
            node_id: Uuid::from_u128(3).into(),
            owner: owner(),
            target: Target::Pty(PtyTarget {
                may_start: true,
                session_id: self.session.id,
                access,
                ttl_seconds: 3600,
                idle_seconds: 3600,
                recorded: true,
            }),
            actor: "user_1".to_owned(),
            single_use: true,
            issued_at: now(),
            expires_at: now() + TimeDelta::minutes(5),
            correlation_id: Uuid::from_u128(4),
            signer_version: 1,
        };
        let payload = grant.canonical().unwrap();
        let signature = Base64(signer().sign(&signing_bytes(&payload)).as_ref().to_vec());
        let signed = SignedGrant { payload: Base64(payload), signer_version: 1, signature };
        let stream = self.tunnel.open(&signed).await.unwrap();
        let mut client = Client { stream, decoder: Decoder::default() };
        client.send(Frame::Ack { sequence: 0 }).await;
        assert_eq!(client.frame().await, Frame::Ack { sequence: 0 });
        client
    }

    /// The program prints, and the session ends.
    fn end(&self, end: End) {
        self.session.publish(b"last");
        self.session.end(|state| state.set_end(end));
    }
}

struct Client {
    stream: Stream,
    decoder: Decoder,
}

impl Client {
    async fn send(&mut self, frame: Frame) {
        self.stream.sender.send(frame.encoded()).await.unwrap();
    }

    async fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.decoder.frame().unwrap() {
                return frame;
            }
            let bytes = self.stream.receiver.next().await.unwrap().expect("a frame");
            self.stream.receiver.consumed(bytes.len()).unwrap();
            self.decoder.push(bytes);
        }
    }
}

const ENDS: [(End, Frame); 2] = [
    (End::Exited(7), Frame::Exit { status: 7 }),
    (End::Closed(CloseReason::Ended), Frame::Close { reason: CloseReason::Ended }),
];

fn last() -> Frame {
    Frame::Data("last".into())
}

#[tokio::test(start_paused = true)]
async fn watchers_see_the_last_output_as_late_as_the_storage_of_the_gateway_takes_it() {
    for (end, frame) in ENDS {
        let node = Node::new().await;
        let (mut writer, mut watcher) =
            (node.open(PtyAccess::Write).await, node.open(PtyAccess::Watch).await);
        node.end(end);
        assert_eq!((writer.frame().await, writer.frame().await), (last(), frame.clone()));
        tokio::time::sleep(STORAGE).await;
        writer.send(Frame::Recorded { sequence: 4 }).await;
        writer.stream.sender.finish().unwrap();
        assert_eq!((watcher.frame().await, watcher.frame().await), (last(), frame));
    }
}

#[tokio::test(start_paused = true)]
async fn watchers_do_not_wait_for_ever_for_a_gateway_that_says_nothing() {
    for (end, frame) in ENDS {
        let node = Node::new().await;
        let (mut writer, mut watcher) =
            (node.open(PtyAccess::Write).await, node.open(PtyAccess::Watch).await);
        node.end(end);
        let ended_at = Instant::now();
        assert_eq!((writer.frame().await, writer.frame().await), (last(), frame.clone()));
        assert_eq!(watcher.frame().await, frame, "nothing of what may not be recorded");
        assert!(ended_at.elapsed() >= STORAGE);
        assert!(ended_at.elapsed() <= STREAMS_END_WITHIN);
        assert!(node.session.read(|state| state.attached()) < 2);
    }
}
