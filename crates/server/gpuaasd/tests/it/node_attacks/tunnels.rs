//! Dials of the gateway: who gets a tunnel, and whose streams come through it.

use std::{net::SocketAddr, sync::Arc};

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::StreamExt as _;
use kernel::Ambient;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use testkit::{NodeClient, NodeKeys, World};
use tokio::{net::TcpStream, sync::mpsc, task::JoinSet};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_tungstenite::tungstenite::{Message, http::header};
use trust::ca::{Authority, Profile};

use super::{
    certificates::{DOMAIN, authority, hours, issued, self_signed, spiffe},
    node, payload,
};
use crate::terminals::client::{SOON, Said, Socket, Terminal, connect_with, request, token};

const INTERACTIVE: &str = "gpuaas-tunnel/1";
const BULK: &str = "gpuaas-tunnel-bulk/1";
/// A node without a tunnel, as a reader of its log is told.
const UNREACHABLE: &str = "node_unreachable";

/// A tunnel that the gateway accepted. It takes down what the gateway says, and opens nothing.
struct Tunnel {
    /// The grants of the streams that were asked for.
    grants: mpsc::UnboundedReceiver<Value>,
    _serving: JoinSet<()>,
}

impl Tunnel {
    /// With a certificate and its key, or none. Nothing when the gateway ends the connection.
    async fn dial(world: &World, protocol: &str, identity: Option<(&str, &str)>) -> Option<Self> {
        let shaken = async {
            let stream = connect(world, protocol, identity).await.ok()?;
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
            // The gateway is the client of HTTP/2: whom it accepts it greets.
            h2::server::handshake(stream).await.ok()
        };
        let connection = tokio::time::timeout(SOON, shaken).await.expect("the gateway accepts or refuses")?;
        let (found, grants) = mpsc::unbounded_channel();
        let mut serving = JoinSet::new();
        serving.spawn(serve(connection, found));
        Some(Self { grants, _serving: serving })
    }

    async fn dial_as(world: &World, protocol: &str, node: &NodeClient) -> Option<Self> {
        Self::dial(world, protocol, Some((&node.chain_pem, &node.key_pem))).await
    }

    async fn grant(&mut self) -> Value {
        tokio::time::timeout(SOON, self.grants.recv()).await.expect("a stream").expect("the tunnel is open")
    }

    async fn ended(mut self) {
        let end = tokio::time::timeout(SOON, self.grants.recv()).await.expect("the gateway ends the tunnel");
        assert_eq!(end, None, "a stream came");
    }
}

