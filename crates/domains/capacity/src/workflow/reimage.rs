//! Installing a machine anew between tenants.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Ambient, Failure, ids::NodeId};

pub use crate::model::placement::Installs;

/// How far an installation has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reimaging {
    UnderWay,
    Done,
    Failed(String),
}

/// Whoever can install a machine anew. Both calls bear repetition: the key names the one installation that is meant.
#[async_trait]
pub trait Reimager: Send + Sync {
    /// Known without asking anybody: launches are refused by it.
    fn installs(&self) -> Installs;
    async fn begin(&self, node: NodeId, key: &str) -> Result<(), Failure>;
    async fn reimage_poll(&self, node: NodeId, key: &str) -> Result<Reimaging, Failure>;
}

/// For fleets without a provisioner: machines that do not exist are installed anew in no time, and real ones not at
/// all, which is said and not pretended.
pub struct NoProvisioner {
    simulated: SimulatedReimager,
    db: pg::Db,
}

impl NoProvisioner {
    pub fn new(db: pg::Db) -> Self {
        Self { simulated: SimulatedReimager::new(db.ambient().clone(), TimeDelta::zero()), db }
    }

    async fn is_simulated(&self, node: NodeId) -> Result<bool, Failure> {
        let origin = pg::Origin::internal(kernel::CorrelationId(self.db.ambient().uuid()));
        let permit = pg::Permit::system("who can install a node anew", origin);
        fleet::api::node_is_simulated(self.db.read(&permit).await?.conn(), node).await
    }
}

#[async_trait]
impl Reimager for NoProvisioner {
    fn installs(&self) -> Installs {
        Installs::Simulated
    }

    async fn begin(&self, node: NodeId, key: &str) -> Result<(), Failure> {
        self.simulated.begin(node, key).await
    }

    async fn reimage_poll(&self, node: NodeId, key: &str) -> Result<Reimaging, Failure> {
        if self.is_simulated(node).await? {
            return self.simulated.reimage_poll(node, key).await;
        }
        let text = "no provisioner is configured that can reinstall this machine: install it manually, then force the cleanup";
        Ok(Reimaging::Failed(text.to_owned()))
    }
}

/// So many installations are remembered; the oldest are forgotten first.
const REMEMBERED: usize = 10_000;

/// For machines that do not exist: nothing is installed, after as much time as was said. Cheap to clone; all clones
/// share what they remember.
#[derive(Clone)]
pub struct SimulatedReimager {
    ambient: Ambient,
    takes: TimeDelta,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Default)]
struct Memory {
    begun: BTreeMap<(NodeId, String), Begun>,
    order: VecDeque<(NodeId, String)>,
    to_fail: u32,
}

#[derive(Clone, Copy)]
struct Begun {
    at: DateTime<Utc>,
    fails: bool,
}

impl SimulatedReimager {
    pub fn new(ambient: Ambient, takes: TimeDelta) -> Self {
        Self { ambient, takes, memory: Arc::default() }
    }

    /// The next installations that begin end badly.
    pub fn fail_next(&self, count: u32) {
        self.lock().to_fail = count;
    }

    /// Which installations were begun, oldest first.
    pub fn keys(&self) -> Vec<String> {
        self.lock().order.iter().map(|(_, key)| key.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[async_trait]
impl Reimager for SimulatedReimager {
    fn installs(&self) -> Installs {
        Installs::Every
    }

    async fn begin(&self, node: NodeId, key: &str) -> Result<(), Failure> {
        let at = self.ambient.now();
        let mut memory = self.lock();
        let installation = (node, key.to_owned());
        if memory.begun.contains_key(&installation) {
            return Ok(());
        }
        let fails = memory.to_fail > 0;
        memory.to_fail = memory.to_fail.saturating_sub(1);
        memory.order.push_back(installation.clone());
        memory.begun.insert(installation, Begun { at, fails });
        if memory.order.len() > REMEMBERED
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.begun.remove(&oldest);
        }
        Ok(())
    }

    async fn reimage_poll(&self, node: NodeId, key: &str) -> Result<Reimaging, Failure> {
        let begun = self.lock().begun.get(&(node, key.to_owned())).copied();
        Ok(match begun {
            None => Reimaging::Failed("unknown installation".to_owned()),
            Some(Begun { at, .. }) if self.ambient.now() < at + self.takes => Reimaging::UnderWay,
            Some(Begun { fails: true, .. }) => {
                Reimaging::Failed("the simulated installation failed as configured".to_owned())
            }
            Some(Begun { fails: false, .. }) => Reimaging::Done,
        })
    }
}
