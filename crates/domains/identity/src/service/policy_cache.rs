//! Resolved policies, kept in memory: asking on every request costs no round trip.
//!
//! One entry per organization holds everything stored for it and the global values. An entry lives at
//! most 60 seconds, and a change anywhere (`policy`) outdates all of them at once: entries carry the
//! generation they were loaded in, so that a load which began before a change cannot outlive it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    CorrelationId, Failure,
    ids::{OrgId, ProjectId, UserId},
    policy::{Definition, IntegerKey, PolicyKey, Setting},
};
use pg::{Connection, Db, Origin, Permit};

use crate::{
    model::policy::{PolicyExplanation, StoredValue, resolve},
    store::policies::{Entry, all_in_org},
};

const LIFETIME: TimeDelta = TimeDelta::seconds(60);
const ORGS_KEPT: usize = 10_000;

struct Snapshot {
    by_key: HashMap<String, Vec<Entry>>,
    loaded_at: DateTime<Utc>,
    generation: u64,
}

struct Inner {
    db: Db,
    cache: quick_cache::sync::Cache<Option<OrgId>, Arc<Snapshot>>,
    generation: AtomicU64,
}

/// Where a policy is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Where {
    pub org: Option<OrgId>,
    pub project: Option<ProjectId>,
    pub user: Option<UserId>,
}

/// Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub struct Policies(Arc<Inner>);

impl Policies {
    pub fn new(db: Db) -> Self {
        let inner = Arc::new(Inner {
            db: db.clone(),
            cache: quick_cache::sync::Cache::new(ORGS_KEPT),
            generation: AtomicU64::new(0),
        });
        // Weak, because the database outlives what listens to it.
        let listener = Arc::downgrade(&inner);
        db.on_invalidate(move |key| {
            if let (Some(inner), "policy" | "*") = (listener.upgrade(), key) {
                inner.generation.fetch_add(1, Ordering::SeqCst);
                inner.cache.clear();
            }
        });
        Self(inner)
    }

    /// What holds for `definition` at a place, and why.
    async fn resolve(
        &self,
        definition: &'static Definition,
        place: Where,
    ) -> Result<PolicyExplanation, Failure> {
        let snapshot = self.snapshot(place.org).await?;
        let counts = |entry: &&Entry| {
            entry.project.is_none_or(|project| Some(project) == place.project)
                && entry.user.is_none_or(|user| Some(user) == place.user)
        };
        let entries = snapshot.by_key.get(definition.key).map(Vec::as_slice).unwrap_or_default();
        let values: Vec<StoredValue> = entries.iter().filter(counts).map(|e| e.stored.clone()).collect();
        Ok(resolve(definition, &values))
    }

    /// What holds for `key` at a place, as the type that the key has.
    pub async fn setting_at<K: PolicyKey>(&self, key: K, place: Where) -> Result<K::Setting, Failure> {
        Ok(key.read(&self.resolve(key.definition(), place).await?.value))
    }

    /// Makes sure that what holds in these places is known, and reads what is not over the caller's connection: whoever
    /// holds one, and locks with it, must not wait for another. The connection is one of the system role whose
    /// transaction has changed no policy.
    pub async fn warm(&self, conn: &mut Connection, orgs: &[Option<OrgId>]) -> Result<(), Failure> {
        for org in orgs {
            if self.known(*org).is_none() {
                self.load(conn, *org).await?;
            }
        }
        Ok(())
    }

    async fn snapshot(&self, org: Option<OrgId>) -> Result<Arc<Snapshot>, Failure> {
        if let Some(snapshot) = self.known(org) {
            return Ok(snapshot);
        }
        let origin = Origin::internal(CorrelationId(self.0.db.ambient().uuid()));
        let mut read = self.0.db.read(&Permit::system("resolve policies", origin)).await?;
        self.load(read.conn(), org).await
    }

    fn known(&self, org: Option<OrgId>) -> Option<Arc<Snapshot>> {
        let inner = &self.0;
        let now = inner.db.ambient().now();
        let generation = inner.generation.load(Ordering::SeqCst);
        let fresh = |s: &Arc<Snapshot>| s.generation == generation && now < s.loaded_at + LIFETIME;
        inner.cache.get(&org).filter(fresh)
    }

    async fn load(&self, conn: &mut Connection, org: Option<OrgId>) -> Result<Arc<Snapshot>, Failure> {
        let inner = &self.0;
        // Both before reading: a change meanwhile outdates what is read.
        let (generation, loaded_at) = (inner.generation.load(Ordering::SeqCst), inner.db.ambient().now());
        let mut by_key: HashMap<String, Vec<Entry>> = HashMap::new();
        for entry in all_in_org(conn, org).await? {
            by_key.entry(entry.key.clone()).or_default().push(entry);
        }
        let snapshot = Arc::new(Snapshot { by_key, loaded_at, generation });
        inner.cache.insert(org, snapshot.clone());
        Ok(snapshot)
    }
}

#[async_trait]
impl endpoint::PolicySource for Policies {
    async fn setting(
        &self,
        key: IntegerKey,
        org: Option<OrgId>,
        user: Option<UserId>,
    ) -> Result<Setting, Failure> {
        self.setting_at(key, Where { org, project: None, user }).await
    }
}
