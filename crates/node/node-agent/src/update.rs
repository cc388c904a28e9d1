//! Replacing the agent by another version of itself, and going back if that does not work.
//!
//! The new program is fetched by its digest, checked, asked for its version, and put in the place of the old
//! one, which stays beside it as `<program>.previous`. `update.json` in the state directory says that it is on
//! trial. It has passed when the control plane has heard it once. Until then every start is counted: at the
//! third one, or when the time for the proof is up, the old program is put back. A program that cannot even
//! count is caught by the old one: the service manager runs `<program>.previous guard` before each start.
//!
//! | on trial and … | what happens |
//! | --- | --- |
//! | started for the first or second time | it may try |
//! | started once more, or not heard in time | the old program is put back and started |
//! | heard by the control plane | confirmed |
//! | started as another version than the new one | the swap did not happen, or was undone: rolled back |

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use aws_lc_rs::digest;
use kernel::{hex::Hex, ids::TaskId};
use node_proto::catalog::SelfUpdateInput;
use serde::{Deserialize, Serialize};

use crate::{
    atomic,
    drivers::{Done, DriverError, Steps as _},
    exec::{ExecError, Run},
    executor::Job,
    handlers::Replace,
    session::Updates,
};

/// A program on trial must have been heard within this time.
pub const PROOF_LIMIT: Duration = Duration::from_secs(300);
/// What the old program's name ends with.
pub const PREVIOUS: &str = ".previous";
const MOST_STARTS: u32 = 2;
const BUSY_TRIES: u32 = 40;
const LARGEST_PROGRAM: u64 = 200 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    OnTrial,
    Confirmed,
    RolledBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub task_id: TaskId,
    pub from_version: String,
    pub to_version: String,
    pub starts: u32,
    /// Starts that the old program has seen.
    #[serde(default)]
    pub guarded: u32,
    pub state: TrialState,
}

#[derive(Debug, PartialEq, Eq)]
pub enum AtStart {
    Go,
    /// The old program is back in its place: start it.
    StartAgain,
}

pub struct Updater {
    program: PathBuf,
    file: PathBuf,
    version: String,
    restart: Arc<dyn Fn() + Send + Sync>,
    trial: Mutex<Option<Trial>>,
}

