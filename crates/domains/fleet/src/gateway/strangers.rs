//! Places for those who have not proven anything yet: so many altogether, and at most half of them for one network, so
//! that a single stranger cannot keep every node from coming in.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::window::network;

pub struct Strangers {
    places: Arc<Semaphore>,
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
pub struct Stranger {
    _place: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _visit: Visit,
}

/// Counts a connection from its beginning, also while it waits.
struct Visit {
    to: Arc<Strangers>,
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

impl Strangers {
    pub fn new(places: usize, most_present: usize) -> Arc<Self> {
        let each = (places / 2).max(1);
        let places = Arc::new(Semaphore::new(places));
        Arc::new(Self { places, each, most_present, present: Mutex::default() })
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
    pub async fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Stranger> {
        let (visit, own) = self.visit(address)?;
        let own = own.acquire_owned().await.ok()?;
        let place = self.places.clone().acquire_owned().await.ok()?;
        Some(Stranger { _place: place, _own: own, _visit: visit })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn one_network_has_half_of_the_places_and_the_others_stay_for_others() {
        let strangers = Strangers::new(4, 5);
        let enter = |address: &str| strangers.enter(address.parse().unwrap()).now_or_never().flatten();
        let held: Vec<Stranger> =
            ["2001:db8::1", "2001:db8::2"].iter().map(|address| enter(address).unwrap()).collect();
        assert!(enter("2001:db8::3").is_none());
        let other = enter("192.0.2.1").unwrap();
        drop(held);
        let again = enter("2001:db8::3").unwrap();
        drop((other, again));
        assert!(strangers.lock().networks.is_empty() && strangers.lock().all == 0, "nobody is remembered");
    }

    #[tokio::test]
    async fn so_many_may_wait_and_no_more() {
        let strangers = Strangers::new(2, 2);
        let here = strangers.enter([192, 0, 2, 1].into()).await.unwrap();
        let waits = strangers.enter([192, 0, 2, 1].into());
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(strangers.enter([192, 0, 2, 2].into()).await.is_none());
        drop(here);
        assert!(waits.await.is_some());
    }
}
