//! Rate lanes: a budget per principal (or, for whoever is not signed in, network address) and lane, sized by policy.
//!
//! Budgets are kept in this process: with N replicas behind a balancer a principal can reach up to N times
//! the limit. A shared budget comes with the shared cache.

use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    middleware::StateInformationMiddleware,
    state::keyed::DefaultKeyedStateStore,
};
use kernel::{Code, Problem, policy::Setting};

use crate::declare::Lane;

type Limiter = RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock, StateInformationMiddleware>;

const FORGET_IDLE_EVERY: Duration = Duration::from_secs(60);

/// What the client is told of its budget.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub limit: u32,
    pub remaining: u32,
    /// When refused: how long until the next request fits.
    pub retry_after_seconds: Option<u64>,
}

/// One limiter per lane and limit: principals with the same policy value share one.
#[derive(Default)]
pub struct Lanes {
    limiters: Mutex<HashMap<(Lane, u32), Arc<Limiter>>>,
}

impl Lanes {
    /// Forgets those whose budget is full again now and then, so that memory stays bounded.
    pub fn start() -> Arc<Self> {
        let lanes = Arc::new(Self::default());
        let sweeper = Arc::downgrade(&lanes);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(FORGET_IDLE_EVERY).await;
                    let Some(lanes) = sweeper.upgrade() else { return };
                    lanes.forget_idle();
                }
            });
        }
        lanes
    }

    /// Takes one from a budget; a refusal says when to come again.
    pub fn admit(&self, lane: Lane, per_minute: Setting, principal: &str) -> Result<Budget, Problem> {
        let budget = self.spend(lane, per_minute, principal);
        let Some(seconds) = budget.retry_after_seconds else { return Ok(budget) };
        metrics::counter!("rate_limited_total", "lane" => lane.name()).increment(1);
        let problem = Problem::from_code(Code::RateLimitExceeded).detail("lane", lane.name());
        Err(problem.detail("limit", budget.limit).retry_after(seconds))
    }

    fn spend(&self, lane: Lane, per_minute: Setting, principal: &str) -> Budget {
        let limit = u32::try_from(per_minute.get()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let limiter = {
            let mut limiters = self.limiters.lock().unwrap_or_else(|e| e.into_inner());
            let fresh = || Arc::new(RateLimiter::keyed(Quota::per_minute(limit)).with_middleware());
            limiters.entry((lane, limit.get())).or_insert_with(fresh).clone()
        };
        match limiter.check_key(&principal.to_owned()) {
            Ok(snapshot) => Budget {
                limit: limit.get(),
                remaining: snapshot.remaining_burst_capacity(),
                retry_after_seconds: None,
            },
            Err(not_until) => {
                let wait = not_until.wait_time_from(DefaultClock::default().now());
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                Budget { limit: limit.get(), remaining: 0, retry_after_seconds: Some(seconds.max(1)) }
            }
        }
    }

    fn forget_idle(&self) {
        for limiter in self.limiters.lock().unwrap_or_else(|e| e.into_inner()).values() {
            limiter.retain_recent();
        }
    }
}

/// Who an address stands for. Whoever has one IPv6 address has the 2^64 beside it.
pub fn address_holder(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
        ip => ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kernel::policy::{PolicyKey as _, keys};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_principal_is_stopped_at_its_limit_and_another_is_not() {
        let lanes = Lanes::default();
        let three = keys::RATE_API.read(&json!(3));
        let spent: Vec<Option<u64>> =
            (0..4).map(|_| lanes.spend(Lane::Api, three, "a").retry_after_seconds).collect();
        assert_eq!(&spent[..3], [None, None, None]);
        assert!(spent[3].is_some_and(|s| (1..=20).contains(&s)));
        assert!(lanes.spend(Lane::Api, three, "b").retry_after_seconds.is_none());
        assert!(lanes.spend(Lane::Financial, three, "a").retry_after_seconds.is_none());
        let refusal = lanes.admit(Lane::Api, three, "a").unwrap_err();
        assert_eq!(refusal.code, Code::RateLimitExceeded);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_share_a_budget() {
        let holder = |address: &str| address_holder(address.parse().unwrap());
        assert_eq!(holder("2001:db8:1:2:3::4"), holder("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(holder("2001:db8:1:2::1"), holder("2001:db8:1:3::1"));
        assert_eq!(holder("::ffff:192.0.2.1"), "192.0.2.1");
        assert_ne!(holder("192.0.2.1"), holder("192.0.2.2"));
    }
}
