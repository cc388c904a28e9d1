//! `gpuaas ssh-keys`.

use clap::Subcommand;
use sdk::types;

use super::read_input;
use crate::{
    app::App,
    args::Limit,
    failure::{Failure, Result},
    output::{Columns, note},
    resources::{find, kinds},
};

#[derive(Subcommand)]
pub enum Command {
    /// List your SSH public keys.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a key.
    #[command(alias = "get")]
    Show {
        /// Key, by name, fingerprint or id.
        key: String,
    },
    /// Add a public key.
    #[command(alias = "add")]
    Create {
        /// The file with the public key, such as ~/.ssh/id_ed25519.pub; `-` for standard input.
        file: String,
        /// Display name; defaults to the key's comment.
        #[arg(long)]
        name: Option<String>,
    },
    /// Delete a key. Machines lose it within seconds.
    #[command(alias = "remove")]
    Delete {
        /// Key, by name, fingerprint or id.
        key: String,
    },
}

const COLUMNS: Columns = &[
    ("NAME", "name"),
    ("TYPE", "key_type"),
    ("CREATED", "created_at"),
    ("ID", "id"),
    ("FINGERPRINT", "fingerprint"),
];

pub async fn run(app: &App, command: Command) -> Result {
    match command {
        Command::List { limit } => {
            let client = app.client().await?;
            let keys: Vec<types::SshKey> =
                pages!(limit.get(), |page| client.ssh_key_list(page.cursor(), page.size()))?;
            app.out.list(&keys, COLUMNS)
        }
        Command::Show { key } => {
            let client = app.client().await?;
            let id = find(&client, &kinds::SSH_KEY, &[], &key).await?;
            app.out.item(&send!(client.ssh_key_get(&id)), COLUMNS)
        }
        Command::Create { file, name } => {
            let text = read_input(&file)?;
            let (public_key, name) = checked(&text, name)?;
            let body = types::SshKeyCreate { name, public_key: public_key.to_owned() };
            let client = app.client().await?;
            app.out.item(&send!(client.ssh_key_create(&body)), COLUMNS)
        }
        Command::Delete { key } => {
            let client = app.client().await?;
            let id = find(&client, &kinds::SSH_KEY, &[], &key).await?;
            send!(client.ssh_key_delete(&id));
            note(&format!("Deleted the key {key}."));
            Ok(())
        }
    }
}

/// The text of a public key. A private key never leaves the machine.
pub fn public(text: &str) -> Result<&str> {
    if text.contains("PRIVATE KEY") {
        return Err(Failure::client("this is a private key")
            .suggest("Give the public key, whose file name ends in .pub."));
    }
    Ok(text.trim())
}

/// The key and its name.
fn checked(text: &str, name: Option<String>) -> Result<(&str, String)> {
    let key = public(text)?;
    let comment =
        key.splitn(3, char::is_whitespace).nth(2).map(str::trim).filter(|comment| !comment.is_empty());
    match name.as_deref().or(comment) {
        Some(name) => Ok((key, name.to_owned())),
        None => Err(Failure::client("the key has no comment to use as its name").suggest("Give --name.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_names_the_key_unless_a_name_is_given() {
        assert_eq!(
            checked("ssh-ed25519 AAAA me@home\n", None).unwrap(),
            ("ssh-ed25519 AAAA me@home", "me@home".to_owned())
        );
        assert_eq!(checked("ssh-ed25519 AAAA me", Some("x".to_owned())).unwrap().1, "x");
        assert!(checked("ssh-ed25519 AAAA", None).is_err());
    }

    #[test]
    fn a_private_key_is_refused_before_it_is_sent() {
        assert!(checked("-----BEGIN OPENSSH PRIVATE KEY-----", Some("x".to_owned())).is_err());
    }
}
