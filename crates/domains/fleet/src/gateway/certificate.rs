//! The listener's own certificate: issued in this process, renewed early, and exchanged while connections live.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, RwLock},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Failure, ids::AuthorityId};
use rustls::{
    ServerConfig,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
    version::TLS13,
};
use tokio::sync::Notify;
use trust::peer::ProofOfKey;

use crate::Fleet;

const LIFETIME: TimeDelta = TimeDelta::days(7);
const LOOK_EVERY: Duration = Duration::from_secs(30);

struct InForce {
    key: Arc<CertifiedKey>,
    authority: AuthorityId,
    renew_at: DateTime<Utc>,
}

pub struct Certificate {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    in_force: RwLock<Option<InForce>>,
    /// Something about the trust in force changed.
    changed: Arc<Notify>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Certificate {
    pub fn new(fleet: &Fleet, listen: SocketAddr, more: &[String]) -> Self {
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        let host = host(&fleet.settings().node_url).map(str::to_owned);
        let own = (!listen.ip().is_unspecified()).then(|| listen.ip().to_string());
        for name in host.iter().chain(&own).chain(more) {
            match name.parse::<IpAddr>() {
                Ok(address) if !addresses.contains(&address) => addresses.push(address),
                Ok(_) => {}
                Err(_) if !names.contains(name) => names.push(name.clone()),
                Err(_) => {}
            }
        }
        let changed = Arc::new(Notify::new());
        let bell = Arc::downgrade(&changed);
        fleet.db().on_invalidate(move |key| {
            if let Some(bell) = bell.upgrade().filter(|_| key == "*" || key.starts_with("authority:")) {
                bell.notify_one();
            }
        });
        Self { names, addresses, in_force: RwLock::default(), changed }
    }

    /// A new certificate by the authority that is active now.
    pub async fn issue(&self, fleet: &Fleet) -> Result<(), Failure> {
        let now = fleet.db().ambient().now();
        let made = fleet.trust().issue_server(&self.names, &self.addresses, LIFETIME).await?;
        let (authority, not_after) = (made.issued.authority_id, made.issued.validity.not_after);
        let in_force = InForce {
            key: Arc::new(made.certified_key()?),
            authority,
            renew_at: now + (not_after - now) / 2,
        };
        *self.in_force.write().unwrap_or_else(|e| e.into_inner()) = Some(in_force);
        tracing::info!(authority_id = %authority, %not_after, "the node listener has a new certificate");
        Ok(())
    }

    async fn renew_if_due(&self, fleet: &Fleet) -> Result<(), Failure> {
        let active = fleet.trust().issuing().await?.id();
        let now = fleet.db().ambient().now();
        let due = {
            let in_force = self.in_force.read().unwrap_or_else(|e| e.into_inner());
            in_force.as_ref().is_none_or(|c| c.authority != active || now >= c.renew_at)
        };
        if due { self.issue(fleet).await } else { Ok(()) }
    }

    /// Runs until the task is aborted. The old certificate stays in use while renewal fails.
    pub async fn renew_loop(self: Arc<Self>, fleet: Fleet) {
        loop {
            let _ = tokio::time::timeout(LOOK_EVERY, self.changed.notified()).await;
            if let Err(failure) = self.renew_if_due(&fleet).await {
                tracing::warn!(error = ?failure, "the node listener's certificate could not be renewed; trying again");
            }
        }
    }
}

/// The host of `https://host:port`, without brackets.
fn host(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1.split('/').next()?;
    match rest.strip_prefix('[') {
        Some(v6) => v6.split(']').next(),
        None => rest.split(':').next(),
    }
    .filter(|host| !host.is_empty())
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.in_force.read().unwrap_or_else(|e| e.into_inner()).as_ref().map(|c| c.key.clone())
    }
}

/// TLS 1.3 only: both sides are ours. No session is resumed, so every connection proves itself anew.
pub fn tls(certificate: Arc<Certificate>, tunnels: bool) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(ProofOfKey::new())
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if tunnels {
        config.alpn_protocols.extend([node_tunnel::ALPN.to_vec(), node_tunnel::ALPN_BULK.to_vec()]);
    }
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_what_nodes_connect_to() {
        assert_eq!(host("https://nodes.example.org:8082"), Some("nodes.example.org"));
        assert_eq!(host("https://[::1]:8082"), Some("::1"));
        assert_eq!(host("https://127.0.0.1"), Some("127.0.0.1"));
        assert_eq!(host("nonsense"), None);
    }
}
