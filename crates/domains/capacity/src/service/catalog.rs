//! Products as requests see them, cached.

use pg::Db;

/// Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub struct Catalog(Db);

impl Catalog {
    pub fn new(db: &Db) -> Self {
        Self(db.clone())
    }
}
