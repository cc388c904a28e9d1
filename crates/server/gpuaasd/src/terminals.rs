//! Terminals, as they are wired: their endpoints, and the gateway where the role is served.

use axum::Router;
use endpoint::{Endpoint, Services};
use fleet::api::{Fleet, Tunnels};
use identity::api::Policies;
use pg::Wake;
use terminal::{
    RecordingStorage, Terminals,
    gateway::{Gateway, Settings},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{config::Config, roles::Role};

pub struct TerminalParts {
    terminals: Terminals,
    /// When terminals are served here.
    tunnels: Option<Tunnels>,
}

impl TerminalParts {
    pub fn new(config: &Config, fleet: Fleet, policies: Policies, recordings: RecordingStorage) -> Self {
        let url = config.node_gateway.tunnel_url.as_str().trim_end_matches('/');
        let is_served = config.roles.contains(&Role::TerminalGateway);
        let tunnels = is_served.then(|| Tunnels::new(fleet.db().clone(), url.to_owned()));
        Self { terminals: Terminals::new(fleet, policies, recordings), tunnels }
    }

    pub fn endpoints(&self) -> Vec<Endpoint> {
        terminal::endpoints(&self.terminals)
    }

    /// Where nodes that dial this process are registered.
    pub fn tunnels(&self) -> Option<&Tunnels> {
        self.tunnels.as_ref()
    }

    /// The WebSockets, on the public listener.
    pub fn router(&self, config: &Config, services: &Services, stop: &CancellationToken) -> Router {
        let Some(tunnels) = &self.tunnels else { return Router::new() };
        let settings = Settings {
            origins: vec![config.server.public_url.origin().ascii_serialization()],
            max_connections: config.terminal_gateway.max_connections,
            stop: stop.clone(),
        };
        Gateway::new(self.terminals.clone(), services.clone(), tunnels.clone(), settings).router()
    }

    /// Upkeep, where terminals are served.
    pub fn start(&self, wake: &Wake, tasks: &TaskTracker, cancel: &CancellationToken) {
        let Some(tunnels) = &self.tunnels else { return };
        let ends = terminal::jobs::run_ends(self.terminals.clone(), tunnels.clone(), wake.clone());
        tasks.spawn(cancel.clone().run_until_cancelled_owned(ends));
        let tidy = terminal::jobs::run_tidy(self.terminals.clone());
        tasks.spawn(cancel.clone().run_until_cancelled_owned(tidy));
        let recordings = terminal::jobs::run_recordings(self.terminals.clone());
        tasks.spawn(cancel.clone().run_until_cancelled_owned(recordings));
    }
}
