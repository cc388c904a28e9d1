//! Who really called, when a trusted proxy stands in between.
//!
//! Rate limits and audit rows name the client's address. Behind a proxy the peer is always the proxy, which
//! puts the client into `X-Forwarded-For`; anybody else's header is ignored.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::Response,
};
use http::HeaderMap;

/// An address, or a range such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hint = "must be an IP address or a range such as 10.0.0.0/8";
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| hint)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), |p| p.parse().map_err(|_| hint))?;
        if prefix > longest { Err(hint) } else { Ok(Self { address, prefix }) }
    }
}

impl Network {
    pub(crate) fn holds(self, other: IpAddr) -> bool {
        let other = other.to_canonical();
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, true),
            IpAddr::V6(v6) => (v6.to_bits(), false),
        };
        let ((own, own_kind), (other, kind)) = (bits(self.address), bits(other));
        let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
        own_kind == kind && own & mask == other & mask
    }
}

/// The rightmost address that is not one of ours: what stands left of it, the client could have made up.
fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let ours = |address: IpAddr| trusted.iter().any(|network| network.holds(address));
    let mut client = peer.to_canonical();
    let values = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let claimed: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    for text in claimed.iter().rev() {
        if !ours(client) {
            break;
        }
        match text.parse::<IpAddr>() {
            Ok(address) => client = address.to_canonical(),
            Err(_) => break,
        }
    }
    client
}

/// Replaces the peer's address by the client's, once, for everything behind it.
pub async fn resolve(State(trusted): State<Arc<[Network]>>, mut request: Request, next: Next) -> Response {
    if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>().copied()
        && !trusted.is_empty()
    {
        let address = client(peer.ip(), request.headers(), &trusted);
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address, peer.port())));
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(peer: &str, forwarded: &str, trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", forwarded.parse().unwrap());
        let trusted: Vec<Network> = trusted.iter().map(|t| t.parse().unwrap()).collect();
        client(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_as_far_as_it_saw() {
        assert_eq!(seen("203.0.113.9", "198.51.100.1", &[]), "203.0.113.9");
        assert_eq!(seen("203.0.113.9", "198.51.100.1", &["10.0.0.0/8"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", "6.6.6.6, 198.51.100.1", &["10.0.0.0/8"]), "198.51.100.1");
        assert_eq!(seen("10.1.2.3", "6.6.6.6, 198.51.100.1, 10.9.9.9", &["10.0.0.0/8"]), "198.51.100.1");
        assert_eq!(seen("10.1.2.3", "nonsense", &["10.0.0.0/8"]), "10.1.2.3");
        assert_eq!(seen("::ffff:10.1.2.3", "198.51.100.1", &["10.0.0.0/8"]), "198.51.100.1");
        assert_eq!(seen("2001:db8::1", "198.51.100.1", &["2001:db8::/32"]), "198.51.100.1");
        assert!("10.0.0.0/33".parse::<Network>().is_err() && "x".parse::<Network>().is_err());
    }
}
