//! Streams to the SSH server of a machine: to its port only, for owners that have an account, so many at once, and no longer
//! than their owner.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kernel::ids::AllocationId;
use node_agent::{
    config::Config,
    drivers::hypervisor::{FileLeases, Leases as _},
    logs::LogStreams,
    machine_owners::{NO_SUCH_OWNER, NOT_SUPPORTED},
    redact::redact,
    session::{Log, Streams as _},
    ssh::{NO_SSH_SERVER, PORT_NOT_ALLOWED, SshLimits, SshStreams, TOO_MANY_STREAMS},
    streams::NodeStreams,
    terminals::{HostShells, Terminals},
};
use node_proto::grant::{Grant, Owner, SSH_PORT, Target};
use node_tunnel::{OpenError, Profile, Refusal, Stream, Tunnel};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{
    terminal_kit::{grant_of, sign, tunnel},
    terminals::{Host, lease, owner},
};

const SOON: Duration = Duration::from_secs(20);

struct Machine {
    host: Host,
    listener: TcpListener,
    streams: Arc<NodeStreams>,
}

fn streams(config: &Config, limits: SshLimits) -> Arc<NodeStreams> {
    let log = Log::new(kernel::Ambient::system(), 10, redact);
    Arc::new(NodeStreams {
        terminals: Terminals::new(Arc::new(HostShells::new(config))),
        logs: LogStreams::new(log, None),
        ssh: SshStreams::new(config, limits),
    })
}

impl Machine {
    async fn new(limits: SshLimits) -> Self {
        let mut host = Host::new();
        host.passwd("alice:x:20001:20001::/home/alice:/bin/bash\nbob:x:20002:20002::/home/bob:/bin/sh\n");
        host.account("alice", 20_001, owner(1));
        host.account("bob", 20_002, owner(2));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        host.config.ssh_port = listener.local_addr().unwrap().port();
        let streams = streams(&host.config, limits);
        Self { host, listener, streams }
    }

    async fn tunnel(&self) -> Tunnel {
        tunnel(uuid::Uuid::from_u128(7).into(), self.streams.clone()).await
    }

    /// Both ends.
    async fn open(&self, tunnel: &Tunnel, allocation: AllocationId) -> (Stream, TcpStream) {
        let stream = open(tunnel, &grant(allocation)).await.unwrap();
        let accepted = tokio::time::timeout(SOON, self.listener.accept()).await.expect("a connection");
        (stream, accepted.unwrap().0)
    }
}

fn grant(allocation_id: AllocationId) -> Grant {
    grant_for(allocation_id, SSH_PORT, None)
}

fn grant_for(allocation_id: AllocationId, port: u16, ttl_seconds: Option<u32>) -> Grant {
    Grant { target: Target::Tcp { port, ttl_seconds }, ..grant_of(Owner::Allocation { allocation_id }) }
}

async fn open(tunnel: &Tunnel, grant: &Grant) -> Result<Stream, String> {
    match tunnel.open(&sign(grant)).await {
        Ok(stream) => Ok(stream),
        Err(OpenError::Refused(reason)) => Err(reason),
        Err(other) => panic!("{other}"),
    }
}

fn refused(refusal: Refusal) -> Result<(), String> {
    Err(refusal.0.to_owned())
}

#[tokio::test]
async fn a_stream_leads_to_the_ssh_server_of_an_owner_that_has_an_account_and_nowhere_else() {
    let machine = Machine::new(SshLimits::default()).await;
    let tunnel = machine.tunnel().await;
    let try_open = async |grant: Grant| open(&tunnel, &grant).await.map(drop);
    for port in [1, 23, machine.host.config.ssh_port] {
        let other = grant_for(owner(1), port, None);
        assert_eq!(try_open(other).await, refused(PORT_NOT_ALLOWED), "{port}");
    }
    assert_eq!(try_open(grant(owner(3))).await, refused(NO_SUCH_OWNER));
    let node = Grant { owner: Owner::Node, ..grant(owner(1)) };
    assert_eq!(try_open(node).await, refused(NOT_SUPPORTED));
    FileLeases::new(&machine.host.config.state_dir).write(&lease(owner(4))).unwrap();
    assert_eq!(try_open(grant(owner(4))).await, refused(NOT_SUPPORTED), "a slice");
    drop(machine.listener);
    assert_eq!(try_open(grant(owner(1))).await, refused(NO_SSH_SERVER));
    assert_eq!(machine.streams.ssh.count(), 0, "refused ones hold no place");
}

