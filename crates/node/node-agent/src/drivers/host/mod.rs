//! Users of a whole machine, for real.
//!
//! **Whose account it is** is held twice: a record in the agent's state directory, written before the account is
//! made, and the mark `gpuaas <owner>` in the account's description. An account, uid or group that has neither is
//! somebody else's and is refused, never changed.
//!
//! **Provisioning** can be asked again at any point: each step looks at what is there first.
//!
//! **Deprovisioning** locks first, so that nothing new begins; then ends processes, then removes schedules, files
//! and the account, and last looks for anything that is left, which is an error that names it. The record goes
//! only after that look, so a removal that was interrupted can always be asked again, and is never forgotten.

mod accounts;
pub(super) mod check;
mod database;
mod device_groups;
mod host_keys;
mod keys;
mod owners;
mod processes;
mod registry;
mod scrub;
mod tree;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use node_proto::{
    catalog::{
        AccountSpec, DeprovisionUserInput, DeprovisionedUser, InstallAuthorizedKeysInput, InstalledKeys,
        ProvisionUserInput, ProvisionedUser,
    },
    contract::FailureCode,
};

pub use self::owners::OwnerAccounts;
use self::{
    registry::{Record, Registry},
    tree::{Ids, Sweep},
};
use super::{Done, DriverError, HostDriver, Steps};
use crate::config::{Programs, Roots};

const PROCESSES_LIMIT: Duration = Duration::from_secs(45);
const LATE_PROCESSES_LIMIT: Duration = Duration::from_secs(10);
const FILES_LIMIT: Duration = Duration::from_secs(180);
const VERIFY_LIMIT: Duration = Duration::from_secs(30);

pub struct RealHost {
    roots: Roots,
    programs: Programs,
    registry: Registry,
    /// One change of accounts at a time: the tools lock the account files and would only wait for one another, and
    /// what is read of an account must still be so when it is changed.
    accounts: Mutex<()>,
}

impl RealHost {
    pub fn new(roots: Roots, programs: Programs, state_dir: &Path) -> Self {
        Self { roots, programs, registry: Registry::new(state_dir), accounts: Mutex::new(()) }
    }

    /// Makes the block in the account's file what it should be, and remembers what may be in it.
    fn put_keys(&self, mut record: Record, home: impl std::os::fd::AsFd, keys: Vec<String>) -> Done<bool> {
        let previous = record.keys.clone();
        record.keys.extend(keys.iter().cloned());
        record.keys.dedup();
        self.registry.write(&record)?;
        let changed = keys::install(home, (record.uid, record.gid), &record.owner, &keys, &previous)?;
        record.keys = keys;
        self.registry.write(&record)?;
        Ok(changed)
    }

    /// Installs those of the keys that `may_stay` next to what is installed, and nothing else.
    fn replace_keys(
        &self,
        input: &InstallAuthorizedKeysInput,
        steps: &dyn Steps,
        may_stay: fn(&[String], &str) -> bool,
    ) -> Done<InstalledKeys> {
        let (account, owner) = (&input.account, input.owner.as_str());
        check::account(account)?;
        check::owner(owner)?;
        let mut keys = check::keys(&input.authorized_keys)?;
        steps.begin("keys")?;
        // A removal that begins meanwhile must not be written over.
        let _guard = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.account_find(account, owner)?;
        let record = found.record.unwrap_or_else(|| Record::new(account, owner));
        if found.account.is_none() || record.removing {
            return Err(DriverError::new(
                FailureCode::Unavailable,
                format!("{owner} has no account {} here; provision it first", account.username),
            ));
        }
        let home = self.open_home(account)?;
        keys.retain(|key| may_stay(&record.keys, key));
        let installed = count(&keys);
        let changed = self.put_keys(record, &home, keys)?;
        Ok(InstalledKeys { keys: installed, changed })
    }
}

/// Whose traces are removed.
struct Case<'a> {
    account: &'a AccountSpec,
    owner: &'a str,
    ids: &'a Ids,
    /// It was an account of ours; otherwise there may be things of the same name that never were its.
    known: bool,
}

fn count(keys: &[String]) -> u32 {
    u32::try_from(keys.len()).unwrap_or(u32::MAX)
}