impl Updater {
    /// `program` is where this program was started from; `restart` ends the session so that it is started anew.
    pub fn open(
        program: PathBuf,
        state_dir: &Path,
        version: &str,
        restart: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let file = state_dir.join("update.json");
        // What cannot be read is no trial: this program runs, after all.
        let trial = atomic::read(&file, 64 * 1024)?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Self { program, file, version: version.to_owned(), restart, trial: Mutex::new(trial) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Trial>> {
        self.trial.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.program);
        name.push(suffix);
        name.into()
    }

    fn save(&self, held: &mut Option<Trial>, trial: Trial) -> io::Result<()> {
        atomic::write(&self.file, &serde_json::to_vec(&trial)?)?;
        *held = Some(trial);
        Ok(())
    }

    pub fn on_trial(&self) -> bool {
        self.lock().as_ref().is_some_and(|trial| trial.state == TrialState::OnTrial)
    }

    /// To be called once, before anything else is done.
    pub fn at_start(&self) -> io::Result<AtStart> {
        let mut held = self.lock();
        let Some(trial) = held.clone().filter(|trial| trial.state == TrialState::OnTrial) else {
            return Ok(AtStart::Go);
        };
        if trial.to_version != self.version {
            self.save(&mut held, Trial { state: TrialState::RolledBack, ..trial })?;
            return Ok(AtStart::Go);
        }
        if trial.starts >= MOST_STARTS {
            drop(held);
            return self.roll_back().map(|()| AtStart::StartAgain);
        }
        let starts = trial.starts + 1;
        self.save(&mut held, Trial { starts, ..trial })?;
        Ok(AtStart::Go)
    }

    /// To be called by the old program before each start of the new one. True when the old one is back.
    pub fn guard(&self) -> io::Result<bool> {
        let mut held = self.lock();
        let Some(trial) = held.clone().filter(|trial| trial.state == TrialState::OnTrial) else {
            return Ok(false);
        };
        if trial.guarded >= MOST_STARTS {
            drop(held);
            return self.roll_back().map(|()| true);
        }
        let guarded = trial.guarded + 1;
        self.save(&mut held, Trial { guarded, ..trial }).map(|()| false)
    }

    /// Puts the old program back. Does nothing when none is on trial.
    pub fn roll_back(&self) -> io::Result<()> {
        let mut held = self.lock();
        let Some(trial) = held.clone().filter(|trial| trial.state == TrialState::OnTrial) else {
            return Ok(());
        };
        fs::rename(self.beside(PREVIOUS), &self.program)?;
        self.program.parent().map_or(Ok(()), atomic::sync_dir)?;
        self.save(&mut held, Trial { state: TrialState::RolledBack, ..trial })
    }

    fn check(&self, new: &Path, input: &SelfUpdateInput) -> Done<()> {
        let failed = |error: io::Error| DriverError::failed(format!("{}: {error}", new.display()));
        let (size, sha256) = digest_of(new).map_err(failed)?;
        if size != input.size_bytes || sha256 != input.sha256.to_ascii_lowercase() {
            return Err(DriverError::failed("the program that came is not the one that was announced"));
        }
        fs::set_permissions(new, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        if version_of(new)?.trim() == input.version {
            Ok(())
        } else {
            Err(DriverError::invalid("the program says that it is another version than was announced"))
        }
    }

    fn swap(&self, new: &Path, input: &SelfUpdateInput, task_id: TaskId) -> io::Result<()> {
        let previous = self.beside(PREVIOUS);
        atomic::remove(&previous)?;
        fs::hard_link(&self.program, &previous)?;
        let trial = Trial {
            task_id,
            from_version: self.version.clone(),
            to_version: input.version.clone(),
            starts: 0,
            guarded: 0,
            state: TrialState::OnTrial,
        };
        self.save(&mut self.lock(), trial)?;
        fs::rename(new, &self.program)?;
        self.program.parent().map_or(Ok(()), atomic::sync_dir)
    }
}

/// What the program says it is. Another program that starts at the same moment may hold the file open for an
/// instant, which makes it busy.
fn version_of(program: &Path) -> Result<String, ExecError> {
    let mut left = BUSY_TRIES;
    loop {
        left -= 1;
        match Run::new(program).arg("version").timeout(Duration::from_secs(10)).succeed() {
            Err(ExecError::Start { error, .. })
                if error.kind() == io::ErrorKind::ExecutableFileBusy && left > 0 =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other.map(|ran| ran.text()),
        }
    }
}

fn digest_of(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let (mut buffer, mut size) = (vec![0; 64 * 1024], 0);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((size, Hex(context.finish().as_ref().to_vec()).to_string()));
        }
        size += u64::try_from(read).unwrap_or(0);
        context.update(buffer.get(..read).unwrap_or_default());
    }
}

impl Updates for Updater {
    fn rolled_back(&self, task: TaskId) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|trial| trial.task_id == task && trial.state == TrialState::RolledBack)
    }

    fn confirm(&self) {
        let mut held = self.lock();
        if let Some(trial) = held.clone().filter(|trial| trial.state == TrialState::OnTrial)
            && let Err(error) = self.save(&mut held, Trial { state: TrialState::Confirmed, ..trial })
        {
            tracing::error!(%error, path = %self.file.display(), "the new program works, but that cannot be kept");
        }
    }
}

impl Replace for Updater {
    fn replace(&self, input: &SelfUpdateInput, job: &Job) -> Done<()> {
        if input.size_bytes > LARGEST_PROGRAM {
            return Err(DriverError::invalid("the program is too large"));
        }
        if self.on_trial() {
            return Err(DriverError::failed("the program before is still on trial; wait until it was heard"));
        }
        let new = self.beside(".new");
        let swapped = || -> Done<()> {
            job.steps.begin("fetch")?;
            job.programs.fetch(&input.sha256, input.size_bytes, &new)?;
            job.steps.begin("check")?;
            self.check(&new, input)?;
            job.steps.begin("swap")?;
            self.swap(&new, input, job.task.task_id)
                .map_err(|error| DriverError::failed(format!("the program cannot be replaced: {error}")))
        };
        let outcome = swapped();
        if outcome.is_err() {
            let _ = fs::remove_file(&new);
        }
        outcome?;
        // From here on only the new program can say how it ended.
        let _ = job.steps.begin("confirm");
        (self.restart)();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
