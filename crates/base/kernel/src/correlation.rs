//! One id that follows a request through API, outbox, workers, tasks, agent logs and audit.

use std::fmt;

use uuid::Uuid;

#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct CorrelationId(pub Uuid);

impl CorrelationId {
    /// Accepts what a caller sent, when it is a UUID.
    pub fn accept(header: &str) -> Option<Self> {
        (header.len() <= 36).then(|| Uuid::try_parse(header).ok()).flatten().map(Self)
    }
}

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
