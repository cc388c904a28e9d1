//! Stripe, as far as we need it; also whatever speaks its wire format under another address.

use std::time::Duration;

use async_trait::async_trait;
use kernel::{
    Secret,
    ids::{OrgId, RefundId},
};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use super::{Checkout, Provider, ProviderError, Span};
use crate::model::wire::{CheckoutSession, Customer, ErrorBody, List, PaymentIntent, Refund};

/// The version of the wire format that `model/wire` reads.
const VERSION: &str = "2025-03-31.basil";
const TIMEOUT: Duration = Duration::from_secs(10);
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The largest answer that is read: a full page of a list is far below it.
const MOST_BYTES: usize = 4 << 20;

pub struct StripeSettings {
    /// `stripe`, or `simulated`.
    pub name: &'static str,
    /// Such as `https://api.stripe.com`.
    pub base: Url,
    pub key: Secret<String>,
}

pub struct Stripe {
    http: reqwest::Client,
    settings: StripeSettings,
}

type Form = Vec<(String, String)>;

fn pair(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

impl Stripe {
    pub fn new(http: reqwest::Client, settings: StripeSettings) -> Self {
        Self { http, settings }
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &Form) -> Result<T, ProviderError> {
        self.call(Method::GET, path, query, None).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        form: &Form,
        key: &str,
    ) -> Result<T, ProviderError> {
        self.call(Method::POST, path, form, Some(key)).await
    }

    /// Tries again what may pass, a few times, always under the same key.
    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        fields: &Form,
        key: Option<&str>,
    ) -> Result<T, ProviderError> {
        let mut url = self.settings.base.clone();
        url.path_segments_mut()
            .map_err(|()| ProviderError::Refused("its address cannot be used".to_owned()))?
            .pop_if_empty()
            .push("v1")
            .extend(path);
        let mut last = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(attempt - 1)).await;
            }
            match self.once(method.clone(), url.clone(), fields, key).await {
                Ok(bytes) => {
                    return serde_json::from_slice(&bytes).map_err(|error| {
                        ProviderError::Unavailable(format!("its answer cannot be read: {error}"))
                    });
                }
                Err(ProviderError::Unavailable(text)) => last = text,
                Err(error) => return Err(error),
            }
        }
        Err(ProviderError::Unavailable(last))
    }

    async fn once(
        &self,
        method: Method,
        url: Url,
        fields: &Form,
        key: Option<&str>,
    ) -> Result<Vec<u8>, ProviderError> {
        let gone = |error: reqwest::Error| ProviderError::Unavailable(error.without_url().to_string());
        let mut request = self
            .http
            .request(method.clone(), url)
            .timeout(TIMEOUT)
            .bearer_auth(self.settings.key.expose())
            .header("stripe-version", VERSION);
        request = if method == Method::GET { request.query(fields) } else { request.form(fields) };
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let mut response = request.send().await.map_err(gone)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(gone)? {
            if body.len() + chunk.len() > MOST_BYTES {
                return Err(ProviderError::Unavailable("its answer is too long".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(body);
        }
        let told = serde_json::from_slice::<ErrorBody>(&body).ok().map(|body| body.error);
        let code = told.as_ref().and_then(|error| error.code.clone()).unwrap_or_default();
        let text = told.and_then(|error| error.message).unwrap_or_default();
        // Its words end up in rows and answers: a line of them is enough.
        let text: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
        let text = format!("{} {code} {text}", status.as_u16()).trim_end().to_owned();
        // A key that is in use by a request on its way, too many requests, or trouble over there: all pass. A wrong key
        // of ours is mended by the operator, so it must not fail what waits.
        let passes = status.is_server_error()
            || matches!(
                status,
                StatusCode::CONFLICT
                    | StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::REQUEST_TIMEOUT
                    | StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN
            );
        Err(if passes { ProviderError::Unavailable(text) } else { ProviderError::Refused(text) })
    }
}

fn span(span: &Span) -> Form {
    let mut query = vec![
        pair("limit", 100),
        pair("created[gte]", span.from.timestamp()),
        pair("created[lt]", span.until.timestamp()),
    ];
    query.extend(span.after.as_ref().map(|after| pair("starting_after", after)));
    query
}

#[async_trait]
impl Provider for Stripe {
    fn name(&self) -> &'static str {
        self.settings.name
    }

    async fn customer_create(&self, org: OrgId) -> Result<String, ProviderError> {
        let form = vec![pair("metadata[org_id]", org), pair("description", org)];
        let made: Customer = self.post(&["customers"], &form, &format!("customer-{org}")).await?;
        Ok(made.id)
    }

    async fn checkout_create(&self, checkout: Checkout<'_>) -> Result<CheckoutSession, ProviderError> {
        // Nothing here depends on the time: the same key with other fields is refused.
        let form = vec![
            pair("mode", "payment"),
            pair("customer", checkout.customer),
            pair("client_reference_id", checkout.topup),
            pair("success_url", checkout.success_url),
            pair("cancel_url", checkout.cancel_url),
            pair("line_items[0][quantity]", 1),
            pair("line_items[0][price_data][currency]", checkout.currency.to_ascii_lowercase()),
            pair("line_items[0][price_data][unit_amount]", checkout.amount_minor),
            pair("line_items[0][price_data][product_data][name]", "Balance top-up"),
            pair("metadata[topup_id]", checkout.topup),
            pair("metadata[org_id]", checkout.org),
            pair("payment_intent_data[metadata][topup_id]", checkout.topup),
            pair("payment_intent_data[metadata][org_id]", checkout.org),
        ];
        self.post(&["checkout", "sessions"], &form, &checkout.topup.to_string()).await
    }

    async fn checkout_get(&self, session: &str) -> Result<CheckoutSession, ProviderError> {
        self.get(&["checkout", "sessions", session], &Form::new()).await
    }

    async fn checkout_expire(&self, session: &str) -> Result<CheckoutSession, ProviderError> {
        let key = format!("expire-{session}");
        self.post(&["checkout", "sessions", session, "expire"], &Form::new(), &key).await
    }

    async fn refund_create(
        &self,
        intent: &str,
        amount_minor: i64,
        refund: RefundId,
    ) -> Result<Refund, ProviderError> {
        let form = vec![
            pair("payment_intent", intent),
            pair("amount", amount_minor),
            pair("metadata[refund_id]", refund),
        ];
        self.post(&["refunds"], &form, &refund.to_string()).await
    }

    async fn refund_get(&self, refund: &str) -> Result<Refund, ProviderError> {
        self.get(&["refunds", refund], &Form::new()).await
    }

    async fn payments_list(&self, wanted: &Span) -> Result<List<PaymentIntent>, ProviderError> {
        self.get(&["payment_intents"], &span(wanted)).await
    }

    async fn refunds_list(&self, wanted: &Span) -> Result<List<Refund>, ProviderError> {
        self.get(&["refunds"], &span(wanted)).await
    }
}
