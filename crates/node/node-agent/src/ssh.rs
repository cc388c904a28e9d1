//! SSH without an open port: streams to the SSH server of the machine, on its loopback address.
//!
//! The agent carries bytes and knows nothing of SSH: who signs in, and with which key, the machine's own server decides. A
//! stream leads to that server's port and to no other, for an owner that has an account here. Bytes wait for their reader in
//! both directions (`node_tunnel::receive_into`, `send_from`). The end of one direction does not end the other, and when one
//! breaks, what the other has on its way still arrives. A stream ends with the time that its grant gives it.
//! [`SshStreams::end_owner`] breaks the streams of an owner off, before the owner's account is removed.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kernel::ids::AllocationId;
use node_proto::grant::{Grant, Owner, SSH_PORT, Target};
use node_tunnel::{Attached, Receiver, Refusal, Stream, StreamError, receive_into, send_from};
use tokio::net::{TcpStream, tcp::OwnedWriteHalf};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    machine_owners::{MachineOwners, NOT_SUPPORTED},
};

/// Grants for other ports than the SSH server's open nothing: routes to other ports come later.
pub const PORT_NOT_ALLOWED: Refusal = Refusal("port_not_allowed");
/// The SSH server of the machine does not answer.
pub const NO_SSH_SERVER: Refusal = Refusal("no_ssh_server");
/// So many are open already.
pub const TOO_MANY_STREAMS: Refusal = Refusal("too_many_streams");

/// Shorter than the time in which a tunnel opens a stream.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long streams may take to end when the agent stops.
const END_WITHIN: Duration = Duration::from_secs(2);
/// No stream lasts longer, whatever its grant says.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// For grants that name no time.
const DEFAULT_TTL: Duration = Duration::from_secs(12 * 3600);
/// The gateway has the same limit, and tells the client; only one that does not keep to it is cut off from here.
const AFTER_GATEWAY: Duration = Duration::from_secs(5);
/// When one direction broke, what the other has on its way arrives in this time or is lost.
const DRAIN: Duration = Duration::from_secs(10);
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// How many streams there may be.
#[derive(Clone, Copy, Debug)]
pub struct SshLimits {
    pub per_owner: usize,
    pub in_all: usize,
}

impl Default for SshLimits {
    fn default() -> Self {
        Self { per_owner: 64, in_all: 512 }
    }
}

/// The streams of one owner.
#[derive(Default)]
struct OwnerStreams {
    open: usize,
    end: CancellationToken,
}

struct Inner {
    owners: MachineOwners,
    port: u16,
    limits: SshLimits,
    open: Mutex<HashMap<AllocationId, OwnerStreams>>,
    running: TaskTracker,
}

/// Streams to the SSH server of this machine. Cheap to clone.
#[derive(Clone)]
pub struct SshStreams(Arc<Inner>);

/// A place among the streams of an owner.
struct Place {
    streams: SshStreams,
    owner: AllocationId,
    end: CancellationToken,
}

struct Connected {
    socket: TcpStream,
    place: Place,
    lasts: Duration,
}

