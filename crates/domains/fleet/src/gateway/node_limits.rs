//! How often one node may report. A node is root on its own machine, and whoever copied its key is too: neither may take
//! more of the gateway and the database than its share.

use std::sync::Mutex;

use kernel::{Code, Problem, ids::NodeId, policy::Setting};

use super::window::Window;

/// Above the size of any fleet on one gateway; nodes are authenticated, so strangers add none.
const MOST_NODES: usize = 200_000;

/// Requests of one route, counted per node and minute.
pub struct NodeLimit(Mutex<Window<NodeId>>);

impl Default for NodeLimit {
    fn default() -> Self {
        Self(Mutex::new(Window::with_keys(MOST_NODES)))
    }
}

impl NodeLimit {
    /// Counts a request, or refuses it with the time to wait.
    pub fn admit(&self, node: NodeId, per_minute: Setting) -> Result<(), Problem> {
        let mut window = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if i64::from(window.count(node)) <= per_minute.get() {
            return Ok(());
        }
        metrics::counter!("node_reports_limited_total").increment(1);
        let text = format!("The limit of a node is {} per minute.", per_minute.get());
        Err(Problem::new(Code::RateLimitExceeded, text).retry_after(window.rest().as_secs() + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kernel::policy::{PolicyKey as _, keys};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_is_refused_beyond_its_share_until_the_next_minute_and_others_are_not() {
        let limit = NodeLimit::default();
        let three = keys::FLEET_LOG_BATCHES_PER_MINUTE.read(&json!(3));
        let node = |n| NodeId::from(uuid::Uuid::from_u128(n));
        let refused: Vec<bool> = (0..4).map(|_| limit.admit(node(1), three).is_err()).collect();
        assert_eq!(refused, [false, false, false, true]);
        assert!(limit.admit(node(2), three).is_ok());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(limit.admit(node(1), three).is_ok());
    }
}
