//! Who the server runs as. PostgreSQL refuses to be root, so a root program picks an unprivileged user.

use std::os::unix::fs::lchown;
use std::path::Path;

use nix::unistd::{User, geteuid};

use super::error::BuiltinError;

/// Tried in this order when nothing is configured. `nobody` is shared with other services, hence last.
const DEFAULT_USERS: [&str; 3] = ["postgres", "gpuaas", "nobody"];

/// The identity of the server's processes.
#[derive(Debug, Clone)]
pub(super) enum RunAs {
    /// This program's own, unprivileged identity.
    Current { uid: u32 },
    /// Another user, possible only because this program is root.
    User { name: String, uid: u32, gid: u32 },
}

impl RunAs {
    /// Decides from who we are and what is configured.
    pub(super) fn resolve(wanted: Option<&str>) -> Result<RunAs, BuiltinError> {
        let me = geteuid();
        if me.is_root() {
            return match wanted {
                Some(name) => lookup(name)?.ok_or_else(|| BuiltinError::NoUser { name: name.to_owned() }),
                None => default_user(),
            };
        }
        let Some(name) = wanted else { return Ok(RunAs::Current { uid: me.as_raw() }) };
        match User::from_name(name) {
            Ok(Some(user)) if user.uid == me => Ok(RunAs::Current { uid: me.as_raw() }),
            _ => Err(BuiltinError::BadUser {
                name: name.to_owned(),
                why: "only root can start it as another user; leave the user out to run it as yourself",
            }),
        }
    }

    pub(super) fn uid(&self) -> u32 {
        match self {
            RunAs::Current { uid } | RunAs::User { uid, .. } => *uid,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            RunAs::Current { uid } => format!("#{uid}"),
            RunAs::User { name, .. } => name.clone(),
        }
    }

    /// Makes this user the owner of a path we have just created.
    pub(super) fn chown(&self, path: &Path) -> Result<(), BuiltinError> {
        match self {
            RunAs::Current { .. } => Ok(()),
            RunAs::User { uid, gid, .. } => {
                lchown(path, Some(*uid), Some(*gid)).map_err(BuiltinError::io("change the owner of", path))
            }
        }
    }
}

fn default_user() -> Result<RunAs, BuiltinError> {
    for name in DEFAULT_USERS {
        if let Some(found) = lookup(name)? {
            if name == "nobody" {
                tracing::warn!(
                    "no user `postgres`: the built-in server runs as `nobody`, which other services may share"
                );
            }
            return Ok(found);
        }
    }
    Err(BuiltinError::NoUser { name: DEFAULT_USERS[0].to_owned() })
}

fn lookup(name: &str) -> Result<Option<RunAs>, BuiltinError> {
    let user = User::from_name(name).map_err(|errno| BuiltinError::Io {
        what: "look up the user of the built-in server in",
        path: "/etc/passwd".into(),
        source: errno.into(),
    })?;
    match user {
        Some(user) if user.uid.is_root() => {
            Err(BuiltinError::BadUser { name: name.to_owned(), why: "it is root, which PostgreSQL refuses" })
        }
        Some(user) => {
            Ok(Some(RunAs::User { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_accepted_as_the_server_user() {
        let error = RunAs::resolve(Some("root")).map(|user| user.uid());
        assert!(error.is_err() || !geteuid().is_root());
        assert!(matches!(lookup("root"), Err(BuiltinError::BadUser { .. })));
    }
}
