//! Makes simulated nodes through the public API, and adds them to a list for `run`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use node_agent::drivers::simulated::Profile;
use sdk::{FixedToken, types};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::state::replace;

/// Requests that are under way at once.
const AT_ONCE: usize = 16;

#[derive(Clone, Debug)]
pub struct Options {
    pub server: String,
    /// Holds an access token of somebody who may manage the fleet.
    pub token_file: PathBuf,
    pub count: u32,
    /// The nodes are of these kinds, in turn.
    pub profiles: Vec<Profile>,
    /// The names are `<prefix>-<profile>-<number>`.
    pub prefix: String,
    /// The first number.
    pub first: u32,
    pub region: String,
    pub join: PathBuf,
}

/// Makes the nodes; their tokens go into the list and nowhere else. Gives how many it made. What was made before
/// something failed is in the list.
pub async fn create(options: Options) -> anyhow::Result<u32> {
    if options.profiles.is_empty() {
        bail!("at least one profile is needed");
    }
    let mut list = read_list(&options.join)?;
    let token = std::fs::read_to_string(&options.token_file)
        .with_context(|| format!("cannot read the token in {}", options.token_file.display()))?;
    let http = sdk::http_client(concat!("gpuaas-node-sim/", env!("CARGO_PKG_VERSION")))?;
    let client = Arc::new(sdk::connect(&options.server, http, Arc::new(FixedToken::new(token.trim()))));
    let wanted = (options.first..).zip(options.profiles.iter().copied().cycle()).take(options.count as usize);
    let (mut wanted, mut made, mut failed) = (wanted.peekable(), 0, None);
    let mut under_way = JoinSet::new();
    while wanted.peek().is_some() || !under_way.is_empty() {
        while failed.is_none() && under_way.len() < AT_ONCE {
            let Some((number, profile)) = wanted.next() else { break };
            let hostname = format!("{}-{profile}-{number}", options.prefix);
            under_way.spawn(one(client.clone(), hostname, options.region.clone(), profile));
        }
        match under_way.join_next().await {
            None => break,
            Some(Ok(Ok(entry))) => {
                made += 1;
                list.push(entry);
            }
            Some(Ok(Err(error))) => failed = failed.or(Some(error)),
            Some(Err(error)) => failed = failed.or(Some(error.into())),
        }
    }
    let text = serde_json::to_vec_pretty(&list)?;
    replace(&options.join, &text).with_context(|| format!("cannot write {}", options.join.display()))?;
    failed.map_or(Ok(made), |error| Err(error.context(format!("{made} nodes were made, then one was not"))))
}

async fn one(
    client: Arc<sdk::Client>,
    hostname: String,
    region: String,
    profile: Profile,
) -> anyhow::Result<Value> {
    let body = types::NodeCreate {
        hostname: hostname.clone(),
        labels: [("simulated".to_owned(), "true".to_owned())].into_iter().collect(),
        pool_id: None,
        region,
        serves: None,
        simulated: true,
        sku_eligibility: Vec::new(),
        ssh_host: None,
        ssh_port: None,
    };
    let created = Box::pin(client.node_create(&body)).await.map_err(sdk::Error::from);
    let created = created.with_context(|| hostname.clone())?.into_inner();
    let types::NodeTokenIssued { join, token, .. } = created.bootstrap;
    Ok(json!({ "join": join, "token": token, "profile": profile.name() }))
}

/// What is in the list already; nothing when there is none.
fn read_list(path: &Path) -> anyhow::Result<Vec<Value>> {
    match std::fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("{} is not a list", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
