//! Nodes that do not exist, for development and demonstrations: made by the system, labelled as simulated, and
//! listed with their tokens in a private file for `gpuaas-node-sim`, which plays them.
//!
//! Off unless `fleet.simulated.nodes` says how many. A node gets a token when it has none that is good and no
//! certificate either: before it has enrolled, when its certificate has expired, and when nobody has heard of it
//! for a while after it enrolled (the answer may have been lost).

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use fleet::{
    Fleet,
    model::{
        node::{Node, NodeState},
        text::{Hostname, Labels, RegionCode},
        token::IssuedToken,
    },
    service::{nodes, pools, regions, tokens},
};
use kernel::{
    Code, CorrelationId, Cursor, Failure, PageQuery, Problem,
    ids::{NodeId, PoolId},
    secret::ShownOnce,
    text::{Name, Term},
};
use node_proto::contract::JoinInfo;
use pg::{Origin, Permit, WriteTx};
use serde::Serialize;

use crate::config::{Config, Simulated};

const REGION: &str = "local";
const POOL: &str = "simulated";
/// Until all nodes are at work, and from then on.
const LOOK_SOON: Duration = Duration::from_secs(2);
const LOOK_LATER: Duration = Duration::from_secs(30);
/// A token that ends sooner is replaced.
const TOKEN_LEFT: TimeDelta = TimeDelta::minutes(3);
/// A node that enrolled reports within this time, or its certificate never reached it.
const FIRST_REPORT: TimeDelta = TimeDelta::minutes(1);

/// One node of the list, as the simulator reads it. The state is for whoever looks at the file.
#[derive(Serialize)]
struct Listed {
    join: JoinInfo,
    token: Option<ShownOnce>,
    profile: String,
    state: NodeState,
}

struct Known {
    node: Node,
    certificate_expires_at: Option<DateTime<Utc>>,
}

pub struct SimulatedFleet {
    fleet: Fleet,
    wanted: Vec<(Hostname, String)>,
    file: PathBuf,
    /// Tokens that were not used yet, as far as is known.
    open: BTreeMap<NodeId, (ShownOnce, DateTime<Utc>)>,
    written: Vec<u8>,
}

impl SimulatedFleet {
    /// Nothing when the configuration asks for no nodes.
    pub fn new(config: &Config, fleet: Fleet) -> Result<Option<Self>, Problem> {
        let Simulated { nodes, profiles } = &config.fleet.simulated;
        if *nodes == 0 {
            return Ok(None);
        }
        let wanted: Result<Vec<_>, Problem> = (0..*nodes)
            .zip(profiles.iter().cycle())
            .map(|(n, profile)| named(n / profiles.len(), profile))
            .collect();
        let file = config.server.data_dir.join("simulated-fleet/join.json");
        Ok(Some(Self { fleet, wanted: wanted?, file, open: BTreeMap::new(), written: Vec::new() }))
    }

