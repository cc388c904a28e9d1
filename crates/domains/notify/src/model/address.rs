//! Which addresses a webhook may go to: those of the open internet. Anything else could be a way for a tenant to reach
//! what only our own network can: a URL is checked when a webhook is created, and what its host name resolves to each time
//! when a message is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kernel::Problem;
use url::{Host, Url};

const MOST_CHARS: usize = 2048;

/// Whether an address belongs to the open internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let reserved = a == 0
        || a >= 224
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b));
    !(reserved || v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_documentation())
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    if let Some(v4) = v6.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let [a, b, ..] = v6.segments();
    // Only what is given out to the internet, without documentation, and without what carries another address inside.
    let global = a & 0xe000 == 0x2000;
    let documentation = (a == 0x2001 && b == 0x0db8) || (a == 0x3fff && b < 0x1000);
    let tunnel = a == 0x2002 || (a == 0x2001 && b < 0x0200);
    global && !documentation && !tunnel
}

fn refused(text: impl std::fmt::Display) -> Problem {
    Problem::field("url", text)
}

/// The URL of a webhook, as far as it can be judged without asking for names. `private`: addresses of our own network
/// are allowed, and plain http to this machine.
pub fn check_url(text: &str, private: bool) -> Result<Url, Problem> {
    if text.chars().count() > MOST_CHARS {
        return Err(refused("must be at most 2048 characters"));
    }
    let url = Url::parse(text).map_err(|_| refused("must be a URL such as https://example.org/hook"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused(
            "must not contain a user name or password; the signature authenticates the sender",
        ));
    }
    if url.fragment().is_some() {
        return Err(refused("must not have a fragment"));
    }
    let literal = match url.host() {
        Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
        Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
        Some(Host::Domain(_)) => None,
        None => return Err(refused("must name a host")),
    };
    let here = literal.is_some_and(|ip| ip.is_loopback()) || url.host_str() == Some("localhost");
    match url.scheme() {
        "https" => {}
        "http" if private && here => {}
        _ => return Err(refused("must begin with https://")),
    }
    if !private && (local_name(&url) || literal.is_some_and(|ip| !is_public(ip))) {
        return Err(not_public());
    }
    Ok(url)
}

/// Names that are this machine by definition (RFC 6761), whatever a resolver answers.
fn local_name(url: &Url) -> bool {
    let name = url.domain().unwrap_or_default().trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

fn not_public() -> Problem {
    refused("resolves to a private or reserved address; webhooks need a public address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_open_internet_are_public() {
        for text in ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "127.0.0.1",
            "127.8.9.1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "100.64.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:7f00:1::",
            "100::1",
            "3fff::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn urls_of_webhooks_are_https_and_hold_no_secrets() {
        for good in ["https://example.org/hook", "https://example.org:8443/a?b=c", "https://8.8.8.8/"] {
            assert!(check_url(good, false).is_ok(), "{good}");
        }
        for bad in [
            "",
            "example.org",
            "http://example.org/",
            "ftp://example.org/",
            "https://me:secret@example.org/",
            "https://example.org/#part",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://169.254.169.254/latest",
            "file:///etc/passwd",
            "https://10.1.2.3/",
        ] {
            assert!(check_url(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn development_may_use_this_machine_and_plain_http_to_nothing_else() {
        for good in ["http://127.0.0.1:9/", "http://localhost:9/", "https://10.0.0.1/"] {
            assert!(check_url(good, true).is_ok(), "{good}");
        }
        for bad in ["http://10.0.0.1/", "http://example.org/"] {
            assert!(check_url(bad, true).is_err(), "{bad}");
        }
    }
}
