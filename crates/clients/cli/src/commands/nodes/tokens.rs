//! New nodes, and the tokens with which machines enrol: shown once, or written to a file that only its owner reads.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    num::NonZeroU16,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use clap::Args as ClapArgs;
use sdk::{Client, types};
use serde_json::{Value, json};

use super::list::parse_labels;
use crate::{
    app::App,
    commands::field,
    failure::{Failure, Result, local},
    output::note,
    resolve,
};

#[derive(ClapArgs)]
pub struct Place {
    /// Write the token to this new file, readable by you only, instead of printing it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub struct Create {
    /// Host name of the machine; it must enrol with the same name.
    hostname: String,
    /// Region of the machine, by code.
    #[arg(long)]
    region: String,
    /// Pool to assign the node to, by name or id.
    #[arg(long)]
    pool: Option<String>,
    /// Label to set, as key=value. Can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Product that the node may serve; by default every product that its slots match. Can be repeated.
    #[arg(long)]
    sku: Vec<String>,
    /// What the node is sold as: any product that its slots match, or only the whole machine with its installed drivers.
    #[arg(long, value_parser = ["any", "baremetal"])]
    serves: Option<String>,
    /// Host name or address at which users reach the machine by SSH, if it is not the host name.
    #[arg(long, value_name = "HOST")]
    ssh_host: Option<String>,
    /// Port at which users reach the machine by SSH.
    #[arg(long, value_name = "PORT")]
    ssh_port: Option<NonZeroU16>,
    /// Create a simulated node, for tests and demonstrations.
    #[arg(long)]
    simulated: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(ClapArgs)]
pub struct Another {
    /// Node, by host name or id.
    node: String,
    #[command(flatten)]
    place: Place,
}

pub async fn create(app: &App, client: &Client, create: Create) -> Result {
    let pool_id = match &create.pool {
        Some(pool) => Some(resolve::pool(client, pool, Some(&create.region)).await?),
        None => None,
    };
    let body = types::NodeCreate {
        hostname: create.hostname.clone(),
        region: create.region.clone(),
        pool_id,
        labels: parse_labels(&create.label)?,
        sku_eligibility: create.sku,
        serves: create.serves.map(|serves| field("serves", serves)).transpose()?,
        simulated: create.simulated,
        ssh_host: create.ssh_host,
        ssh_port: create.ssh_port,
    };
    let file = TokenFile::reserve(create.place.token_file)?;
    let made = send!(client.node_create(&body));
    show(app, json!(made), "/bootstrap", file)
}

pub async fn bootstrap(app: &App, client: &Client, another: Another) -> Result {
    let node = resolve::node(client, &another.node).await?;
    let file = TokenFile::reserve(another.place.token_file)?;
    show(app, json!(send!(client.node_bootstrap_token(&node))), "", file)
}

pub async fn repair(app: &App, client: &Client, another: Another) -> Result {
    let node = resolve::node(client, &another.node).await?;
    let file = TokenFile::reserve(another.place.token_file)?;
    show(app, json!(send!(client.node_repair_token(&node))), "", file)
}

/// Prints a response whose token is at `place`, and the command to run on the machine.
fn show(app: &App, mut answer: Value, place: &str, file: Option<TokenFile>) -> Result {
    let nothing = || Failure::client("the response contains no token");
    let issued = answer.pointer_mut(place).and_then(Value::as_object_mut).ok_or_else(nothing)?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut command = text(issued.get("install_command"));
    match file {
        Some(file) => {
            let Some(Value::String(token)) = issued.remove("token") else { return Err(nothing()) };
            let path = file.fill(&token)?;
            command = format!("{command} < {}", quoted(&path));
            note(&format!("The token is in {path}. Copy the file to the machine and run there:"));
        }
        None => note(
            "Store the token safely: it is shown only once. Run this on the machine; it prompts for the token:",
        ),
    }
    note(&format!("  {command}"));
    for line in warnings(answer.pointer(place).unwrap_or(&Value::Null)) {
        note(&line);
    }
    let issued = answer.pointer(place).unwrap_or(&Value::Null);
    let lines = [
        ("id", text(issued.pointer("/join/node_id"))),
        ("hostname", text(issued.pointer("/join/hostname"))),
        ("token", text(issued.get("token"))),
        ("expires_at", text(issued.get("expires_at"))),
    ];
    app.out.page(&answer, &lines, "")
}

/// What keeps the machine from joining, each with the fix.
fn warnings(issued: &Value) -> Vec<String> {
    let text = |warning: &Value, name: &str| warning[name].as_str().unwrap_or_default().to_owned();
    let line =
        |warning: &Value| format!("Warning: {}\n  {}", text(warning, "message"), text(warning, "suggestion"));
    issued["warnings"].as_array().into_iter().flatten().map(line).collect()
}

fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// A file created before the token is requested, so that no token is lost because the file cannot be written.
struct TokenFile {
    path: PathBuf,
    file: fs::File,
    filled: bool,
}

impl TokenFile {
    fn reserve(path: Option<PathBuf>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => Ok(Some(Self { path, file, filled: false })),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(Failure::client(format!("{} already exists", path.display()))
                    .suggest("Name a file that does not exist yet."))
            }
            Err(error) => Err(local(format!("{} cannot be written", path.display()))(error)),
        }
    }

    fn fill(mut self, token: &str) -> Result<String> {
        let written = writeln!(self.file, "{token}").and_then(|()| self.file.sync_all());
        written.map_err(local(format!("{} cannot be written", self.path.display())))?;
        self.filled = true;
        Ok(self.path.display().to_string())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if !self.filled {
            // A leftover empty file is harmless: not worth an error.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_file_is_private_and_new_and_does_not_stay_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let reserve = || TokenFile::reserve(Some(path.clone()));
        drop(reserve().unwrap());
        assert!(!path.exists(), "nothing is left behind when no token was made");
        reserve().unwrap().unwrap().fill("secret").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(reserve().is_err(), "what is there is not overwritten");
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret\n");
    }

    #[test]
    fn odd_paths_are_quoted_for_the_shell() {
        assert_eq!(quoted("/tmp/a-1.token"), "/tmp/a-1.token");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
