//! Where organizations, projects and invitations live.

use std::{hash::Hash, sync::Arc};

use async_trait::async_trait;
use endpoint::{Directory, OrgFacts, ProjectFacts};
use kernel::{
    CorrelationId, Failure,
    ids::{InvitationId, OrgId, ProjectId},
};
use pg::{Db, Origin, Permit, ReadTx};
use quick_cache::sync::Cache;

use super::{principal::Dated, store};

const MOST_REMEMBERED: usize = 20_000;

struct Inner {
    db: Db,
    orgs: Cache<OrgId, Arc<Dated<OrgFacts>>>,
    projects: Cache<ProjectId, Arc<Dated<ProjectFacts>>>,
}

/// Answers from memory for up to three seconds. What does not exist is never remembered, so that a thing
/// can be used as soon as it was made. Cheap to clone; making one touches no database.
#[derive(Clone)]
pub struct Places(Arc<Inner>);

impl Places {
    pub fn new(db: Db) -> Self {
        let inner =
            Arc::new(Inner { db, orgs: Cache::new(MOST_REMEMBERED), projects: Cache::new(MOST_REMEMBERED) });
        let listener = Arc::downgrade(&inner);
        inner.db.on_invalidate(move |key| {
            let Some(inner) = listener.upgrade() else { return };
            // Suspending an organization changes what is known of its projects.
            if key == "*" || key.starts_with("org:") {
                inner.orgs.clear();
                inner.projects.clear();
            } else if let Some(id) = key.strip_prefix("project:") {
                match uuid::Uuid::try_parse(id) {
                    Ok(id) => drop(inner.projects.remove(&ProjectId::from(id))),
                    Err(_) => inner.projects.clear(),
                }
            }
        });
        Self(inner)
    }

    async fn read(&self) -> Result<ReadTx, Failure> {
        let origin = Origin::internal(CorrelationId(self.0.db.ambient().uuid()));
        Ok(self.0.db.read(&Permit::system("where a thing in a path lives", origin)).await?)
    }

    fn known<K: Eq + Hash, V: Copy>(&self, cache: &Cache<K, Arc<Dated<V>>>, key: &K) -> Option<V> {
        let now = self.0.db.ambient().now();
        cache.get(key).filter(|dated| dated.is_fresh(now)).map(|dated| dated.value)
    }
}

#[async_trait]
impl Directory for Places {
    async fn org(&self, id: OrgId) -> Result<Option<OrgFacts>, Failure> {
        if let Some(facts) = self.known(&self.0.orgs, &id) {
            return Ok(Some(facts));
        }
        let at = self.0.db.ambient().now();
        let suspended = store::org_suspended(self.read().await?.conn(), id.uuid()).await?;
        let Some(facts) = suspended.map(|suspended| OrgFacts { suspended }) else { return Ok(None) };
        self.0.orgs.insert(id, Arc::new(Dated { at, value: facts }));
        Ok(Some(facts))
    }

    async fn project(&self, id: ProjectId) -> Result<Option<ProjectFacts>, Failure> {
        if let Some(facts) = self.known(&self.0.projects, &id) {
            return Ok(Some(facts));
        }
        let at = self.0.db.ambient().now();
        let Some(place) = store::project_place(self.read().await?.conn(), id.uuid()).await? else {
            return Ok(None);
        };
        let facts = ProjectFacts { org: OrgId::from(place.org_id), suspended: place.suspended };
        self.0.projects.insert(id, Arc::new(Dated { at, value: facts }));
        Ok(Some(facts))
    }

    async fn invitation(&self, id: InvitationId) -> Result<Option<OrgId>, Failure> {
        let org = store::pending_invitation_org(self.read().await?.conn(), id.uuid()).await?;
        Ok(org.map(OrgId::from))
    }
}