#[tokio::test]
async fn each_direction_has_its_own_end_and_all_bytes_before_it() {
    let machine = Machine::new(SshLimits::default()).await;
    let tunnel = machine.tunnel().await;
    let (mut stream, mut server) = machine.open(&tunnel, owner(1)).await;
    stream.sender.send(Bytes::from_static(b"question")).await.unwrap();
    stream.sender.finish().unwrap();
    let mut read = Vec::new();
    tokio::time::timeout(SOON, server.read_to_end(&mut read)).await.expect("the end").unwrap();
    assert_eq!(read, b"question");
    // The other direction is open still.
    server.write_all(b"answer").await.unwrap();
    server.shutdown().await.unwrap();
    let mut answer = Vec::new();
    while let Some(bytes) = tokio::time::timeout(SOON, stream.receiver.next()).await.unwrap().unwrap() {
        answer.extend_from_slice(&bytes);
        stream.receiver.consumed(bytes.len()).unwrap();
    }
    assert_eq!(answer, b"answer");
    let ended = async {
        while machine.streams.ssh.count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, ended).await.expect("its place is free again");
}

#[tokio::test]
async fn so_many_streams_and_no_more_and_the_end_of_an_owner_ends_its_own() {
    let machine = Machine::new(SshLimits { per_owner: 2, in_all: 3 }).await;
    let tunnel = machine.tunnel().await;
    let (_one, mut first) = machine.open(&tunnel, owner(1)).await;
    let (two, _second) = machine.open(&tunnel, owner(1)).await;
    let try_open = async |id| open(&tunnel, &grant(owner(id))).await.map(drop);
    assert_eq!(try_open(1).await, refused(TOO_MANY_STREAMS), "of one owner");
    let (mut other, mut third) = machine.open(&tunnel, owner(2)).await;
    assert_eq!(try_open(2).await, refused(TOO_MANY_STREAMS), "in all");
    drop(two);

    machine.streams.end_owner(&owner(1).to_string()).await;
    let mut read = [0; 16];
    let ended = tokio::time::timeout(SOON, first.read(&mut read)).await.expect("an end");
    assert!(matches!(ended, Ok(0) | Err(_)));
    third.write_all(b"lives on").await.unwrap();
    assert_eq!(other.receiver.next().await.unwrap().unwrap(), "lives on");
    // Whoever comes after that is a new owner.
    let (_again, _server) = machine.open(&tunnel, owner(1)).await;
    machine.streams.stop().await;
    assert_eq!(machine.streams.ssh.count(), 0, "all have ended");
    assert!(other.receiver.next().await.is_err(), "broken off, and not ended");
}

#[tokio::test]
async fn a_stream_ends_with_the_time_that_its_grant_gives_it() {
    let machine = Machine::new(SshLimits::default()).await;
    let tunnel = machine.tunnel().await;
    let (mut lasting, _server) = machine.open(&tunnel, owner(1)).await;
    let mut short = open(&tunnel, &grant_for(owner(1), SSH_PORT, Some(1))).await.unwrap();
    let mut server = machine.listener.accept().await.unwrap().0;
    // A gateway that does not keep to the limit is cut off.
    let ended = tokio::time::timeout(SOON, short.receiver.next()).await.expect("an end");
    assert!(ended.is_err(), "broken off, and not ended");
    let mut read = [0; 16];
    let ended = tokio::time::timeout(SOON, server.read(&mut read)).await.expect("an end");
    assert!(matches!(ended, Ok(0) | Err(_)));
    assert_eq!(machine.streams.ssh.count(), 1, "the other one lives on");
    lasting.sender.send(Bytes::from_static(b"x")).await.unwrap();
}

/// Bytes that this end has sent and the other has not taken into its buffers.
fn on_the_way(local: std::net::SocketAddr) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", local.port());
    let is_this = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let (own, remote) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        own.ends_with(&port) && !remote.ends_with(":0000")
    };
    let line = table.lines().skip(1).find(is_this).expect("the connection");
    let queues = line.split_whitespace().nth(4).unwrap();
    u64::from_str_radix(queues.split_once(':').unwrap().0, 16).unwrap()
}

#[tokio::test]
async fn what_a_server_said_before_it_stopped_listening_arrives() {
    // More than the window of the stream; the rest fits into the buffer of a socket.
    const SAID: usize = Profile::INTERACTIVE.window as usize + 32 * 1024;
    let machine = Machine::new(SshLimits::default()).await;
    let tunnel = machine.tunnel().await;
    let (mut stream, mut server) = machine.open(&tunnel, owner(1)).await;
    // The client sends without end, and the server does not read.
    let sending = async {
        let piece = Bytes::from(vec![7; 16 * 1024]);
        while stream.sender.send(piece.clone()).await.is_ok() {}
    };
    let saying = async {
        server.write_all(&vec![9; SAID]).await.unwrap();
        while on_the_way(server.local_addr().unwrap()) > 0 {
            tokio::task::yield_now().await;
        }
        // With bytes that it has not read, it resets the connection.
        drop(server);
        let mut said = 0;
        loop {
            let next = tokio::time::timeout(SOON, stream.receiver.next()).await.expect("more");
            let Some(bytes) = next.expect("no break before the end") else { return said };
            said += bytes.len();
            stream.receiver.consumed(bytes.len()).unwrap();
        }
    };
    let said = tokio::select! {
        said = saying => said,
        () = async { sending.await; std::future::pending().await } => unreachable!(),
    };
    assert_eq!(said, SAID);
}
