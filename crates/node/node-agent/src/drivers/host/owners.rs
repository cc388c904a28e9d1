//! Which account is an owner's, for those who only look.

use std::path::{Path, PathBuf};

use node_proto::catalog::AccountSpec;

use super::{check, database, registry::Registry};
use crate::{config::Roots, drivers::Done};

pub struct OwnerAccounts {
    root: PathBuf,
    registry: Registry,
}

impl OwnerAccounts {
    pub fn new(roots: &Roots, state_dir: &Path) -> Self {
        Self { root: roots.root.clone(), registry: Registry::new(state_dir) }
    }

    /// `None` when the owner has no account, when it is being removed, and when the machine's account of that name is not the
    /// one that was made: whoever runs something as it would run it as somebody else.
    pub fn find(&self, owner: &str) -> Done<Option<AccountSpec>> {
        check::owner(owner)?;
        let found = self.registry.all()?.into_iter().find(|record| record.owner == owner);
        let Some(record) = found.filter(|record| !record.removing) else { return Ok(None) };
        let account = AccountSpec { username: record.username, uid: record.uid, gid: record.gid };
        check::account(&account)?;
        // The first line of a name counts.
        let mut entries = database::accounts(&self.root)?.into_iter();
        let entry = entries.find(|entry| entry.name == account.username);
        let is_as_made = entry.is_some_and(|entry| (entry.uid, entry.gid) == (account.uid, account.gid));
        Ok(is_as_made.then_some(account))
    }
}
