//! Accounts of a simulated machine. They are checked as on a real one, and are the machine's, not the agent's:
//! they survive its crashes.

use node_proto::catalog::{
    AccountSpec, DeprovisionUserInput, DeprovisionedUser, InstallAuthorizedKeysInput, InstalledKeys,
    ProvisionUserInput, ProvisionedUser,
};
use serde::{Deserialize, Serialize};

use super::Machine;
use crate::drivers::{Done, DriverError, HostDriver, Steps};

/// Users below this number are the system's.
const FIRST_UID: u32 = 20_000;

#[derive(Serialize, Deserialize)]
pub(super) struct Account {
    /// Unknown of accounts that were kept before this was.
    #[serde(default)]
    pub(super) owner: String,
    uid: u32,
    gid: u32,
    /// A mark of each installed key.
    #[serde(default)]
    key_marks: Vec<u64>,
}

impl HostDriver for Machine {
    fn provision_user(&self, input: &ProvisionUserInput, steps: &dyn Steps) -> Done<ProvisionedUser> {
        check(&input.account)?;
        self.needs_disk()?;
        steps.begin("account")?;
        let keys = u32::try_from(input.authorized_keys.len()).unwrap_or(u32::MAX);
        let created = {
            let accounts = &mut self.changing().accounts;
            let taken = accounts
                .iter()
                .any(|(name, a)| a.uid == input.account.uid && *name != input.account.username);
            if taken {
                return Err(DriverError::invalid(format!(
                    "uid {} belongs to another account",
                    input.account.uid
                )));
            }
            let there = accounts.get(&input.account.username);
            if there.is_some_and(|a| !a.is(&input.account)) {
                return Err(DriverError::invalid("an account of this name has other ids"));
            }
            let created = there.is_none();
            let account = Account::new(&input.account, &input.owner, &input.authorized_keys);
            accounts.insert(input.account.username.clone(), account);
            created
        };
        for phase in ["home", "limits", "keys"] {
            steps.begin(phase)?;
        }
        Ok(ProvisionedUser {
            username: input.account.username.clone(),
            uid: input.account.uid,
            gid: input.account.gid,
            home: format!("/home/{}", input.account.username),
            keys,
            created,
            // There is no SSH server behind it.
            host_keys: Vec::new(),
        })
    }

    fn deprovision_user(&self, input: &DeprovisionUserInput, steps: &dyn Steps) -> Done<DeprovisionedUser> {
        check(&input.account)?;
        for phase in ["lock", "processes", "schedules", "files"] {
            steps.begin(phase)?;
        }
        steps.begin("account")?;
        let removed = {
            let accounts = &mut self.changing().accounts;
            match accounts.get(&input.account.username) {
                Some(account) if !account.is(&input.account) => {
                    return Err(DriverError::invalid("an account of this name has other ids"));
                }
                there => {
                    let there = there.is_some();
                    accounts.remove(&input.account.username);
                    there
                }
            }
        };
        steps.begin("verify")?;
        Ok(DeprovisionedUser {
            files_removed: u32::from(removed),
            account_removed: removed,
            ..Default::default()
        })
    }

    fn install_keys(&self, input: &InstallAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys> {
        self.replace_keys(input, steps, |_, _| true)
    }

    fn retain_keys(&self, input: &InstallAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys> {
        self.replace_keys(input, steps, |installed, key| installed.contains(&key))
    }

    fn users(&self) -> Done<Vec<String>> {
        Ok(self.changing().accounts.keys().cloned().collect())
    }
}

impl Machine {
    fn replace_keys(
        &self,
        input: &InstallAuthorizedKeysInput,
        steps: &dyn Steps,
        may_stay: fn(&[u64], u64) -> bool,
    ) -> Done<InstalledKeys> {
        check(&input.account)?;
        self.needs_disk()?;
        steps.begin("keys")?;
        let mut next = Account::new(&input.account, &input.owner, &input.authorized_keys);
        let accounts = &mut self.changing().accounts;
        match accounts.get_mut(&input.account.username) {
            Some(account) if account.is(&input.account) => {
                next.key_marks.retain(|key| may_stay(&account.key_marks, *key));
                let changed = account.key_marks != next.key_marks;
                *account = next;
                let keys = u32::try_from(account.key_marks.len()).unwrap_or(u32::MAX);
                Ok(InstalledKeys { keys, changed })
            }
            Some(_) => Err(DriverError::invalid("an account of this name has other ids")),
            None => Err(DriverError::invalid("there is no such account on this node")),
        }
    }
}

impl Account {
    fn new(spec: &AccountSpec, owner: &str, keys: &[String]) -> Self {
        let mark = |key: &String| key.bytes().fold(0, |mark, byte| super::mix(mark ^ u64::from(byte)));
        Self {
            owner: owner.to_owned(),
            uid: spec.uid,
            gid: spec.gid,
            key_marks: keys.iter().map(mark).collect(),
        }
    }

    fn is(&self, spec: &AccountSpec) -> bool {
        (self.uid, self.gid) == (spec.uid, spec.gid)
    }
}

fn check(account: &AccountSpec) -> Done<()> {
    let name = account.username.as_bytes();
    let first = name.first().is_some_and(|&b| b.is_ascii_lowercase() || b == b'_');
    let rest = name.iter().all(|&b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if !first || !rest || name.len() > 32 {
        return Err(DriverError::invalid("the name of the account is not one that the system takes"));
    }
    if account.uid < FIRST_UID || account.gid < FIRST_UID {
        return Err(DriverError::invalid(format!("ids of accounts begin at {FIRST_UID}")));
    }
    Ok(())
}
