//! File descriptors, shared out before anybody connects: the database, the operations listener, files and outgoing
//! calls have theirs for themselves, and connections from outside get what is left. So strangers cannot take from the
//! process what it needs to serve nodes and to be looked after.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Logs, keys, documents, calls to issuers, payment provider and webhooks, pipes of the built-in database.
const OWN_FILES: usize = 256;
/// With fewer, a listener serves nobody.
const LEAST_CONNECTIONS: usize = 32;

/// Connections that may be open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub public: usize,
    pub nodes: usize,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the process may open {limit} files, and needs at least {needed}: raise the limit (ulimit -n, or LimitNOFILE= of its systemd unit)"
)]
pub struct TooFew {
    limit: usize,
    needed: usize,
}

/// Raises the limit of this process as far as it may, and answers it.
pub fn raise_limit() -> nix::Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(usize::try_from(most).unwrap_or(usize::MAX))
}

/// `wanted` are the configured bounds of the listeners, none for a listener that this process does not have;
/// `reserved` are connections that strangers must not take. When not everything fits, both listeners give in proportion.
pub fn share(limit: usize, reserved: usize, wanted: Shares) -> Result<Shares, TooFew> {
    let reserved = reserved + OWN_FILES;
    let least = |wanted: usize| wanted.min(LEAST_CONNECTIONS);
    let needed = reserved + least(wanted.public) + least(wanted.nodes);
    if limit < needed {
        return Err(TooFew { limit, needed });
    }
    let left = limit - reserved;
    let all = wanted.public.saturating_add(wanted.nodes);
    if all <= left {
        return Ok(wanted);
    }
    let public = (left as u128 * wanted.public as u128 / all as u128) as usize;
    let public = public.clamp(least(wanted.public), left - least(wanted.nodes));
    Ok(Shares { public, nodes: wanted.nodes.min(left - public) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_stays_free_whatever_the_limit_is() {
        let wanted = Shares { public: 10_000, nodes: 20_000 };
        assert_eq!(share(1_000_000, 300, wanted), Ok(wanted));
        for limit in 0..40_000 {
            match share(limit, 300, wanted) {
                Ok(Shares { public, nodes }) => {
                    assert!(public + nodes + 300 + OWN_FILES <= limit, "{limit}");
                    assert!(public >= LEAST_CONNECTIONS && nodes >= LEAST_CONNECTIONS, "{limit}");
                }
                Err(TooFew { needed, .. }) => assert!(limit < needed, "{limit}"),
            }
        }
    }

    #[test]
    fn a_process_without_a_listener_gives_its_share_to_the_other() {
        let wanted = Shares { public: 0, nodes: 2000 };
        assert_eq!(share(1024, 100, wanted), Ok(Shares { public: 0, nodes: 1024 - 100 - OWN_FILES }));
    }
}
