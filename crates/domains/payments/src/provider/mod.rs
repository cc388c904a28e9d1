//! Whoever takes the money.

mod stripe;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::ids::{OrgId, RefundId, TopupId};

use crate::model::wire::{CheckoutSession, List, PaymentIntent, Refund};

pub use stripe::{Stripe, StripeSettings};

/// Why the provider did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("no payment provider is configured")]
    Disabled,
    /// It will not, however often it is asked.
    #[error("the payment provider refused: {0}")]
    Refused(String),
    /// It may have done it or not; asking again with the same key is safe.
    #[error("the payment provider cannot be reached: {0}")]
    Unavailable(String),
}

/// A checkout to be made.
#[derive(Clone, Copy, Debug)]
pub struct Checkout<'a> {
    pub customer: &'a str,
    pub org: OrgId,
    /// Also the idempotency key: a top-up has one checkout, however often it is asked for.
    pub topup: TopupId,
    pub amount_minor: i64,
    pub currency: &'a str,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
}

/// Entries that were made in a time, and where the page begins.
#[derive(Clone, Debug)]
pub struct Span {
    pub from: DateTime<Utc>,
    pub until: DateTime<Utc>,
    /// The last entry of the page before.
    pub after: Option<String>,
}

/// A payment provider. It is called outside of transactions; every call has a timeout, and every call that changes
/// something an idempotency key.
#[async_trait]
pub trait Provider: Send + Sync {
    /// `disabled`, `simulated` or `stripe`.
    fn name(&self) -> &'static str;

    /// The provider's id of a customer that stands for this organization.
    async fn customer_create(&self, _org: OrgId) -> Result<String, ProviderError> {
        Err(ProviderError::Disabled)
    }

    async fn checkout_create(&self, _checkout: Checkout<'_>) -> Result<CheckoutSession, ProviderError> {
        Err(ProviderError::Disabled)
    }

    async fn checkout_get(&self, _session: &str) -> Result<CheckoutSession, ProviderError> {
        Err(ProviderError::Disabled)
    }

    /// Nobody can pay it any more. Refused when somebody has.
    async fn checkout_expire(&self, _session: &str) -> Result<CheckoutSession, ProviderError> {
        Err(ProviderError::Disabled)
    }

    /// `refund` is also the idempotency key.
    async fn refund_create(
        &self,
        _intent: &str,
        _amount_minor: i64,
        _refund: RefundId,
    ) -> Result<Refund, ProviderError> {
        Err(ProviderError::Disabled)
    }

    async fn refund_get(&self, _refund: &str) -> Result<Refund, ProviderError> {
        Err(ProviderError::Disabled)
    }

    /// One page, newest first.
    async fn payments_list(&self, _span: &Span) -> Result<List<PaymentIntent>, ProviderError> {
        Err(ProviderError::Disabled)
    }

    /// One page, newest first.
    async fn refunds_list(&self, _span: &Span) -> Result<List<Refund>, ProviderError> {
        Err(ProviderError::Disabled)
    }
}

/// Nobody can pay.
pub struct Disabled;

#[async_trait]
impl Provider for Disabled {
    fn name(&self) -> &'static str {
        "disabled"
    }
}
