//! `gpuaas context`.

use clap::Subcommand;
use serde_json::json;

use crate::{
    app::App,
    config::{Config, config_path},
    failure::{Failure, Result},
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// Show the current context.
    Show,
    /// Store --server, --org and --project of this command as defaults.
    Use {
        /// Remove the organization and the project from the context.
        #[arg(long)]
        clear: bool,
    },
}

const COLUMNS: Columns = &[("SERVER", "server"), ("ORG", "org"), ("PROJECT", "project"), ("FILE", "file")];

pub async fn run(app: &App, command: Command) -> Result {
    match command {
        Command::Show => {
            let file = config_path(&app.directory).display().to_string();
            let shown = json!({ "server": app.server, "org": app.org, "project": app.project, "file": file });
            app.out.item(&shown, COLUMNS)
        }
        Command::Use { clear } => choose(app, clear).await,
    }
}

/// Names are looked up first, so that a context names what exists.
async fn choose(app: &App, clear: bool) -> Result {
    let given = &app.given;
    if given.server.is_none() && given.org.is_none() && given.project.is_none() && !clear {
        return Err(Failure::client("nothing to store").suggest("Give --server, --org or --project."));
    }
    let mut config = if clear {
        Config { server: app.config.server.clone(), ..Config::default() }
    } else {
        app.config.clone()
    };
    if given.server.is_some() && config.server.as_ref() != Some(&app.server) {
        // Organization and project belong to the previous server.
        config = Config { server: Some(app.server.clone()), org: None, project: None };
    }
    if let Some(org) = &given.org {
        let id = resolve::org_named(&app.client().await?, org).await?;
        if config.org.as_ref() != Some(&id) {
            config.project = None;
        }
        config.org = Some(id);
    }
    if let Some(project) = &given.project {
        config.project = Some(resolve::project_named(app, &app.client().await?, project).await?);
    }
    config.save(&app.directory)?;
    note(&format!("Written to {}.", config_path(&app.directory).display()));
    Ok(())
}
