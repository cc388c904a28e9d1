//! The node listener: mutual TLS, long polls, reports.
//!
//! **A connection** (`listener`) shows a certificate or none. The handshake proves that the peer holds its key; who
//! the peer is, is decided here, once, from the authorities in force (`peer`), so that a refusal is an answer that
//! the peer can read and that is audited (`refusals`). A peer that is nobody may enrol, within a minute, and
//! nothing else. The server's own certificate is issued in this process by the active authority and exchanged
//! while connections live (`certificate`).
//!
//! **A request** (`request`) matches a route of the contract, speaks a version that we know, and comes from the
//! node that its path names. Expiry, revocation and the node's state are looked at every time: a node that was
//! revoked gets no further answer, not even to the long poll that it has open.
//!
//! **Waiting for work** (`hub`, `task_leases`). A node that waits is entered before the first look, so no wake-up is
//! lost between looking and waiting; a notification of the database wakes it within milliseconds, and a look every
//! few seconds finds what a notification missed. Looks of many nodes are one statement. What was leased and could
//! not be handed over goes back at once; what was sent and never arrived comes back by its lease.
//!
//! **Tunnels** (`tunnel`). A connection with the ALPN of a tunnel carries no requests of the node: the roles reverse, and
//! gateways of this process open streams to it ([`Tunnels`]). The node's standing is looked at every second.
//!
//! **Bounds.** Connections altogether, per node and of strangers; streams per connection; headers, bodies and how
//! slowly they may come; enrolments that fail per address; reports and log batches of a node per minute; reports that wait
//! to be written.

mod caller;
mod certificate;
mod document;
mod enrolling;
mod handlers;
mod hub;
mod listener;
mod node_limits;
mod node_places;
mod refusals;
mod request;
mod task_leases;
mod tunnel;
mod window;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use kernel::Failure;
use pg::Wake;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Fleet,
    service::{contacts::Contacts, logs::LogKeeper, tunnels::Tunnels},
};
pub use document::document;

use certificate::Certificate;
use enrolling::Enrolling;
use hub::Hub;
use listener::Listener;
use node_limits::NodeLimit;
use refusals::Refusals;
use task_leases::TaskLeases;

/// What the installation says about the listener.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// Names and addresses that the server's certificate carries besides those of `listen` and of the fleet's
    /// `node_url`.
    pub names: Vec<String>,
    pub max_connections: usize,
    /// How long a handshake, or the headers of a request, may take.
    pub patience: Duration,
    /// How long a node may leave an answer waiting.
    pub stall: Duration,
    /// Serve everything but logs.
    pub tasks: bool,
    /// Serve logs.
    pub logs: bool,
    /// Accept tunnels.
    pub tunnels: Option<Tunnels>,
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("cannot listen on {address}: is another program using it?")]
    Bind {
        address: SocketAddr,
        #[source]
        error: io::Error,
    },
    #[error("the node listener has no certificate: {0}")]
    Certificate(String),
    #[error("TLS cannot be set up for the node listener")]
    Tls(#[from] rustls::Error),
}

/// What every request may need.
struct Shared {
    fleet: Fleet,
    hub: Arc<Hub>,
    task_leases: TaskLeases,
    contacts: Contacts,
    logs: LogKeeper,
    refusals: Refusals,
    enrolling: Enrolling,
    heartbeats: NodeLimit,
    log_batches: NodeLimit,
    tasks: bool,
    serves_logs: bool,
    tunnels: Option<Tunnels>,
    /// Ends long polls.
    stop: CancellationToken,
}

/// A running listener.
pub struct Gateway {
    address: SocketAddr,
    listener: TaskTracker,
    workers: TaskTracker,
    stop_listening: CancellationToken,
    stop_workers: CancellationToken,
    cut: CancellationToken,
}

impl Gateway {
    /// Binds at once, so that a taken port is reported at start-up, and serves when there is a certificate.
    pub async fn start(fleet: Fleet, wake: &Wake, config: Config) -> Result<Self, GatewayError> {
        let bind = |error| GatewayError::Bind { address: config.listen, error };
        let socket = TcpListener::bind(config.listen).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        let (stop_listening, stop_workers) = (CancellationToken::new(), CancellationToken::new());
        let (listener, workers) = (TaskTracker::new(), TaskTracker::new());

        let certificate = Arc::new(Certificate::new(&fleet, address, &config.names));
        certificate.issue(&fleet).await.map_err(|failure| GatewayError::Certificate(in_words(failure)))?;
        let tls = certificate::tls(certificate.clone(), config.tunnels.is_some())?;

        let hub = Hub::new(fleet.db());
        let task_leases = TaskLeases::start(&fleet, &workers, &stop_workers);
        let shared = Arc::new(Shared {
            contacts: Contacts::new(&fleet),
            logs: LogKeeper::default(),
            refusals: Refusals::default(),
            enrolling: Enrolling::default(),
            heartbeats: NodeLimit::default(),
            log_batches: NodeLimit::default(),
            tasks: config.tasks,
            serves_logs: config.logs,
            tunnels: config.tunnels.clone(),
            stop: stop_listening.clone(),
            fleet: fleet.clone(),
            hub: hub.clone(),
            task_leases,
        });
        workers.spawn(hub::run(hub, fleet.clone(), wake.subscribe(), stop_workers.clone()));
        let renewal = certificate.clone().renew_loop(fleet.clone());
        workers.spawn(stop_workers.clone().run_until_cancelled_owned(renewal));
        let (reports, stop) = (shared.clone(), stop_workers.clone());
        workers.spawn(async move { reports.contacts.run(&reports.fleet, &stop).await });
        workers.close();

        let cut = CancellationToken::new();
        let serving =
            Listener::new(shared, tls, &config, listener.clone(), stop_listening.clone(), cut.clone());
        listener.spawn(serving.run(socket));
        Ok(Self { address, listener, workers, stop_listening, stop_workers, cut })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// No new connections; long polls end empty, open requests finish, reports are written; all within `limit`.
    pub async fn stop(self, limit: Duration) {
        let deadline = tokio::time::Instant::now() + limit;
        self.stop_listening.cancel();
        self.listener.close();
        if tokio::time::timeout_at(deadline, self.listener.wait()).await.is_err() {
            tracing::warn!("connections of nodes did not end in time and are closed");
            self.cut.cancel();
        }
        self.stop_workers.cancel();
        if tokio::time::timeout_at(deadline, self.workers.wait()).await.is_err() {
            tracing::warn!("the workers of the node listener did not stop in time");
        }
    }
}

/// A failure for a log or an error message; there is nobody to answer.
fn in_words(failure: Failure) -> String {
    match failure {
        Failure::Problem(problem) => problem.to_string(),
        Failure::Internal(error) => error.to_string(),
        Failure::Bug(bug) => bug.to_string(),
    }
}