    /// Keeps the list up to date. Never ends.
    pub async fn run(mut self) {
        loop {
            let pause = match self.refresh().await {
                Ok(true) => LOOK_LATER,
                Ok(false) => LOOK_SOON,
                Err(failure) => {
                    tracing::warn!(error = ?failure, "the simulated nodes cannot be prepared; trying again");
                    LOOK_SOON * 2
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn write(&self, action: &'static str) -> Result<WriteTx, Failure> {
        Ok(self.fleet.db().write(self.permit(), action).await?)
    }

    fn permit(&self) -> Permit {
        let origin = Origin::internal(CorrelationId(self.fleet.db().ambient().uuid()));
        Permit::system("simulated nodes of this installation", origin)
    }

    /// Makes what is missing and writes the list. True when every node is at work.
    async fn refresh(&mut self) -> Result<bool, Failure> {
        let pool = self.place().await?;
        let mut there = self.nodes(pool).await?;
        let mut list = Vec::new();
        for (hostname, profile) in self.wanted.clone() {
            let node = match there.remove(hostname.as_str()) {
                Some(node) => node,
                None => self.create(pool, hostname).await?,
            };
            let state = node.node.state;
            if !is_played(state) {
                continue;
            }
            let token = self.token(&node, state).await?;
            let url = self.fleet.settings().node_url.clone();
            let join = self.fleet.trust().join_info(node.node.id, &node.node.hostname, &url).await?;
            list.push(Listed { join, token, profile, state });
        }
        let text = serde_json::to_vec_pretty(&list)?;
        if text != self.written {
            replace(&self.file, &text)?;
            self.written = text;
        }
        Ok(list.iter().all(|node| node.state == NodeState::Active))
    }

    /// The region and the pool of simulated nodes.
    async fn place(&self) -> Result<PoolId, Failure> {
        let region: RegionCode = checked(REGION)?;
        let mut tx = self.fleet.db().read(&self.permit()).await?;
        let known = regions::region_get(&mut tx, &region).await;
        let pools = pools::pool_list(&mut tx, Some(&region), &PageQuery::default()).await?;
        drop(tx);
        if let Err(failure) = known {
            if !matches!(&failure, Failure::Problem(problem) if problem.code == Code::NotFound) {
                return Err(failure);
            }
            let mut tx = self.write("region_create").await?;
            regions::region_create(&mut tx, region.clone(), checked::<Name>("This machine")?).await?;
            tx.commit(None).await?;
        }
        if let Some(pool) = pools.items.into_iter().find(|pool| pool.name == POOL) {
            return Ok(pool.id);
        }
        let mut tx = self.write("pool_create").await?;
        let text: Term = checked("Nodes that do not exist")?;
        let pool = pools::pool_create(&mut tx, region, checked(POOL)?, Some(text)).await?;
        tx.commit(None).await?;
        Ok(pool.id)
    }

    async fn nodes(&self, pool: PoolId) -> Result<BTreeMap<String, Known>, Failure> {
        let mut tx = self.fleet.db().read(&self.permit()).await?;
        let mut found = BTreeMap::new();
        let mut page = PageQuery::default();
        loop {
            let filter =
                nodes::NodeFilter { pool: Some(pool), simulated: Some(true), ..nodes::NodeFilter::default() };
            let part = nodes::node_list(&mut tx, filter, &page).await?;
            let last = part.items.last().map(|summary| summary.node.id);
            found.extend(part.items.into_iter().map(|summary| {
                let certificate_expires_at = summary.certificate_expires_at;
                (summary.node.hostname.clone(), Known { node: summary.node, certificate_expires_at })
            }));
            match last.filter(|_| part.next_cursor.is_some()) {
                Some(last) => page.cursor = Some(Cursor(last.uuid())),
                None => return Ok(found),
            }
        }
    }

    async fn create(&mut self, pool: PoolId, hostname: Hostname) -> Result<Known, Failure> {
        let labels: Labels = serde_json::from_value(serde_json::json!({ "simulated": "true" }))?;
        let mut tx = self.write("node_create").await?;
        let request = nodes::NodeRequest {
            hostname,
            region: checked(REGION)?,
            pool: Some(pool),
            labels,
            sku_eligibility: Vec::new(),
            serves: Default::default(),
            simulated: true,
            ssh: Default::default(),
        };
        let (node, token) = nodes::node_create(&self.fleet, &mut tx, request).await?;
        tx.commit(None).await?;
        self.token_remember(node.id, token);
        Ok(Known { node, certificate_expires_at: None })
    }

    fn token_remember(&mut self, node: NodeId, issued: IssuedToken) {
        self.open.insert(node, (issued.token, issued.expires_at));
    }

    /// A token for a node that cannot speak without one.
    async fn token(&mut self, node: &Known, state: NodeState) -> Result<Option<ShownOnce>, Failure> {
        let (id, now) = (node.node.id, self.fleet.db().ambient().now());
        if !needs_token(node, state, now) {
            self.open.remove(&id);
            return Ok(None);
        }
        let good = |(_, ends): &&(ShownOnce, DateTime<Utc>)| *ends - now > TOKEN_LEFT;
        if let Some((token, _)) = self.open.get(&id).filter(good) {
            return Ok(Some(token.clone()));
        }
        let issued = if state == NodeState::BootstrapIssued {
            let mut tx = self.write("node_bootstrap_token").await?;
            let issued = tokens::node_bootstrap_token(&self.fleet, &mut tx, id).await?;
            tx.commit(None).await?;
            issued
        } else {
            let mut tx = self.write("node_repair_token").await?;
            let issued = tokens::node_repair_token(&self.fleet, &mut tx, id).await?;
            tx.commit(None).await?;
            issued
        };
        let token = issued.token.clone();
        self.token_remember(id, issued);
        Ok(Some(token))
    }
}

fn needs_token(node: &Known, state: NodeState, now: DateTime<Utc>) -> bool {
    if state == NodeState::BootstrapIssued {
        return true;
    }
    match node.certificate_expires_at {
        Some(ends) => ends <= now,
        None => node.node.enrolled_at.is_some_and(|at| at + FIRST_REPORT < now),
    }
}

/// What an operator took out of service is left alone.
fn is_played(state: NodeState) -> bool {
    state == NodeState::BootstrapIssued || state.takes_tasks()
}

fn named(turn: usize, profile: &str) -> Result<(Hostname, String), Problem> {
    Ok((checked(&format!("sim-{profile}-{}", turn + 1))?, profile.to_owned()))
}

/// Text of ours that is checked like everybody's.
fn checked<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Problem> {
    serde_json::from_value(text.into()).map_err(|error| {
        Problem::new(Code::Unprocessable, format!("{text:?} cannot name a simulated node: {error}"))
    })
}

/// Replaces the file as a whole; it is closed to others, for there are tokens in it.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let next = path.with_extension("next");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&next, path)
}
