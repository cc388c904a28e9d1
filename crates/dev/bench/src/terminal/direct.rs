//! The limit: a shell on a PTY of this process.

use std::{
    io::{Read as _, Write as _},
    path::Path,
};

use anyhow::ensure;
use pty_process::blocking::Pty;

use super::line::Terminal;
use crate::exec::{Running, start_on_pty};

/// The shell is killed after so many seconds, which ends the wait for its output.
const LIFETIME_SECONDS: &str = "1200";
/// More than a PTY gives at once.
const BUFFER: usize = 64 * 1024;

pub struct Direct {
    // Dropped first: that hangs up on the shell.
    pty: Pty,
    _shell: Running,
    buffer: Vec<u8>,
}

impl Direct {
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let args = ["--foreground", LIFETIME_SECONDS, "bash", "--norc", "--noprofile"];
        let (pty, shell) = start_on_pty("timeout", &args, dir)?;
        Ok(Self { pty, _shell: shell, buffer: vec![0; BUFFER] })
    }
}

impl Terminal for Direct {
    fn type_in(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        Ok(self.pty.write_all(keys)?)
    }

    fn read(&mut self) -> anyhow::Result<&[u8]> {
        let count = self.pty.read(&mut self.buffer)?;
        ensure!(count > 0, "the shell has ended");
        Ok(&self.buffer[..count])
    }
}
