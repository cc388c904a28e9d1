//! Gateways that the control plane names: who is not proved to be one of its own is not one.

use std::{io, sync::Arc};

use chrono::TimeDelta;
use node_agent::transport::Connect;
use node_proto::contract::{Dial, TunnelClass};
use node_tunnel::ALPN;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use tokio::{io::DuplexStream, sync::mpsc};
use tokio_rustls::TlsAcceptor;

use super::{
    authority::Authority,
    gateway::HOST,
    node::{Doing, Node, Running},
    pipes::Pipes,
};

const GATEWAY_HOST: &str = "gateway.test";
const GATEWAY_URL: &str = "https://gateway.test:7444";

/// The control plane, and beside it a server that accepts tunnels.
struct Network {
    control_plane: Pipes,
    gateway: TlsAcceptor,
    /// Whether each connection to the gateway came to be.
    accepted: mpsc::UnboundedSender<bool>,
}

impl Connect for Network {
    type Io = DuplexStream;

    async fn connect(&self, host: &str, port: u16) -> io::Result<DuplexStream> {
        if host == HOST {
            return self.control_plane.connect(host, port).await;
        }
        assert_eq!((host, port), (GATEWAY_HOST, 7444));
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (gateway, accepted) = (self.gateway.clone(), self.accepted.clone());
        tokio::spawn(async move {
            let connection = gateway.accept(theirs).await;
            accepted.send(connection.is_ok()).unwrap();
            // Until the other side hangs up.
            if let Ok(mut connection) = connection {
                let _ = tokio::io::copy(&mut connection, &mut tokio::io::sink()).await;
            }
        });
        Ok(ours)
    }
}

fn acceptor(authority: &Authority, node: &Node) -> TlsAcceptor {
    let now = node.ambient.now();
    let (chain, key) = authority.server(GATEWAY_HOST, now - TimeDelta::hours(1), now + TimeDelta::days(1));
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test(start_paused = true)]
async fn a_gateway_of_another_authority_than_the_pinned_one_is_not_connected_to() {
    for is_own in [true, false] {
        let node = Node::joined(Doing::fine()).await;
        let foreign = Authority::new(node.ambient.now());
        let gateway = if is_own {
            acceptor(&node.gateway.authority.lock().unwrap(), &node)
        } else {
            acceptor(&foreign, &node)
        };
        let (accepted, mut connections) = mpsc::unbounded_channel();
        let network = Network { control_plane: Pipes(node.gateway.clone()), gateway, accepted };
        let running = Running::start(node.agent_over(network, node.journal.clone()));
        node.gateway.until("it waits", |told| told.waits > 0).await;
        node.gateway.reports_lock().dial =
            Some(Dial { url: GATEWAY_URL.to_owned(), class: TunnelClass::Interactive });
        node.gateway.changed.notify_waiters();
        assert_eq!(connections.recv().await, Some(is_own));
        let (said, other) = (
            format!("connected to the gateway {GATEWAY_URL}"),
            format!(
                "the gateway {GATEWAY_URL} cannot be used: gateway.test:7444 does not prove to be the control plane"
            ),
        );
        let (said, never) = if is_own { (said, other) } else { (other, said) };
        let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
        node.gateway.until("it says so", |told| has(&told.log_lines, &said)).await;
        assert!(!has(&node.gateway.reports_lock().log_lines, &never));
        running.stop().await;
        assert!(connections.try_recv().is_err(), "it was dialled once");
    }
}
