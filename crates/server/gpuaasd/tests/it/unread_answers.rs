//! Clients that do not take their answers: cut off while the server runs, and no reason for a slow stop.

use std::time::Duration;

use testkit::{Api, ServerOptions, World, eventually_within};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

const DOCUMENT: &str = "/api/v1/openapi.json";

fn settings(values: &[(&str, &str)]) -> ServerOptions {
    let env = values.iter().map(|(name, value)| (format!("GPUAAS__SERVER__{name}"), (*value).to_owned()));
    ServerOptions { env: env.collect(), ..ServerOptions::default() }
}

fn address(world: &World) -> std::net::SocketAddr {
    world.server.base.trim_start_matches("http://").parse().unwrap()
}

/// Asks for the document again and again, and reads nothing.
async fn pipelining(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address(world)).await.unwrap();
    let requests = format!("GET {DOCUMENT} HTTP/1.1\r\nhost: x\r\n\r\n").repeat(64);
    stream.write_all(requests.as_bytes()).await.unwrap();
    stream
}

async fn until_cut(world: &World, reason: &str, count: usize) {
    let ops = Api::new(&world.server.ops, None);
    let line = format!("connections_cut_total{{listener=\"public\",reason=\"{reason}\"}} {count}");
    eventually_within(Duration::from_secs(60), &line, || async {
        ops.get("/metrics").await.text.contains(&line).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_client_that_pipelines_without_reading_is_cut_off() {
    let world = World::start_with(settings(&[("STALL_TIMEOUT_SECONDS", "2")])).await;
    let mut crowd = Vec::new();
    for _ in 0..5 {
        crowd.push(pipelining(&world).await);
    }
    until_cut(&world, "not_reading", 5).await;
    for mut stream in crowd {
        // What was under way in the kernel, and then the end.
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection ends");
    }
    world.admin.get("/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn a_client_that_reads_slowly_but_steadily_gets_its_whole_answer() {
    let world = World::start_with(settings(&[("STALL_TIMEOUT_SECONDS", "2")])).await;
    let whole = world.server.api().get(DOCUMENT).await.text;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address(&world)).await.unwrap();
    let request = format!("GET {DOCUMENT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    let mut part = vec![0; whole.len() / 20];
    loop {
        let bytes = stream.read(&mut part).await.unwrap();
        if bytes == 0 {
            break;
        }
        read.extend(&part[..bytes]);
    }
    assert!(read.ends_with(whole.as_bytes()));
}

/// A peer of HTTP/2 that answers pings, and otherwise does what a test says.
struct Http2 {
    stream: TcpStream,
}

impl Http2 {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GO_AWAY: u8 = 7;
    const WINDOW_UPDATE: u8 = 8;
    const ACK: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 5;

    /// `window` is what each answer may take before the peer asks for more.
    async fn connect(world: &World, window: u32) -> Self {
        let mut stream = TcpStream::connect(address(world)).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut peer = Self { stream };
        let mut setting = vec![0, 4];
        setting.extend(window.to_be_bytes());
        peer.send(Self::SETTINGS, 0, 0, &setting).await;
        peer
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).await.unwrap();
    }

    async fn get(&mut self, stream: u32, path: &str) {
        // GET and http from the static table, then path and authority as they are.
        let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
        block.extend(path.as_bytes());
        block.extend([0x01, 1, b'x']);
        self.send(Self::HEADERS, Self::END_STREAM_AND_HEADERS, stream, &block).await;
    }

    /// The next frame that is not a formality; nothing when the server hung up.
    async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            match (head[3], head[4]) {
                (Self::PING, 0) => self.send(Self::PING, Self::ACK, 0, &payload).await,
                (Self::SETTINGS, 0) => self.send(Self::SETTINGS, Self::ACK, 0, &[]).await,
                (Self::PING | Self::SETTINGS | Self::WINDOW_UPDATE, _) => {}
                (kind, _) => return Some((kind, payload)),
            }
        }
    }

    /// What comes until the server hangs up.
    async fn until_hung_up(&mut self) -> Vec<u8> {
        let all = async {
            let mut kinds = Vec::new();
            while let Some((kind, _)) = self.frame().await {
                kinds.push(kind);
            }
            kinds
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("the server hangs up")
    }
}

#[tokio::test]
async fn a_peer_of_http2_that_keeps_its_window_shut_is_cut_off() {
    let world = World::start_with(settings(&[("STALL_TIMEOUT_SECONDS", "2")])).await;
    // Never opened, and opened for the beginning of the answer only.
    for (n, window) in [0, 20_000].into_iter().enumerate() {
        let mut peer = Http2::connect(&world, window).await;
        peer.get(1, DOCUMENT).await;
        let kinds = peer.until_hung_up().await;
        assert!(kinds.contains(&Http2::HEADERS), "{kinds:?}");
        assert_eq!(kinds.contains(&Http2::DATA), window > 0, "{kinds:?}");
        until_cut(&world, "not_reading", n + 1).await;
    }
    world.admin.get("/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn a_peer_of_http2_that_asks_nothing_is_sent_away() {
    let world =
        World::start_with(settings(&[("IDLE_TIMEOUT_SECONDS", "1"), ("STALL_TIMEOUT_SECONDS", "1")])).await;
    let mut peer = Http2::connect(&world, 65_535).await;
    peer.get(1, "/healthz").await;
    let kinds = peer.until_hung_up().await;
    assert!(kinds.contains(&Http2::HEADERS) && kinds.contains(&Http2::GO_AWAY), "{kinds:?}");
    // A small answer waits in the buffers of the protocol, where nobody sees that it is not taken.
    let mut peer = Http2::connect(&world, 1).await;
    peer.get(1, "/healthz").await;
    peer.until_hung_up().await;
    world.admin.get("/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn clients_that_do_not_read_do_not_delay_a_stop() {
    // Only the limit of the drain may end these connections.
    let patient = settings(&[("STALL_TIMEOUT_SECONDS", "300"), ("SHUTDOWN_TIMEOUT_SECONDS", "300")]);
    let mut world = World::start_with(patient).await;
    let mut crowd = Vec::new();
    for _ in 0..5 {
        let mut stream = pipelining(&world).await;
        // The server is at work on the first answer.
        stream.read_exact(&mut [0; 1]).await.unwrap();
        crowd.push(stream);
    }
    let mut shut = Http2::connect(&world, 0).await;
    shut.get(1, DOCUMENT).await;
    assert_eq!(shut.frame().await.unwrap().0, Http2::HEADERS);
    let events = world.admin.request(reqwest::Method::GET, "/api/v1/me/notifications/stream");
    let mut events = events.send().await.unwrap();
    assert_eq!(events.status().as_u16(), 200);
    events.chunk().await.unwrap().expect("the stream has begun");
    // Shorter than both limits; the drain cuts them long before.
    assert_eq!(world.server.stop().await, Some(0), "{}", world.server.log());
    while events.chunk().await.expect("a stream of events ends, and is not cut").is_some() {}
    drop(crowd);
}

#[tokio::test]
async fn one_address_has_its_share_of_the_connections_and_no_more() {
    let world =
        World::start_with(settings(&[("MAX_CONNECTIONS", "50"), ("MAX_CONNECTIONS_PER_ADDRESS", "10")]))
            .await;
    let mut crowd = Vec::new();
    for _ in 0..40 {
        crowd.push(TcpStream::connect(address(&world)).await.unwrap());
    }
    // Another address of this machine is served meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(address(&world)).await.unwrap();
    other.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let ops = Api::new(&world.server.ops, None);
    let refused = eventually_within(Duration::from_secs(20), "connections are refused", || async {
        let text = ops.get("/metrics").await.text;
        let line = text.lines().find(|l| l.starts_with("connections_refused_total{listener=\"public\"}"))?;
        line.rsplit(' ').next()?.parse::<u32>().ok().filter(|refused| *refused >= 30)
    })
    .await;
    assert!(refused >= 30);
    drop(crowd);
}