impl SshStreams {
    pub fn new(config: &Config, limits: SshLimits) -> Self {
        Self(Arc::new(Inner {
            owners: MachineOwners::new(config),
            port: config.ssh_port,
            limits,
            open: Mutex::default(),
            running: TaskTracker::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AllocationId, OwnerStreams>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.lock().values().map(|streams| streams.open).sum()
    }

    pub async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        let (&Target::Tcp { port, ttl_seconds }, Owner::Allocation { allocation_id }) =
            (&grant.target, grant.owner)
        else {
            return Err(NOT_SUPPORTED);
        };
        if port != SSH_PORT {
            return Err(PORT_NOT_ALLOWED);
        }
        // Before the account is looked up: whoever removes it after that ends this stream too.
        let place = self.enter(allocation_id)?;
        self.0.owners.account(&grant).await?;
        let socket = connect(self.0.port).await.map_err(|error| {
            tracing::warn!(%error, port = self.0.port, "the SSH server of this machine does not answer");
            NO_SSH_SERVER
        })?;
        let lasts = ttl_seconds.map_or(DEFAULT_TTL, |seconds| Duration::from_secs(seconds.into()));
        Ok(Box::new(Connected { socket, place, lasts: lasts.min(LONGEST) + AFTER_GATEWAY }))
    }

    /// Breaks the streams of an owner off.
    pub fn end_owner(&self, owner: &str) {
        let Ok(owner) = owner.parse::<AllocationId>() else { return };
        if let Some(streams) = self.lock().get_mut(&owner) {
            std::mem::take(&mut streams.end).cancel();
        }
    }

    /// Breaks all streams off.
    pub async fn stop(&self) {
        for streams in self.lock().values() {
            streams.end.cancel();
        }
        self.0.running.close();
        let _ = tokio::time::timeout(END_WITHIN, self.0.running.wait()).await;
    }

    fn enter(&self, owner: AllocationId) -> Result<Place, Refusal> {
        let limits = self.0.limits;
        let mut open = self.lock();
        let in_all: usize = open.values().map(|streams| streams.open).sum();
        let of_owner = open.get(&owner).map_or(0, |streams| streams.open);
        if of_owner >= limits.per_owner || in_all >= limits.in_all {
            return Err(TOO_MANY_STREAMS);
        }
        let streams = open.entry(owner).or_default();
        streams.open += 1;
        Ok(Place { streams: self.clone(), owner, end: streams.end.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(streams) = open.get_mut(&self.owner) {
            streams.open -= 1;
            if streams.open == 0 {
                open.remove(&self.owner);
            }
        }
    }
}

async fn connect(port: u16) -> io::Result<TcpStream> {
    let addresses = LOOPBACK.map(|address| (address, port).into());
    let connecting = TcpStream::connect(&addresses[..]);
    let socket = tokio::time::timeout(CONNECT_WITHIN, connecting).await??;
    socket.set_nodelay(true)?;
    Ok(socket)
}

#[async_trait]
impl Attached for Connected {
    async fn run(self: Box<Self>, stream: Stream) {
        let Self { socket, place, lasts } = *self;
        let (streams, end) = (place.streams.clone(), place.end.clone());
        let running = streams.0.running.token();
        tokio::select! {
            ended = carry(socket, stream) => match ended {
                Ok(()) => tracing::debug!("an SSH stream has ended"),
                Err(error) => tracing::debug!(%error, "an SSH stream broke off"),
            },
            // The stream is reset: what came before is not taken for all of it.
            () = end.cancelled() => {}
            () = tokio::time::sleep(lasts) => tracing::info!("the time of an SSH stream is over"),
        }
        drop((place, running));
    }
}

/// Until both directions have ended, or one of them broke and the other has nothing on its way any more.
async fn carry(socket: TcpStream, stream: Stream) -> Result<(), StreamError> {
    let Stream { mut sender, receiver } = stream;
    let (mut from_server, to_server) = socket.into_split();
    let sending = send_from(&mut from_server, &mut sender);
    let receiving = receive_all(receiver, to_server);
    tokio::pin!(sending, receiving);
    tokio::select! {
        sent = &mut sending => match sent {
            Ok(_) => receiving.await.1,
            // The server has reset the connection: it takes nothing either.
            Err(error @ StreamError::Local(_)) => Err(error),
            // The gateway takes no more. What it sent before is still to be read.
            Err(error) => {
                let _ = tokio::time::timeout(DRAIN, receiving).await;
                Err(error)
            }
        },
        (mut receiver, received) = &mut receiving => match received {
            Ok(()) => sending.await.map(drop),
            // The server takes no more. What it said before is still to be sent, and nobody waits for a window meanwhile.
            Err(error @ StreamError::Local(_)) => {
                let ending = async { tokio::join!(sending, discard(&mut receiver)).0 };
                tokio::time::timeout(DRAIN, ending).await.map_or(Err(error), |sent| sent.map(drop))
            }
            Err(error) => Err(error),
        },
    }
}

/// Gives the receiver back, with which the stream lives.
async fn receive_all(
    mut receiver: Receiver,
    mut to_server: OwnedWriteHalf,
) -> (Receiver, Result<(), StreamError>) {
    let received = receive_into(&mut receiver, &mut to_server).await;
    (receiver, received.map(drop))
}

/// Takes what comes until its end, for nobody.
async fn discard(receiver: &mut Receiver) {
    while let Ok(Some(bytes)) = receiver.next().await {
        if receiver.consumed(bytes.len()).is_err() {
            return;
        }
    }
}
