//! Whoever takes the money.

use async_trait::async_trait;

/// A payment provider. It is called outside of transactions; every call has a timeout and an idempotency key.
#[async_trait]
pub trait Provider: Send + Sync {
    /// `disabled`, `simulated` or `stripe`.
    fn name(&self) -> &'static str;
}

/// Nobody can pay.
pub struct Disabled;

#[async_trait]
impl Provider for Disabled {
    fn name(&self) -> &'static str {
        "disabled"
    }
}
