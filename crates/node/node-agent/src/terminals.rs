//! Terminals into the machine: what a session of an owner runs.
//!
//! The sessions themselves, with all their limits, are those of `node-terminal`. [`HostShells`] answers for a real machine:
//! the owner's account, as the registry of accounts has it, and its login shell, started by `runuser` in a login session of
//! that user, so groups, limits and home are those of a sign-in. It is never root's: an account outside the range of
//! allocations, or another one under the same name, is refused.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use kernel::ids::AllocationId;
use node_proto::{
    catalog::AccountSpec,
    contract::TerminalSessionReport,
    grant::{Grant, Owner},
};
use node_terminal::{Limits, MARKER, Sessions, Shell, Shells};
use node_tunnel::{Attached, Handler, Refusal};

pub use crate::machine_owners::{NO_SUCH_OWNER, NOT_SUPPORTED, UNAVAILABLE};
use crate::{config::Config, machine_owners::MachineOwners, session::Streams};

/// The machine lacks what starts shells.
pub const NO_SHELL: Refusal = Refusal("no_shell");

/// All that `runuser` needs; it makes the user's own environment itself.
const ENVIRONMENT: (&str, &str) = ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
const SH: &str = "/bin/sh";
/// What the agent has for itself and a sign-in has not: files that nobody else reads, and protection when memory runs out.
const GIVE_UP_PRIVILEGES: &str = r#"umask 022; echo 0 >/proc/self/oom_score_adj; exec "$@""#;

/// Terminal sessions, as the agent ends them.
pub struct Terminals(Arc<Sessions>);

impl Terminals {
    pub fn new(shells: Arc<dyn Shells>) -> Self {
        Self(Sessions::new(shells, Limits::default()))
    }

    /// How many sessions have processes.
    pub fn count(&self) -> usize {
        self.0.count()
    }
}

#[async_trait]
impl Handler for Terminals {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        self.0.attach(grant).await
    }
}

#[async_trait]
impl Streams for Terminals {
    async fn end_owner(&self, owner: &str) {
        // Whoever is no allocation was never granted a session.
        if let Ok(allocation_id) = owner.parse::<AllocationId>() {
            self.0.end_owner(Owner::Allocation { allocation_id }).await;
        }
    }

    async fn stop(&self) {
        self.0.stop().await;
    }

    fn terminal_sessions(&self) -> Vec<TerminalSessionReport> {
        self.0.reports()
    }
}

/// Shells of a real machine's accounts.
pub struct HostShells {
    owners: MachineOwners,
    runuser: Option<PathBuf>,
}

impl HostShells {
    pub fn new(config: &Config) -> Self {
        Self { owners: MachineOwners::new(config), runuser: config.programs.runuser.clone() }
    }
}

fn login_shell(runuser: &Path, account: &AccountSpec) -> Shell {
    // It makes a new environment. Without the marker, what calls `setsid` would not be found at the end of the session. Without
    // the language, programs would take the terminal for one that shows ASCII only: unlike that of SSH, the sign-in of
    // `runuser` sets none.
    let kept = format!("--whitelist-environment={MARKER},LANG");
    // The name was checked and begins with no dash; after `--` none would be read as an option either.
    let login = ["--login", &kept, "--", &account.username].map(OsString::from);
    let script = ["-c", GIVE_UP_PRIVILEGES, "sh"].map(OsString::from);
    Shell {
        program: SH.into(),
        args: script.into_iter().chain([runuser.into()]).chain(login).collect(),
        env: vec![(ENVIRONMENT.0.to_owned(), ENVIRONMENT.1.to_owned())],
        cwd: "/".into(),
        terminal_owner: Some(account.uid),
    }
}

#[async_trait]
impl Shells for HostShells {
    async fn shell(&self, grant: &Grant) -> Result<Shell, Refusal> {
        let account = self.owners.account(grant).await?;
        let runuser = self.runuser.as_ref().filter(|path| path.is_file()).ok_or_else(|| {
            tracing::error!("there is no runuser; install util-linux or correct programs.runuser");
            NO_SHELL
        })?;
        Ok(login_shell(runuser, &account))
    }
}
