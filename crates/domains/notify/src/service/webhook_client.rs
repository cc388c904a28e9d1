//! The HTTP client of webhooks: it connects to the open internet only, whatever a name resolves to at that moment, and
//! follows nobody.

use std::{net::SocketAddr, time::Duration};

use kernel::Problem;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::model::address::{check_url, is_public};

const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Cheap to clone. It cannot be made without its guard.
#[derive(Clone)]
pub struct WebhookClient {
    http: reqwest::Client,
    private: bool,
}

impl WebhookClient {
    /// `private`: whether it may reach private and loopback addresses, which is for development.
    pub fn new(private: bool) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(1)
            .user_agent(concat!("GPUaaS-Webhooks/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Guarded { private })
            .build()?;
        Ok(Self { http, private })
    }

    /// A request to a URL, which is checked again: an address in it is not resolved and so not seen by the guard.
    pub fn post(&self, text: &str) -> Result<reqwest::RequestBuilder, Problem> {
        Ok(self.http.post(check_url(text, self.private)?))
    }
}

#[derive(Debug, thiserror::Error)]
enum ResolveError {
    #[error("the name resolves to a private or reserved address")]
    NotPublic,
    #[error("the name could not be resolved in time")]
    Timeout,
    #[error("the name cannot be resolved")]
    Unknown(#[from] std::io::Error),
}

#[allow(clippy::disallowed_methods)] // The one place that looks names up; no transaction can reach it.
async fn resolve(name: String) -> Result<Vec<SocketAddr>, ResolveError> {
    let found = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((name, 0))).await;
    Ok(found.map_err(|_| ResolveError::Timeout)??.collect())
}

/// Resolves names and gives out only addresses that may be connected to: what was checked is what is used.
struct Guarded {
    private: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let private = self.private;
        Box::pin(async move {
            let addresses = resolve(name.as_str().to_owned()).await?;
            // One bad address spoils all: whoever mixes them means harm, or a network that is not ours to enter.
            if !private && addresses.iter().any(|address| !is_public(address.ip())) {
                return Err(ResolveError::NotPublic.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_not_given_out() {
        let refused = Guarded { private: false }.resolve("localhost".parse().unwrap()).await;
        assert!(refused.map(|_| ()).unwrap_err().to_string().contains("private or reserved"));
        let given = Guarded { private: true }.resolve("localhost".parse().unwrap()).await.map(|a| a.count());
        assert!(given.unwrap() > 0);
    }
}
