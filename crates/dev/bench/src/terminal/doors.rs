//! The product's terminals: machines, tokens for them, and sessions that are open and quiet.

use std::{
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use testkit::Api;
use tokio::task::{JoinHandle, block_in_place, spawn_blocking};

use super::web::Ours;
use crate::machines::{Machines, launch, until};

/// A machine for each node.
const SKU: &str = "h200-sxm-baremetal-8g";
/// A gateway pings more rarely than this.
const ANSWER_EVERY: Duration = Duration::from_secs(5);

pub struct Doors {
    pub machines: Machines,
    address: String,
    /// One on each node.
    allocations: Vec<String>,
}

async fn set_policy(api: &Api, key: &str, value: Value) {
    api.put(&format!("/api/v1/platform/policies/{key}"), json!({ "value": value })).await.expect(200);
}

impl Doors {
    pub async fn start(nodes: u32) -> anyhow::Result<Self> {
        let machines = Machines::start(nodes).await?;
        let (api, project) = (machines.operator.api(), &machines.project);
        for limit in ["terminal_token_requests_per_minute", "websocket_attempts_per_minute"] {
            set_policy(api, &format!("rate_limit.{limit}"), json!(10_000_000)).await;
        }
        let mut allocations = Vec::new();
        for _ in 0..nodes {
            let (id, _) = launch(api, project, json!({ "sku": SKU })).await?;
            until(api, project, &id, "active").await?;
            allocations.push(id);
        }
        let address = machines.product.base.trim_start_matches("http://").to_owned();
        Ok(Self { machines, address, allocations })
    }

    /// Of a machine: they are taken in turn.
    fn allocation(&self, number: usize) -> &str {
        &self.allocations[number % self.allocations.len()]
    }

    /// The text of a token.
    pub async fn mint(&self, number: usize, body: Value) -> anyhow::Result<String> {
        let path = self.machines.path(&format!("/{}/terminal-token", self.allocation(number)));
        let answer = self.machines.operator.api().post(&path, body).await;
        anyhow::ensure!(answer.status == 201, "no token: {}", answer.text);
        answer.body["token"].as_str().map(str::to_owned).context("an answer without a token")
    }

    /// What is recorded of sessions that begin from now on.
    pub async fn set_recording(&self, value: &str) {
        set_policy(self.machines.operator.api(), "terminal.recording", json!(value)).await;
    }

    pub fn attach(&self, number: usize, token: &str, received: u64) -> anyhow::Result<Ours> {
        block_in_place(|| Ours::attach(&self.address, self.allocation(number), token, received))
    }

    /// A new session.
    pub async fn open(&self, number: usize) -> anyhow::Result<Ours> {
        let token = self.mint(number, json!({})).await?;
        self.attach(number, &token, 0)
    }

    /// New sessions, in turn on all machines, that are open and quiet.
    pub async fn open_idle(&self, count: u32) -> anyhow::Result<Idle> {
        let mut sessions = Vec::new();
        for number in 0..count {
            sessions.push(self.open(number as usize).await?);
        }
        Ok(Idle::start(sessions))
    }
}

/// Sessions in which nothing happens. Their clients answer pings, as any client does.
pub struct Idle {
    stop: Sender<()>,
    kept: JoinHandle<anyhow::Result<()>>,
}

impl Idle {
    fn start(mut sessions: Vec<Ours>) -> Self {
        let (stop, stopped) = channel();
        let kept = spawn_blocking(move || {
            while stopped.recv_timeout(ANSWER_EVERY) == Err(RecvTimeoutError::Timeout) {
                sessions.iter_mut().try_for_each(Ours::answer_pings)?;
            }
            sessions.into_iter().try_for_each(Ours::exit)
        });
        Self { stop, kept }
    }

    /// Ends their shells.
    pub async fn end(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.kept.await?.map_err(|error| anyhow!("an idle session was lost: {error:#}"))
    }
}