async fn connect(
    world: &World,
    protocol: &str,
    identity: Option<(&str, &str)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for root in world.node_roots().await {
        roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let address: SocketAddr = world.server.node_url.trim_start_matches("https://").parse().unwrap();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::IpAddress(address.ip().into());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Notes the grant of every stream, and refuses it.
async fn serve(
    mut connection: h2::server::Connection<TlsStream<TcpStream>, Bytes>,
    found: mpsc::UnboundedSender<Value>,
) {
    while let Some(Ok((request, mut answer))) = connection.accept().await {
        let signed = BASE64_STANDARD.decode(&request.headers()["grant"]).unwrap();
        let _ = found.send(payload(&serde_json::from_slice(&signed).unwrap()));
        let refusal = http::Response::builder().status(409).header("reason", "not_supported");
        let _ = answer.send_response(refusal.body(()).unwrap(), true);
    }
}

/// Asks for the log of a node.
async fn follow(world: &World, node: &str) -> Socket {
    let path = format!("/api/v1/platform/nodes/{node}/log-token");
    let made = world.admin.post(&path, json!({})).await.expect(201);
    let mut request = request(&world.server, made["url"].as_str().unwrap());
    let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
    request.headers_mut().insert(header::AUTHORIZATION, bearer.parse().unwrap());
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, "gpuaas.node-logs.v1".parse().unwrap());
    connect_with(&world.server, request).await.expect("a WebSocket")
}

/// Why there is no log.
async fn refusal(mut socket: Socket) -> String {
    let told = tokio::time::timeout(SOON, socket.next()).await.expect("something is said");
    let Some(Ok(Message::Text(text))) = told else { panic!("{told:?}") };
    let said: Value = serde_json::from_str(&text).unwrap();
    said["code"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
}

async fn metric(world: &World, name: &str) -> u64 {
    let metrics = testkit::Api::new(&format!("{}/metrics", world.server.ops), None).get("").await.text;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_default()
}

/// Refused dials in the trail, with those of a node that are repeated: they are counted until their minute is over.
async fn recorded_refusals(world: &World) -> i64 {
    let sql = "SELECT (SELECT coalesce(sum(coalesce(repeats, 1)), 0) FROM audit_logs
                       WHERE action = 'node.tunnel' AND result = 'refused')::bigint
                    + (SELECT coalesce(sum(repeats), 0) FROM refusal_windows WHERE action = 'node.tunnel')::bigint";
    world.count(sql).await
}

/// Dials in vain. The refusal is counted with its reason, and in the trail.
async fn assert_refused(
    world: &World,
    (what, protocol): (&str, &str),
    identity: Option<(&str, &str)>,
    reason: &str,
) {
    let counter = format!("node_refusals_total{{reason=\"{reason}\"}}");
    let (recorded, counted) = (recorded_refusals(world).await, metric(world, &counter).await);
    assert!(Tunnel::dial(world, protocol, identity).await.is_none(), "{what} has a tunnel");
    assert_eq!(recorded_refusals(world).await, recorded + 1, "{what} is not in the trail");
    assert_eq!(metric(world, &counter).await, counted + 1, "{what} is not counted as {reason}");
}

#[tokio::test]
async fn who_does_not_prove_to_be_a_node_of_ours_gets_no_tunnel_and_is_recorded() {
    let world = World::start().await;
    let victim = node(&world, "victim").await;
    let ours = authority(&world).await;
    let foreign = Authority::generate(&Ambient::system(), DOMAIN, ours.id()).expect("another authority");
    let usual = spiffe(&victim.id);
    let server = Profile::Server { names: vec!["localhost".to_owned()], addresses: vec![] };
    let elsewhere = Profile::Node { spiffe_uri: format!("spiffe://elsewhere.example/node/{}", victim.id) };
    let not_a_node = Profile::Node { spiffe_uri: format!("spiffe://{DOMAIN}/user/{}", victim.id) };
    let nowhere = spiffe(&format!("node_{:032x}", 1));
    let cases = [
        ("another authority", issued(&foreign, &usual, hours(-1, 1)), "unknown_authority"),
        ("signed by itself", self_signed(&victim.id), "unknown_authority"),
        ("expired", issued(&ours, &usual, hours(-2, -1)), "expired"),
        ("not yet valid", issued(&ours, &usual, hours(1, 2)), "not_yet_valid"),
        ("made for servers", issued(&ours, &server, hours(-1, 1)), "wrong_usage"),
        ("another domain", issued(&ours, &elsewhere, hours(-1, 1)), "foreign_domain"),
        ("not a node's name", issued(&ours, &not_a_node, hours(-1, 1)), "no_name"),
        ("a node that does not exist", issued(&ours, &nowhere, hours(-1, 1)), "unknown_node"),
        ("not one that was given", issued(&ours, &usual, hours(-1, 1)), "unknown_certificate"),
    ];
    // Somebody waits for the victim all the while.
    let waiting = follow(&world, &victim.id).await;
    for protocol in [INTERACTIVE, BULK] {
        assert_refused(&world, ("no certificate", protocol), None, "no_certificate").await;
        for (what, (chain, key), reason) in &cases {
            assert_refused(&world, (what, protocol), Some((chain, key)), reason).await;
        }
    }
    assert_eq!(refusal(waiting).await, UNREACHABLE);
    assert_eq!(metric(&world, "node_tunnels_total").await, 0);

    // The same dial by the node itself.
    let mut tunnel = Tunnel::dial_as(&world, INTERACTIVE, &victim).await.expect("a tunnel");
    let log = follow(&world, &victim.id).await;
    assert_eq!(tunnel.grant().await["node_id"], victim.id.as_str());
    assert_eq!(refusal(log).await, "not_supported", "as the node said");
}

#[tokio::test]
async fn a_node_that_dials_when_the_gateway_asks_for_another_gets_no_stream_of_that_one() {
    let world = World::start_simulated().await;
    let mut nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(json!({ "sku": "h200-sxm-slice", "gpus": 1 })).await;
    let attacker = node(&world, "attacker").await;
    let mut early = Tunnel::dial_as(&world, INTERACTIVE, &attacker).await.expect("a tunnel");
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    assert_eq!(terminal.run("echo on its own node").await, "on its own node");

    // The node is away: whoever answers in its place is not taken for it.
    nodes.kill();
    terminal.until_end().await;
    let opened = async {
        let (text, session) = token(&ann, &id, json!({})).await;
        Terminal::attach(&world.server, &id, &text, session, 0).await.map(drop)
    };
    let answered = async {
        let mut tunnels = Vec::new();
        for protocol in [INTERACTIVE, BULK, INTERACTIVE] {
            tunnels.push(Tunnel::dial_as(&world, protocol, &attacker).await.expect("a tunnel"));
        }
        tunnels
    };
    let log = follow(&world, &nodes.ids[0]).await;
    let (opened, mut late) = tokio::join!(opened, answered);
    let Err(Said::Control(said)) = opened else { panic!("{opened:?}") };
    assert_eq!((&said["code"], &said["retryable"]), (&json!(UNREACHABLE), &json!(true)), "{said}");
    assert_eq!(refusal(log).await, UNREACHABLE);

    // Its own streams come through the tunnel that it dialled last, and nothing else does.
    let log = follow(&world, &attacker.id).await;
    assert_eq!(late[2].grant().await["node_id"], attacker.id.as_str());
    assert_eq!(refusal(log).await, "not_supported");
    for tunnel in late.iter_mut().chain([&mut early]) {
        let stream = tunnel.grants.try_recv();
        assert_eq!(stream, Err(mpsc::error::TryRecvError::Empty), "the tunnel is open, without a stream");
    }
}

/// Dials with what the node has, in vain.
async fn assert_locked_out(world: &World, node: &NodeClient, reason: &str) {
    let identity = Some((node.chain_pem.as_str(), node.key_pem.as_str()));
    assert_refused(world, (&node.id, INTERACTIVE), identity, reason).await;
}

#[tokio::test]
async fn a_tunnel_ends_with_the_certificate_or_the_node_and_is_not_given_again() {
    let world = World::start().await;
    let (first, other) = (node(&world, "one").await, node(&world, "other").await);
    let by_first = Tunnel::dial_as(&world, INTERACTIVE, &first).await.expect("a tunnel");
    let keys = NodeKeys::generate();
    let renewed = first.api.post(&first.path("cert/renew"), json!({ "csr_pem": keys.csr_pem })).await;
    let chain = renewed.expect(200)["certificate"]["chain_pem"].as_str().unwrap().to_owned();
    let second = world.node_client(&first.id, &chain, &keys.key_pem).await;
    let by_second = Tunnel::dial_as(&world, BULK, &second).await.expect("a tunnel by the new certificate");
    by_first.ended().await;
    assert_locked_out(&world, &first, "superseded").await;

    let by_other = Tunnel::dial_as(&world, INTERACTIVE, &other).await.expect("a tunnel");
    let reason = json!({ "reason": "stolen" });
    let revoke = format!("/api/v1/platform/nodes/{}/certificates/revoke", first.id);
    world.admin.post(&revoke, reason.clone()).await.expect(200);
    by_second.ended().await;
    assert_locked_out(&world, &second, "revoked").await;

    let log = follow(&world, &other.id).await;
    assert_eq!(refusal(log).await, "not_supported", "others keep theirs");
    let remove = format!("/api/v1/platform/nodes/{}/remove", other.id);
    world.admin.post(&remove, reason).await.expect(202);
    let mut by_other = by_other;
    by_other.grant().await;
    by_other.ended().await;
    assert_locked_out(&world, &other, "revoked").await;
}
