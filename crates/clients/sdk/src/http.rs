//! The one place that makes HTTP clients.

use std::time::Duration;

use crate::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence for this long ends a request. There is no limit on its whole length: exports stream.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A client with bounded waits and this machine's certificate authorities.
pub fn http_client(user_agent: &str) -> Result<reqwest::Client, Error> {
    // Whoever comes second finds it installed, which is just as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let builder = || {
        reqwest::Client::builder()
            .user_agent(user_agent)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
    };
    // A machine without any certificate authority can still talk plain HTTP to its own server; HTTPS then
    // fails when it is used, with the reason.
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).map_err(Error::Network)
}
