//! Both ends of a tunnel, on this machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Ambient, ManualClock,
    ids::{GrantId, NodeId},
};
use node_proto::{
    Keyset, SignerKey, SignerState,
    grant::{Grant, Owner, SignedGrant, Target as GrantTarget, signing_bytes},
    text::Base64,
};
use node_tunnel::{
    ALPN, Attached, Gate, Handler, OpenError, Profile, Refusal, Stream, Tunnel, TunnelError, serve,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, ServerName},
    server::WebPkiClientVerifier,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use uuid::Uuid;

/// Nothing here takes longer.
pub const SOON: Duration = Duration::from_secs(20);

pub const NOW: &str = "2026-03-01T12:00:00Z";

pub fn now() -> DateTime<Utc> {
    NOW.parse().unwrap()
}

pub fn node() -> NodeId {
    Uuid::from_u128(0xA).into()
}

pub fn signer(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

pub fn keyset() -> Keyset {
    let public_key = Base64(signer(1).public_key().as_ref().to_vec());
    let signers = vec![SignerKey { signer_version: 3, state: SignerState::Active, public_key }];
    Keyset { serial: 5, issued_at: now(), signers }
}

pub fn grant(target: &str) -> Grant {
    Grant {
        grant_id: GrantId::from(Ambient::system().uuid()),
        node_id: node(),
        owner: Owner::Node,
        target: GrantTarget::Log { source: target.to_owned(), lines: 0 },
        actor: "user_1".to_owned(),
        single_use: true,
        issued_at: now(),
        expires_at: now() + TimeDelta::minutes(5),
        correlation_id: Uuid::from_u128(0xC),
        signer_version: 3,
    }
}

pub fn sign(grant: &Grant, by: &Ed25519KeyPair) -> SignedGrant {
    let payload = grant.canonical().unwrap();
    let signature = by.sign(&signing_bytes(&payload)).as_ref().to_vec();
    SignedGrant {
        payload: Base64(payload),
        signer_version: grant.signer_version,
        signature: Base64(signature),
    }
}

/// What targets do: `echo` sends back what comes, `pour` sends zeros for ever, `absent` is not there, `hang` is never ready,
/// `sink` reads all and then says how much.
#[derive(Default)]
pub struct Targets {
    pub attached: AtomicUsize,
    /// What `pour` could send.
    pub poured: Arc<AtomicUsize>,
    /// Streams whose end was an error.
    pub broken: Arc<AtomicUsize>,
    pub ended: Arc<AtomicUsize>,
}

struct Target {
    name: String,
    poured: Arc<AtomicUsize>,
    broken: Arc<AtomicUsize>,
    _ended: Ended,
}

struct Ended(Arc<AtomicUsize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Handler for Targets {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        let GrantTarget::Log { source, .. } = grant.target else { return Err(Refusal("no_such_target")) };
        match source.as_str() {
            "absent" => return Err(Refusal("no_such_target")),
            "hang" => std::future::pending().await,
            _ => {}
        }
        self.attached.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Target {
            name: source,
            poured: self.poured.clone(),
            broken: self.broken.clone(),
            _ended: Ended(self.ended.clone()),
        }))
    }
}

#[async_trait]
impl Attached for Target {
    async fn run(self: Box<Self>, mut stream: Stream) {
        let done = match self.name.as_str() {
            "echo" => echo(&mut stream).await,
            "sink" => sink(&mut stream).await,
            _ => pour(&mut stream, &self.poured).await,
        };
        if done.is_err() {
            self.broken.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn echo(stream: &mut Stream) -> Result<(), node_tunnel::StreamError> {
    while let Some(bytes) = stream.receiver.next().await? {
        let count = bytes.len();
        stream.sender.send(bytes).await?;
        stream.receiver.consumed(count)?;
    }
    stream.sender.finish()
}

async fn sink(stream: &mut Stream) -> Result<(), node_tunnel::StreamError> {
    let mut total = 0_u64;
    while let Some(bytes) = stream.receiver.next().await? {
        total += bytes.len() as u64;
        stream.receiver.consumed(bytes.len())?;
    }
    stream.sender.send(total.to_string().into()).await?;
    stream.sender.finish()
}

async fn pour(stream: &mut Stream, poured: &AtomicUsize) -> Result<(), node_tunnel::StreamError> {
    const PIECE: usize = 4096;
    loop {
        stream.sender.send(Bytes::from_static(&[0; PIECE])).await?;
        poured.fetch_add(PIECE, Ordering::SeqCst);
    }
}

/// A node and a gateway with a tunnel between them. Their clock stands.
pub struct Pair {
    pub tunnel: Tunnel,
    pub targets: Arc<Targets>,
    pub agent: JoinHandle<Result<(), TunnelError>>,
    pub clock: Arc<ManualClock>,
}

impl Pair {
    pub async fn new() -> Self {
        Self::with(Profile::INTERACTIVE).await
    }

    pub async fn with(profile: Profile) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dialled = TcpStream::connect(address).await.unwrap();
        let accepted = listener.accept().await.unwrap().0;
        Self::on_sockets(dialled, accepted, profile).await
    }

    /// The agent has dialled, the gateway has accepted.
    pub async fn on_sockets(dialled: TcpStream, accepted: TcpStream, profile: Profile) -> Self {
        let (agent_tls, gateway_tls) = tls();
        for socket in [&dialled, &accepted] {
            socket.set_nodelay(true).unwrap();
        }
        let name = ServerName::try_from("gateway.test").unwrap();
        let (agent, gateway) = tokio::join!(agent_tls.connect(name, dialled), gateway_tls.accept(accepted));
        let (agent, gateway) = (agent.unwrap(), gateway.unwrap());
        assert_eq!(agent.get_ref().1.alpn_protocol(), Some(ALPN));
        let clock = ManualClock::starting_at(now());
        let gate = Gate::new(node(), clock.ambient(), Box::new(|| Arc::new(keyset())), Box::new(now));
        let targets = Arc::new(Targets::default());
        let agent = tokio::spawn(serve(agent, profile, Arc::new(gate), targets.clone()));
        let tunnel = Tunnel::start(gateway, profile).await.unwrap();
        Self { tunnel, targets, agent, clock }
    }

    pub async fn open(&self, target: &str) -> Stream {
        self.tunnel.open(&sign(&grant(target), &signer(1))).await.unwrap()
    }

    pub async fn refused(&self, signed: &SignedGrant) -> String {
        match self.tunnel.open(signed).await {
            Err(OpenError::Refused(reason)) => reason,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it was opened"),
        }
    }
}

/// For the agent, which is the client of TLS, and for the gateway; one authority has signed both.
fn tls() -> (TlsConnector, TlsAcceptor) {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let roots = Arc::new(roots);
    let pair = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (chain, key) = pair("agent.test");
    let mut agent = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, key)
        .unwrap();
    agent.alpn_protocols = vec![ALPN.to_vec()];
    let (chain, key) = pair("gateway.test");
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().unwrap();
    let mut gateway = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .unwrap();
    gateway.alpn_protocols = vec![ALPN.to_vec()];
    (TlsConnector::from(Arc::new(agent)), TlsAcceptor::from(Arc::new(gateway)))
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
