//! Places for connections: so many altogether, and so many of them for one network, so that a single stranger cannot
//! keep everybody else from coming in.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct Places {
    all: Arc<Semaphore>,
    /// Of one network.
    each: usize,
    /// Who may have a place or wait for one, altogether.
    most_present: usize,
    present: Mutex<Present>,
}

#[derive(Default)]
struct Present {
    all: usize,
    /// The places of each network that somebody is present from, and from how many connections.
    networks: HashMap<IpAddr, (Arc<Semaphore>, usize)>,
}

/// A place; dropping it leaves.
pub struct Place {
    _place: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
    _visit: Option<Visit>,
}

/// In the extensions of a request: the place of its connection, for what outlives the request, such as a WebSocket.
#[derive(Clone)]
pub struct Held {
    _place: Arc<Place>,
}

impl Held {
    pub fn new(place: Place) -> Self {
        Self { _place: Arc::new(place) }
    }
}

/// Counts a connection from its beginning, also while it waits.
struct Visit {
    to: Arc<Places>,
    from: IpAddr,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut present = self.to.lock();
        present.all = present.all.saturating_sub(1);
        if let Some((_, count)) = present.networks.get_mut(&self.from) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                present.networks.remove(&self.from);
            }
        }
    }
}

impl Places {
    /// `each` of the `all` places for one network; `most_present` may have a place or wait for one.
    pub fn new(all: usize, each: usize, most_present: usize) -> Arc<Self> {
        let (all, each) = (Arc::new(Semaphore::new(all)), each.clamp(1, all.max(1)));
        Arc::new(Self { all, each, most_present, present: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn visit(self: &Arc<Self>, address: IpAddr) -> Option<(Visit, Arc<Semaphore>)> {
        let from = network(address.to_canonical());
        let mut present = self.lock();
        if present.all >= self.most_present {
            return None;
        }
        present.all += 1;
        let own = || (Arc::new(Semaphore::new(self.each)), 0);
        let (own, count) = present.networks.entry(from).or_insert_with(own);
        *count += 1;
        Some((Visit { to: self.clone(), from }, own.clone()))
    }

    /// Waits for a place. Nothing when too many are here already.
    pub async fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let (visit, own) = self.visit(address)?;
        let own = own.acquire_owned().await.ok()?;
        let place = self.all.clone().acquire_owned().await.ok()?;
        Some(Place { _place: place, _own: Some(own), _visit: Some(visit) })
    }

    /// Until a place is free, whose it may be. Whoever accepts only then never holds more sockets than places.
    pub async fn vacancy(&self) -> Option<OwnedSemaphorePermit> {
        self.all.clone().acquire_owned().await.ok()
    }

    /// Gives a vacancy to a network, unless that has its share already.
    pub fn occupy(self: &Arc<Self>, vacancy: OwnedSemaphorePermit, address: IpAddr) -> Option<Place> {
        let (visit, own) = self.visit(address)?;
        let own = own.try_acquire_owned().ok()?;
        Some(Place { _place: vacancy, _own: Some(own), _visit: Some(visit) })
    }

    /// Gives a vacancy to somebody whose address stands for many, such as a proxy.
    pub fn occupy_for_many(vacancy: OwnedSemaphorePermit) -> Place {
        Place { _place: vacancy, _own: None, _visit: None }
    }
}

/// What one party has to itself: an address, or the 64 bits of an IPv6 network, in which everybody has 2^64 addresses.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a failure is a failed test")]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn one_network_has_its_share_and_the_others_stay_for_others() {
        let places = Places::new(4, 2, 5);
        let enter = |address: &str| places.enter(address.parse().unwrap()).now_or_never().flatten();
        let held: Vec<Place> =
            ["2001:db8::1", "2001:db8::2"].iter().map(|address| enter(address).unwrap()).collect();
        assert!(enter("2001:db8::3").is_none());
        let other = enter("192.0.2.1").unwrap();
        drop(held);
        let again = enter("2001:db8::3").unwrap();
        drop((other, again));
        assert!(places.lock().networks.is_empty() && places.lock().all == 0, "nobody is remembered");
    }

    #[tokio::test]
    async fn so_many_may_wait_and_no_more() {
        let places = Places::new(2, 1, 2);
        let here = places.enter([192, 0, 2, 1].into()).await.unwrap();
        let waits = places.enter([192, 0, 2, 1].into());
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(places.enter([192, 0, 2, 2].into()).await.is_none());
        drop(here);
        assert!(waits.await.is_some());
    }

    #[tokio::test]
    async fn a_vacancy_that_a_network_may_not_have_goes_back() {
        let places = Places::new(2, 1, 2);
        let stranger: IpAddr = [192, 0, 2, 1].into();
        let first = places.occupy(places.vacancy().await.unwrap(), stranger).unwrap();
        assert!(places.occupy(places.vacancy().await.unwrap(), stranger).is_none());
        let other = places.occupy(places.vacancy().await.unwrap(), [192, 0, 2, 2].into()).unwrap();
        assert!(places.vacancy().now_or_never().is_none(), "all places are taken");
        drop((first, other));
        assert!(places.vacancy().now_or_never().is_some());
    }

    #[test]
    fn addresses_of_one_network_are_one_party() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
