//! What was refused: always counted, and audited within bounds, so that strangers cannot fill the trail.

use std::{net::IpAddr, sync::Mutex};

use kernel::{Code, ids::NodeId};
use listener::network;
use pg::{Actor, ActorKind, Db, Origin, Refusal, Scope};

use super::window::Window;

/// Rows of one reason from one address in a minute, and of all together.
const PER_SOURCE: u32 = 5;
const PER_MINUTE: u32 = 300;

struct Windows {
    reasons: Window<&'static str>,
    sources: Window<(&'static str, IpAddr)>,
    all: Window<()>,
}

pub struct Refusals(Mutex<Windows>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(Windows { reasons: Window::new(), sources: Window::new(), all: Window::new() }))
    }
}

/// Who was refused what.
pub struct Refused {
    /// A short, stable word for the metric.
    pub reason: &'static str,
    pub action: &'static str,
    /// The node that the certificate proves, if it proves one.
    pub node: Option<NodeId>,
    pub target: (&'static str, Option<String>),
    pub code: Code,
    pub source: IpAddr,
}

impl Refusals {
    /// The first of a reason in a minute is always audited.
    fn is_audited(&self, reason: &'static str, source: IpAddr) -> bool {
        let mut windows = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let first = windows.reasons.count(reason) == 1;
        let few = windows.sources.count((reason, network(source))) <= PER_SOURCE;
        first || (few && windows.all.count(()) <= PER_MINUTE)
    }

    /// Failing to record must not hide the refusal.
    pub async fn note(&self, db: &Db, refused: Refused, origin: &Origin) {
        let Refused { reason, action, node, target, code, source } = refused;
        metrics::counter!("node_refusals_total", "reason" => reason).increment(1);
        if !self.is_audited(reason, source) {
            return;
        }
        tracing::warn!(reason, action, node_id = node.map(tracing::field::display), source = %source, "a node request was refused");
        let actor = match node {
            Some(node) => Actor { kind: ActorKind::Node, id: Some(node.uuid()), role: "node" },
            None => Actor::ANONYMOUS,
        };
        let row = Refusal { actor, scope: Scope::Platform, action, target, code };
        if let Err(error) = pg::refuse(db, row, origin).await {
            tracing::error!(%error, action, "a refusal could not be audited");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_audited_a_little_and_a_new_reason_always() {
        let refusals = Refusals::default();
        let flood = (0..1000u32).filter(|_| refusals.is_audited("expired", [192, 0, 2, 1].into())).count();
        assert_eq!(flood, PER_SOURCE as usize);
        let spread =
            (0..60_000u32).filter(|n| refusals.is_audited("expired", IpAddr::from(n.to_be_bytes()))).count();
        assert!(spread <= PER_MINUTE as usize, "{spread}");
        assert!(refusals.is_audited("revoked", [192, 0, 2, 1].into()));
    }
}
