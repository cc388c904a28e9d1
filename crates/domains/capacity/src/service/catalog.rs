//! Products as requests see them, cached.
//!
//! The whole catalog is one snapshot. It lives at most a minute, and a change anywhere (`catalog`) outdates it at
//! once: it carries the generation that it was loaded in, so that a load which began before a change cannot
//! outlive it. A price that is dated into the future comes to hold by itself.

pub mod managing;
pub mod showing;

use std::{
    collections::HashMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Code, CorrelationId, Failure, Problem};
use pg::{Db, Origin, Permit};

use crate::{
    model::sku::{Product, listed},
    store,
};

const LIFETIME: TimeDelta = TimeDelta::seconds(60);
/// What is dropped when the catalog changes.
const KEY: &str = "catalog";
/// Names in a message.
const MOST_NAMES: usize = 20;

struct Snapshot {
    /// Each product at each of its prices, the earliest first.
    products: HashMap<String, Vec<Arc<Product>>>,
    loaded_at: DateTime<Utc>,
    generation: u64,
}

struct Inner {
    db: Db,
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    generation: AtomicU64,
}

/// Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub struct Catalog(Arc<Inner>);

impl Catalog {
    pub fn new(db: &Db) -> Self {
        let inner =
            Arc::new(Inner { db: db.clone(), snapshot: RwLock::default(), generation: AtomicU64::new(0) });
        // Weak, because the database outlives what listens to it.
        let listener = Arc::downgrade(&inner);
        db.on_invalidate(move |key| {
            if let (Some(inner), KEY | "*") = (listener.upgrade(), key) {
                inner.generation.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self(inner)
    }

    /// The product of this name at the price that holds now, whether it is sold or not.
    pub async fn product(&self, sku: &str) -> Result<Arc<Product>, Failure> {
        let now = self.0.db.ambient().now();
        let snapshot = self.snapshot(now).await?;
        let Some(dated) = snapshot.products.get(sku) else {
            let mut names: Vec<&str> = sold(&snapshot, now).map(|product| product.sku.sku.as_str()).collect();
            names.sort_unstable();
            names.truncate(MOST_NAMES);
            let text = format!("unknown product; choose one of {}", listed(&names));
            return Err(Problem::field("sku", text).into());
        };
        let product = at(dated, now).ok_or_else(|| {
            Problem::new(Code::SkuUnavailable, format!("{sku} has no price yet."))
                .detail("reason", "not_sold")
                .suggest("Choose another product, or ask the operators to set a price.")
        })?;
        Ok(product.clone())
    }

    /// Everything that is sold now, by name.
    pub async fn sold(&self) -> Result<Vec<Arc<Product>>, Failure> {
        let now = self.0.db.ambient().now();
        let snapshot = self.snapshot(now).await?;
        let mut products: Vec<Arc<Product>> = sold(&snapshot, now).cloned().collect();
        products.sort_by(|a, b| a.sku.sku.cmp(&b.sku.sku));
        Ok(products)
    }

    async fn snapshot(&self, now: DateTime<Utc>) -> Result<Arc<Snapshot>, Failure> {
        let inner = &self.0;
        let generation = inner.generation.load(Ordering::SeqCst);
        let fresh = |s: &&Arc<Snapshot>| s.generation == generation && now < s.loaded_at + LIFETIME;
        if let Some(snapshot) =
            inner.snapshot.read().unwrap_or_else(|e| e.into_inner()).as_ref().filter(fresh)
        {
            return Ok(snapshot.clone());
        }
        let products = load(&inner.db, now).await?;
        let snapshot = Arc::new(Snapshot { products, loaded_at: now, generation });
        *inner.snapshot.write().unwrap_or_else(|e| e.into_inner()) = Some(snapshot.clone());
        Ok(snapshot)
    }
}

fn at(dated: &[Arc<Product>], now: DateTime<Utc>) -> Option<&Arc<Product>> {
    dated.iter().rev().find(|product| product.price.valid_from <= now)
}

fn sold(snapshot: &Snapshot, now: DateTime<Utc>) -> impl Iterator<Item = &Arc<Product>> {
    snapshot.products.values().filter_map(move |dated| at(dated, now)).filter(|product| product.sku.active)
}

async fn load(db: &Db, now: DateTime<Utc>) -> Result<HashMap<String, Vec<Arc<Product>>>, Failure> {
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let mut read = db.read(&Permit::system("load the catalog", origin)).await?;
    let mut profiles: HashMap<String, Vec<_>> = HashMap::new();
    for (sku, profile) in store::catalog::all_profiles(read.conn()).await? {
        profiles.entry(sku).or_default().push(profile);
    }
    let mut prices: HashMap<String, Vec<_>> = HashMap::new();
    for (sku, price) in store::catalog::prices_from(read.conn(), now).await? {
        prices.entry(sku).or_default().push(price);
    }
    let products = store::catalog::all(read.conn()).await?.into_iter().map(|sku| {
        let profiles = profiles.remove(&sku.sku).unwrap_or_default();
        let prices = prices.remove(&sku.sku).unwrap_or_default();
        let dated = |price| Arc::new(Product { sku: sku.clone(), profiles: profiles.clone(), price });
        (sku.sku.clone(), prices.into_iter().map(dated).collect())
    });
    Ok(products.collect())
}