impl HostDriver for RealHost {
    fn provision_user(&self, input: &ProvisionUserInput, steps: &dyn Steps) -> Done<ProvisionedUser> {
        let (account, owner) = (&input.account, input.owner.as_str());
        check::account(account)?;
        check::owner(owner)?;
        check::shell(&input.shell)?;
        check::limits(&input.limits)?;
        let keys = check::keys(&input.authorized_keys)?;

        steps.begin("account")?;
        // To the end: a removal that comes meanwhile must find all of it.
        let _guard = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.account_find(account, owner)?;
        if found.record.as_ref().is_some_and(|record| record.removing) {
            return Err(DriverError::new(
                FailureCode::Unavailable,
                format!("the account {} is being removed; deprovision it to the end first", account.username),
            ));
        }
        let record = found.record.clone().unwrap_or_else(|| Record::new(account, owner));
        self.registry.write(&record)?;
        let created = self.make_account(account, owner, &input.shell, &found)?;
        self.keep_ids_apart(&account.username)?;

        steps.begin("home")?;
        let home = self.make_home(account)?;
        steps.begin("limits")?;
        self.write_limits(account, owner, &input.limits, input.isolation)?;
        self.join_device_groups(account)?;
        steps.begin("keys")?;
        let installed = count(&keys);
        self.put_keys(record, &home, keys)?;
        Ok(ProvisionedUser {
            username: account.username.clone(),
            uid: account.uid,
            gid: account.gid,
            home: Self::home_path(&account.username),
            keys: installed,
            created,
            host_keys: host_keys::read(&self.roots.root),
        })
    }

    fn install_keys(&self, input: &InstallAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys> {
        self.replace_keys(input, steps, |_, _| true)
    }

    fn retain_keys(&self, input: &InstallAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys> {
        self.replace_keys(input, steps, |installed, key| installed.iter().any(|other| other == key))
    }

    fn deprovision_user(&self, input: &DeprovisionUserInput, steps: &dyn Steps) -> Done<DeprovisionedUser> {
        let (account, owner) = (&input.account, input.owner.as_str());
        check::account(account)?;
        check::owner(owner)?;
        let mut done = DeprovisionedUser::default();

        steps.begin("lock")?;
        let guard = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.account_find(account, owner)?;
        let known = found.record.is_some() || found.account.is_some();
        let mut record = found.record.clone().unwrap_or_else(|| Record::new(account, owner));
        if known {
            record.removing = true;
            // Also those of an earlier attempt, unless they were given to somebody else since.
            record.subordinate_ids =
                database::subordinate_ids(&self.roots.root, &account.username, &record.subordinate_ids)?;
            self.registry.write(&record)?;
        }
        self.lock(account, owner, &found)?;
        drop(guard);
        let ids = Ids { uid: account.uid, subordinate: record.subordinate_ids.clone() };
        let case = Case { account, owner, ids: &ids, known };

        steps.begin("processes")?;
        if known {
            self.end_sessions(account);
        }
        done.processes_killed = processes::end_all(&self.roots.proc, &ids, PROCESSES_LIMIT)?;

        steps.begin("schedules")?;
        let mut schedules = Sweep::until(Instant::now() + VERIFY_LIMIT);
        self.remove_schedules(&case, &mut schedules);
        done.schedules_removed = schedules.removed;
        // What a schedule has started meanwhile.
        let late = processes::end_all(&self.roots.proc, &ids, LATE_PROCESSES_LIMIT)?;
        done.processes_killed = done.processes_killed.saturating_add(late);

        steps.begin("files")?;
        let mut files = Sweep::until(Instant::now() + FILES_LIMIT);
        self.remove_files(&case, &mut files);
        self.remove_ipc(&ids, &mut files);
        self.remove_blocks(owner, &record.keys, &mut files)?;
        done.files_removed = files.removed;

        steps.begin("account")?;
        let guard = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        done.account_removed = self.remove_account(account, owner)?;
        drop(guard);

        steps.begin("verify")?;
        let mut left = Sweep::until(Instant::now() + VERIFY_LIMIT);
        self.left_over(&case, &mut left)?;
        if !left.left.is_empty() {
            let why: Vec<_> =
                schedules.left.into_iter().chain(files.left).chain(left.left).take(20).collect();
            return Err(DriverError::failed(format!(
                "the user is locked out, but something is left; remove it and ask again: {}",
                why.join("; ")
            )));
        }
        self.registry.remove(&account.username)?;
        Ok(done)
    }

    fn users(&self) -> Done<Vec<String>> {
        let marked = database::accounts(&self.roots.root)?
            .into_iter()
            .filter(|entry| entry.uid >= check::FIRST_ID && entry.gecos.starts_with("gpuaas "))
            .map(|entry| entry.name);
        let mut users: Vec<_> =
            self.registry.all()?.into_iter().map(|record| record.username).chain(marked).collect();
        users.sort_unstable();
        users.dedup();
        Ok(users)
    }
}
