//! The machine of a person: a home of its own, the program `gpuaas`, and what uses ssh.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use testkit::{Tenant, World, program};

use super::Launched;
use crate::{
    allocations::real_host::Key,
    tools::{command, run},
};

pub const HOST: &str = "train-1.gpuaas";
const LIMIT: Duration = Duration::from_secs(60);

pub struct Laptop {
    pub home: tempfile::TempDir,
    server: String,
    project: String,
    token: String,
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[track_caller]
pub fn succeeded(ran: &Output) -> String {
    assert!(ran.status.success(), "{:?}\n{}\n{}", ran.status, text(&ran.stdout), text(&ran.stderr));
    text(&ran.stdout)
}

impl Laptop {
    /// Signed in as somebody, with a configuration of ssh as people have one.
    pub fn new(world: &World, tenant: &Tenant, key: &Key) -> Self {
        let laptop = Self {
            home: tempfile::tempdir().unwrap(),
            server: world.server.base.clone(),
            project: tenant.project.clone(),
            token: tenant.api().token.clone().unwrap(),
        };
        let own = format!(
            "# mine\nIdentityFile {}\nIdentitiesOnly yes\nBatchMode yes\nLogLevel ERROR\nHost elsewhere\n  User me\n",
            key.file.display()
        );
        fs::write(laptop.config(), own).unwrap();
        laptop
    }

    pub fn for_creator(launched: &Launched) -> Self {
        Self::new(&launched.world, &launched.bo, &launched.key)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn config(&self) -> PathBuf {
        self.path("ssh_config")
    }

    /// With the credentials of the person in the environment, as ssh gets and passes it on.
    pub fn command(&self, name: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = command(name.as_ref());
        command
            .args(arguments)
            .current_dir(self.home.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("TERM", "xterm")
            .env("GPUAAS_SERVER", &self.server)
            .env("GPUAAS_PROJECT", &self.project)
            .env("GPUAAS_TOKEN", &self.token)
            .stdin(Stdio::null());
        command
    }

    pub async fn run(&self, name: &str, arguments: &[&str]) -> Output {
        run(self.command(name, arguments), LIMIT).await
    }

    pub async fn gpuaas(&self, arguments: &[&str]) -> Output {
        run(self.command(program("gpuaas"), arguments), LIMIT).await
    }

    /// Makes the machines known to ssh.
    pub async fn ssh_config(&self) -> Output {
        let file = self.config();
        self.gpuaas(&["ssh-config", "--file", file.to_str().unwrap()]).await
    }

    pub fn ssh_command(&self, arguments: &[&str]) -> Command {
        let file = self.config();
        self.command("ssh", &[&["-F", file.to_str().unwrap()], arguments].concat())
    }

    pub async fn ssh(&self, arguments: &[&str]) -> Output {
        run(self.ssh_command(arguments), LIMIT).await
    }
}
