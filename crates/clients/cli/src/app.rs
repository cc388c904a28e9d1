//! State that every command uses.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    sync::Arc,
};

use kernel::Ambient;
use sdk::{Anonymous, Client};

use crate::{
    args::{Confirm, Global},
    config::{self, Config, DEFAULT_SERVER},
    credentials::Credentials,
    failure::{Failure, Result, local},
    output::{Output, View, note},
    session::{Origin, Session},
};

pub struct App {
    pub directory: PathBuf,
    pub config: Config,
    /// Server, organization and project as the command line says, without the context.
    pub given: Config,
    pub out: Output,
    pub server: String,
    pub org: Option<String>,
    pub project: Option<String>,
    pub http: sdk::reqwest::Client,
    pub ambient: Ambient,
    no_input: bool,
}

impl App {
    pub fn new(global: Global) -> Result<Self> {
        let directory = config::directory()?;
        let config = Config::load(&directory)?;
        let given = Config { server: global.server, org: global.org, project: global.project };
        let server = given.server.clone().or_else(|| config.server.clone());
        let server = server_address(server.as_deref().unwrap_or(DEFAULT_SERVER))?;
        let org = given.org.clone().or_else(|| config.org.clone());
        // A project belongs to an organization: with another organization, the context's project does not apply.
        let same_org = given.org.is_none() || given.org == config.org;
        let project = given.project.clone().or_else(|| config.project.clone().filter(|_| same_org));
        let ambient = Ambient::system();
        let view = View::of_terminal(global.wide, ambient.now());
        let http = sdk::http_client(concat!("gpuaas-cli/", env!("CARGO_PKG_VERSION")))?;
        Ok(Self {
            directory,
            config,
            given,
            out: Output::new(global.output, !global.no_headers, view),
            server,
            org,
            project,
            http,
            ambient,
            no_input: global.no_input,
        })
    }

    pub fn credentials(&self) -> Credentials {
        Credentials::at(&self.directory)
    }

    pub fn session(&self) -> Result<Session> {
        let (origin, credentials) = (Origin::of_environment()?, self.credentials());
        Ok(Session::new(self.server.clone(), origin, credentials, self.http.clone(), self.ambient.clone()))
    }

    /// A client with credentials. Called first, so that a missing sign-in is reported before any other error.
    pub async fn client(&self) -> Result<Client> {
        let session = self.session()?;
        session.current_token().await?;
        Ok(sdk::connect(&self.server, self.http.clone(), Arc::new(session)).with_wait_notice(waits))
    }

    pub fn anonymous(&self) -> Client {
        sdk::connect(&self.server, self.http.clone(), Arc::new(Anonymous))
    }

    /// Whether the program may prompt.
    pub fn may_ask(&self) -> bool {
        !self.no_input && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    pub fn no_input(&self) -> bool {
        self.no_input
    }

    /// Asks for confirmation; where the program cannot prompt, `--yes` is required.
    pub fn confirm(&self, confirm: &Confirm, what: &str) -> Result {
        if confirm.yes {
            return Ok(());
        }
        if !self.may_ask() {
            return Err(Failure::client(format!("confirmation is required: {what}")).suggest("Add --yes."));
        }
        eprint!("{what}? [y/N] ");
        let mut answer = String::new();
        std::io::stderr().flush().map_err(local("the terminal cannot be written"))?;
        std::io::stdin().read_line(&mut answer).map_err(local("the answer cannot be read"))?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::client("cancelled; nothing was changed")),
        }
    }
}

fn waits(pause: std::time::Duration) {
    note(&format!("The server limits the rate of requests: waiting {:.1} s.", pause.as_secs_f64()));
}

/// The canonical form of an address: credentials are stored under it.
fn server_address(text: &str) -> Result<String> {
    let wrong = |why: &str| {
        Err(Failure::client(format!("{text:?} is not a valid server address: {why}"))
            .suggest("Use an address such as https://gpuaas.example.org."))
    };
    let Ok(url) = sdk::reqwest::Url::parse(text) else { return wrong("it is not a URL") };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return wrong("it must start with https:// or http://");
    }
    if url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some()
    {
        return wrong("it must not contain a user, a query or a fragment");
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_made_uniform_and_odd_ones_refused() {
        assert_eq!(server_address("HTTP://Example.org:8080/").unwrap(), "http://example.org:8080");
        for text in ["example.org", "ftp://example.org", "https://u:p@example.org", "https://example.org?x=1"]
        {
            assert!(server_address(text).is_err(), "{text}");
        }
    }
}
