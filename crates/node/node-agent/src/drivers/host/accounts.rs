//! Making, locking and removing the account itself, with the machine's own tools.

use std::{
    io::{self, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use node_proto::{
    catalog::{AccountLimits, AccountSpec, Isolation},
    contract::FailureCode,
};
use rustix::{
    fs::{Dir, Mode, OFlags},
    io::Errno,
};

use super::{RealHost, database, keys::own, registry::Record, tree::open_dir};
use crate::{
    drivers::{Done, DriverError, files::read_bounded},
    exec::Run,
};

const HOMES: &str = "home";
const LIMITS: &str = "etc/security/limits.d";
const SUDOERS: &str = "etc/sudoers.d";
/// What new homes begin with is copied when it is small.
const SKELETON: &str = "etc/skel";
const SKELETON_FILES: usize = 64;
const SKELETON_FILE_BYTES: usize = 256 * 1024;

/// What there is of an account that is asked for.
#[derive(Debug)]
pub struct FoundAccount {
    pub account: Option<database::Passwd>,
    pub group: bool,
    pub record: Option<Record>,
}

fn taken(message: String) -> DriverError {
    DriverError::new(FailureCode::Unavailable, message)
}

impl RealHost {
    pub(super) fn root(&self, path: &str) -> PathBuf {
        self.roots.root.join(path)
    }

    /// The run of an account tool. Below another root it works there.
    pub(super) fn tool(&self, program: &Path) -> Run {
        let run = Run::new(program);
        if self.roots.root == Path::new("/") { run } else { run.arg("--root").arg(&self.roots.root) }
    }

    /// Finds the account, and refuses when anything under its name or ids is not this owner's.
    pub(super) fn account_find(&self, asked: &AccountSpec, owner: &str) -> Done<FoundAccount> {
        let name = &asked.username;
        let record = self.registry.read(name)?;
        let mark = format!("gpuaas {owner}");
        if let Some(record) = &record
            && (record.owner != owner || record.uid != asked.uid || record.gid != asked.gid)
        {
            return Err(taken(format!(
                "the account {name} belongs to {}; remove that one first",
                record.owner
            )));
        }
        if let Some(other) = self.registry.all()?.iter().find(|r| r.owner == owner && r.username != *name) {
            return Err(taken(format!(
                "{owner} has the account {} already; remove that one first",
                other.username
            )));
        }
        let (mut account, mut group) = (None, false);
        for entry in database::accounts(&self.roots.root)? {
            if entry.name == *name {
                let marked = entry.gecos.split(',').next() == Some(mark.as_str());
                if (entry.uid, entry.gid) != (asked.uid, asked.gid) || !(marked || record.is_some()) {
                    return Err(taken(format!(
                        "there is an account {name} that is not {owner}'s; choose another name"
                    )));
                }
                account = Some(entry);
            } else if entry.uid == asked.uid {
                return Err(taken(format!(
                    "the uid {} is the account {}'s; choose another",
                    asked.uid, entry.name
                )));
            }
        }
        for entry in database::groups(&self.roots.root)? {
            if entry.name == *name {
                if entry.gid != asked.gid || (account.is_none() && record.is_none()) {
                    return Err(taken(format!(
                        "there is a group {name} that is not {owner}'s; choose another name"
                    )));
                }
                group = true;
            } else if entry.gid == asked.gid {
                return Err(taken(format!(
                    "the gid {} is the group {}'s; choose another",
                    asked.gid, entry.name
                )));
            }
        }
        Ok(FoundAccount { account, group, record })
    }

    pub(super) fn home_path(username: &str) -> String {
        format!("/{HOMES}/{username}")
    }

    /// True: it was made, or what was there already was brought to what was asked.
    pub(super) fn make_account(
        &self,
        asked: &AccountSpec,
        owner: &str,
        shell: &str,
        found: &FoundAccount,
    ) -> Done<bool> {
        let program = self.root(shell.trim_start_matches('/'));
        let runs =
            std::fs::metadata(&program).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
        if !runs {
            return Err(DriverError::new(
                FailureCode::Unavailable,
                format!("the shell {shell} is not installed; install it or choose another"),
            ));
        }
        let (uid, gid) = (asked.uid.to_string(), asked.gid.to_string());
        if found.account.is_none()
            && let Some(other) =
                database::mapped_by(&self.roots.root, &asked.username, (asked.uid, asked.gid))?
        {
            return Err(taken(format!(
                "the uid {} or the gid {} is one that {other} uses in containers; choose others",
                asked.uid, asked.gid
            )));
        }
        if let Some(account) = &found.account {
            if account.shell != shell {
                self.tool(&self.programs.usermod).args(["--shell", shell, &asked.username]).succeed()?;
            }
            return Ok(false);
        }
        if !found.group {
            self.tool(&self.programs.groupadd).args(["--gid", &gid, &asked.username]).succeed()?;
        }
        let home = Self::home_path(&asked.username);
        let mark = format!("gpuaas {owner}");
        let args = [
            "--uid",
            &uid,
            "--gid",
            &gid,
            "--home-dir",
            &home,
            "--no-create-home",
            "--shell",
            shell,
            // No password fits, but keys do: a locked account would let nobody in.
            "--comment",
            &mark,
            "--password",
            "*",
            "--no-user-group",
            "--no-log-init",
            &asked.username,
        ];
        self.tool(&self.programs.useradd).args(args).succeed()?;
        Ok(true)
    }

    /// In containers nobody may be somebody else. The tools choose ranges for containers without a look at
    /// accounts, so a range that covers another account is taken away again.
    pub(super) fn keep_ids_apart(&self, username: &str) -> Done<()> {
        for (file, (first, last)) in database::ranges_over_others(&self.roots.root, username)? {
            let flag = if file == "subuid" { "--del-subuids" } else { "--del-subgids" };
            let range = format!("{first}-{last}");
            self.tool(&self.programs.usermod).args([flag, &range, username]).succeed()?;
        }
        Ok(())
    }

    /// Opens the home, and makes it when it is not there.
    pub(super) fn make_home(&self, asked: &AccountSpec) -> Done<OwnedFd> {
        let name = asked.username.as_str();
        let failed =
            |error: Errno| DriverError::failed(format!("the home of {name} cannot be made: {error}"));
        let homes = open_dir(&self.root(HOMES)).map_err(failed)?;
        match rustix::fs::mkdirat(&homes, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let home = rustix::fs::openat(&homes, name, flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&home).map_err(failed)?;
        if stat.st_uid == 0 && is_empty(&home) {
            own(&home, asked.uid, asked.gid).map_err(failed)?;
            self.fill_home(&home, asked).map_err(|error| {
                DriverError::failed(format!("the home of {name} cannot be filled: {error}"))
            })?;
        } else if stat.st_uid != asked.uid {
            return Err(taken(format!(
                "/{HOMES}/{name} belongs to the uid {}; move it away, then try again",
                stat.st_uid
            )));
        }
        rustix::fs::fchmod(&home, Mode::RWXU).map_err(failed)?;
        Ok(home)
    }

    /// An existing home, to work in.
    pub(super) fn open_home(&self, asked: &AccountSpec) -> Done<OwnedFd> {
        let failed = |error: Errno| {
            DriverError::failed(format!("the home of {} cannot be opened: {error}", asked.username))
        };
        let homes = open_dir(&self.root(HOMES)).map_err(failed)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&homes, asked.username.as_str(), flags, Mode::empty()).map_err(failed)
    }

    fn fill_home(&self, home: &OwnedFd, asked: &AccountSpec) -> io::Result<()> {
        let entries = match std::fs::read_dir(self.root(SKELETON)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for entry in entries.flatten().take(SKELETON_FILES) {
            if !entry.file_type()?.is_file() {
                continue;
            }
            let (bytes, more) = read_bounded(&entry.path(), SKELETON_FILE_BYTES)?;
            if more {
                continue;
            }
            let name = entry.file_name();
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
            let mut file = std::fs::File::from(rustix::fs::openat(home, &name, flags, mode)?);
            file.write_all(&bytes)?;
            own(&file, asked.uid, asked.gid)?;
        }
        Ok(())
    }

    pub(super) fn write_limits(
        &self,
        asked: &AccountSpec,
        owner: &str,
        limits: &AccountLimits,
        isolation: Isolation,
    ) -> Done<()> {
        let name = &asked.username;
        let items = [("nproc", limits.processes), ("nofile", limits.open_files)];
        let lines = items.iter().filter_map(|(item, limit)| {
            limit.map(|limit| format!("{name} soft {item} {limit}\n{name} hard {item} {limit}\n"))
        });
        let text: String = lines.collect();
        let path = self.root(LIMITS).join(format!("gpuaas-{owner}.conf"));
        if text.is_empty() { absent(&path) } else { write_system(&path, &text, 0o644, |_| Ok(())) }?;

        let path = self.sudoers(owner);
        if !isolation.gives_sudo() {
            return absent(&path);
        }
        if !self.root(SUDOERS).is_dir() {
            return Err(DriverError::new(
                FailureCode::Unavailable,
                "there is no /etc/sudoers.d; install sudo, or provision without it",
            ));
        }
        let text = format!("# {owner}\n{name} ALL=(ALL:ALL) NOPASSWD: ALL\n");
        write_system(&path, &text, 0o440, |new| match &self.programs.visudo {
            Some(visudo) if visudo.exists() => {
                Run::new(visudo).args(["--check", "--quiet", "--file"]).arg(new).succeed()?;
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn sudoers(&self, owner: &str) -> PathBuf {
        self.root(SUDOERS).join(format!("gpuaas-{owner}"))
    }

    /// Nobody can sign in any more, and nobody can become root.
    pub(super) fn lock(&self, asked: &AccountSpec, owner: &str, found: &FoundAccount) -> Done<()> {
        if found.account.is_some() {
            let args = ["--lock", "--expiredate", "1", "--shell", "/usr/sbin/nologin", &asked.username];
            self.tool(&self.programs.usermod).args(args).succeed()?;
        }
        absent(&self.sudoers(owner))?;
        absent(&self.root(LIMITS).join(format!("gpuaas-{owner}.conf")))
    }

    /// True: there was one.
    pub(super) fn remove_account(&self, asked: &AccountSpec, owner: &str) -> Done<bool> {
        let found = self.account_find(asked, owner)?;
        if found.account.is_some() {
            // By force: it may be listed as signed in, and all its processes are gone.
            self.tool(&self.programs.userdel).args(["--force", &asked.username]).succeed()?;
        }
        if database::groups(&self.roots.root)?.iter().any(|g| g.name == asked.username && g.gid == asked.gid)
        {
            self.tool(&self.programs.groupdel).arg(&asked.username).succeed()?;
        }
        Ok(found.account.is_some() || found.group)
    }

    pub(super) fn system_files(&self, owner: &str) -> [PathBuf; 2] {
        [self.sudoers(owner), self.root(LIMITS).join(format!("gpuaas-{owner}.conf"))]
    }
}

fn is_empty(dir: &OwnedFd) -> bool {
    let mut entries = Dir::read_from(dir).into_iter().flatten().flatten();
    !entries.any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
}

fn absent(path: &Path) -> Done<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DriverError::failed(format!("{} cannot be removed: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// A file of root's in a directory of root's, checked before it takes its place.
fn write_system(path: &Path, text: &str, mode: u32, check: impl FnOnce(&Path) -> Done<()>) -> Done<()> {
    let failed =
        |error: io::Error| DriverError::failed(format!("{} cannot be written: {error}", path.display()));
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(DriverError::failed(format!("{} is no file", path.display())));
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    // The dot keeps sudo and PAM from reading it.
    let new = dir.join(format!(".{}.new", name.to_string_lossy()));
    absent(&new)?;
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.sync_all()
    };
    write().map_err(failed)?;
    check(&new).inspect_err(|_| drop(std::fs::remove_file(&new)))?;
    std::fs::rename(&new, path).map_err(failed)
}
