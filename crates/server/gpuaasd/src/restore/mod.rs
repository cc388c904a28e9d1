//! Notices that the database was restored from a backup, and holds back what must not run then.
//!
//! Each process counts the generation of the installation up in the database, commits, and writes it to a file of its
//! own. So a file that is behind is normal (a crash between the two, another replica), and a file that is ahead of the
//! database means that the database holds an earlier state: the mode is `restore`. The same is noticed by a process
//! that runs while its external database is restored, because the number there is below its last one. Such a database is
//! not counted up until the mode was entered: a process that dies before that leaves the evidence to the next one.
//!
//! Entering the mode ends everything that is signed in: sessions that were revoked since the backup would come back.
//!
//! What places, releases, charges or tells people is started only with a [`NormalMode`], which exists only while the
//! mode is normal; it is stopped when the mode changes, in every process. Below that the database refuses such rows.

mod outside_file;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use kernel::{CorrelationId, Failure};
use pg::{Advance, Db, INSTALLATION_CHANGED, Installation, Mode, Noticed, Origin, Outside, Permit};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use outside_file::OutsideFile;

/// A backup that is younger than this when its database is restored may not be told from the database itself.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// Also for entering the mode, which ends every sign-in.
const COUNT_AT_MOST: Duration = Duration::from_secs(120);

/// Proof that the mode was normal when it was made; what is started with it ends when the mode changes.
pub struct NormalMode<'a> {
    pub tasks: &'a TaskTracker,
    pub cancel: &'a CancellationToken,
    _made_here: (),
}

/// Follows the mode of the installation for this process.
pub struct Generation {
    db: Db,
    file: OutsideFile,
    last: Outside,
    /// Why the mode must be entered, until it was: another process may count the generation up meanwhile.
    owed: Option<String>,
    mode: watch::Sender<Mode>,
}

impl Generation {
    /// Compares the file with the database, and counts up for the first time.
    pub async fn begin(db: &Db, file: OutsideFile) -> anyhow::Result<Self> {
        let known = read(db).await?;
        match file.read()? {
            None if known.generation > 0 => tracing::warn!(
                file = %file.path().display(),
                "there is no generation file, so a restored database would not be noticed; run `gpuaasd restore` if it was restored"
            ),
            None => {}
            Some(outside) if outside.installation != known.id && known.generation == 0 => anyhow::bail!(
                "{} is of installation {}, and the database is new, or of before installations had an id: if it was \
                 restored from a backup, run `gpuaasd restore`; otherwise correct database.url or server.data_dir; \
                 if the installation was made anew on purpose, delete the file",
                file.path().display(),
                outside.installation,
            ),
            Some(outside) if outside.installation != known.id => anyhow::bail!(
                "{} is of installation {}, and the database is of {}: correct database.url or server.data_dir; \
                 if the installation was made anew on purpose, delete the file",
                file.path().display(),
                outside.installation,
                known.id,
            ),
            Some(outside) if outside.generation > known.generation => {
                let because = format!(
                    "the database holds generation {}, and this process has seen {}",
                    known.generation, outside.generation
                );
                enter(db, Some(&outside), &because, Noticed::ByProcess).await?;
            }
            // The process that noticed it ended before it could enter; others may have counted up since.
            Some(outside @ Outside { restore_owed: Some(_), .. }) => {
                let because = outside.restore_owed.clone().unwrap_or_default();
                enter(db, Some(&outside), &because, Noticed::ByProcess).await?;
            }
            Some(_) => {}
        }
        // One that went back between the two is noticed by the next start.
        let (now, last) = counted(db, known.generation).await?;
        file.write(&last)?;
        report(now.mode());
        if now.mode() == Mode::Restore {
            warn();
        }
        Ok(Self { db: db.clone(), file, last, owed: None, mode: watch::Sender::new(now.mode()) })
    }

    pub fn mode(&self) -> watch::Receiver<Mode> {
        self.mode.subscribe()
    }

    /// Counts up again and again, until `cancel`; and a last time, so that a backup from before a clean stop is told
    /// from the database after it.
    pub async fn follow(mut self, cancel: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let notified = changed.clone();
        self.db.on_invalidate(move |key| {
            if key == INSTALLATION_CHANGED || key == "*" {
                notified.notify_one();
            }
        });
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                () = changed.notified() => {}
                () = tokio::time::sleep(COUNT_EVERY) => {}
            }
            self.count_within(COUNT_AT_MOST).await;
        }
        self.count_within(COUNT_EVERY).await;
    }

    async fn count_within(&mut self, limit: Duration) {
        match tokio::time::timeout(limit, self.count()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the generation could not be counted up; trying again"
                );
            }
            Err(_) => tracing::warn!("counting the generation up took too long; trying again"),
        }
    }

    /// Enters the mode, and counts up from there. What fails is owed.
    async fn enter(&mut self, because: String) -> anyhow::Result<(Installation, Outside)> {
        if self.owed.is_none() {
            // For the next process, should this one end before it has entered.
            let remembered = Outside { restore_owed: Some(because.clone()), ..self.last.clone() };
            let file = self.file.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || file.write(&remembered)).await? {
                tracing::warn!(error = %error, "that the database was restored could not be written down");
            }
        }
        self.owed = Some(because.clone());
        enter(&self.db, Some(&self.last), &because, Noticed::ByProcess).await?;
        self.owed = None;
        counted(&self.db, self.last.generation).await
    }

    async fn count(&mut self) -> anyhow::Result<()> {
        let ours = |found: &Installation| {
            anyhow::ensure!(found.id == self.last.installation, "the database is of another installation");
            Ok(())
        };
        let (now, next) = match (advance(&self.db, self.last.generation).await?, &self.owed) {
            (Advance::Counted(now, next), None) => {
                ours(&now)?;
                (now, next)
            }
            (Advance::Counted(now, _), Some(because)) => {
                ours(&now)?;
                self.enter(because.clone()).await?
            }
            (Advance::WentBack(now), _) => {
                ours(&now)?;
                let because = format!(
                    "the database went back from generation {} to {} while this process ran",
                    self.last.generation, now.generation
                );
                self.enter(because).await?
            }
        };
        self.last = next.clone();
        // Before the file: a disk that is full does not keep the process from following the mode.
        let mode = now.mode();
        report(mode);
        let turned = self.mode.send_if_modified(|known| std::mem::replace(known, mode) != mode);
        match (turned, mode) {
            (true, Mode::Restore) => warn(),
            (true, Mode::Normal) => tracing::info!("an operator has resumed after the restore"),
            (false, _) => {}
        }
        let file = self.file.clone();
        Ok(tokio::task::spawn_blocking(move || file.write(&next)).await??)
    }
}

/// Starts `normal` whenever the mode is normal and `restoring` whenever it is not, and stops the other one; until
/// `cancel`.
pub async fn run_by_mode(
    mut mode: watch::Receiver<Mode>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    normal: impl Fn(&NormalMode<'_>),
    restoring: impl Fn(&TaskTracker, &CancellationToken),
) {
    loop {
        let now = *mode.borrow_and_update();
        let these = cancel.child_token();
        match now {
            Mode::Normal => normal(&NormalMode { tasks: &tasks, cancel: &these, _made_here: () }),
            Mode::Restore => restoring(&tasks, &these),
        }
        let turned = cancel.run_until_cancelled(mode.wait_for(|mode| *mode != now)).await;
        if !matches!(turned, Some(Ok(_))) {
            return;
        }
        these.cancel();
    }
}

/// The command `gpuaasd restore`.
pub async fn restore(db: &Db, file: &OutsideFile) -> anyhow::Result<()> {
    let known = read(db).await?;
    // A file of another installation says nothing about this one. A backup from before installations had an id got a
    // new one, and was never counted up.
    let is_ours = |outside: &Outside| outside.installation == known.id || known.generation == 0;
    let outside = file.read()?.filter(is_ours);
    enter(db, outside.as_ref(), "an operator said so (gpuaasd restore)", Noticed::ByOperator).await?;
    let (_, next) = counted(db, 0).await?;
    Ok(file.write(&next)?)
}

async fn read(db: &Db) -> anyhow::Result<Installation> {
    let mut upkeep = db.upkeep("read the generation of the installation").await?;
    Ok(pg::installation_get(upkeep.conn()).await?)
}

async fn advance(db: &Db, seen: i64) -> anyhow::Result<Advance> {
    pg::installation_advance(db, seen).await.map_err(error).context("the generation cannot be counted up")
}

/// The same where nobody expects it to go back.
async fn counted(db: &Db, seen: i64) -> anyhow::Result<(Installation, Outside)> {
    match advance(db, seen).await? {
        Advance::Counted(now, next) => Ok((now, next)),
        Advance::WentBack(now) => {
            anyhow::bail!(
                "the database went back to generation {} meanwhile: restored again?",
                now.generation
            )
        }
    }
}

async fn enter(db: &Db, outside: Option<&Outside>, because: &str, noticed: Noticed) -> anyhow::Result<()> {
    tracing::error!(because, "the database was restored from a backup");
    let ended = enter_and_end_sign_ins(db, outside, because, noticed).await;
    match ended.map_err(error).context("the mode cannot be set to restore")? {
        Some(sessions) => tracing::warn!(sessions, "everybody has to sign in again"),
        None => tracing::info!("another process has entered the mode for this restore already"),
    }
    Ok(())
}

/// In one transaction: a session that was revoked since the backup must not be of use for a moment.
async fn enter_and_end_sign_ins(
    db: &Db,
    outside: Option<&Outside>,
    because: &str,
    noticed: Noticed,
) -> Result<Option<u64>, Failure> {
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let permit = Permit::system("the database was restored from a backup", origin);
    let mut tx = db.write(permit, "installation.restore_begin").await?;
    if pg::installation_restore_begin(&mut tx, outside, because, noticed).await?.is_none() {
        tx.roll_back().await;
        return Ok(None);
    }
    let ended = identity::api::sign_ins_end(&mut tx).await?;
    tx.commit(None).await?;
    Ok(Some(ended))
}

fn error(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Problem(problem) => anyhow::anyhow!("{problem}"),
        Failure::Internal(error) => anyhow::Error::from_boxed(error),
        Failure::Bug(bug) => anyhow::anyhow!("{bug}"),
    }
}

fn report(mode: Mode) {
    let restoring = if mode == Mode::Restore { 1.0 } else { 0.0 };
    metrics::gauge!(telemetry::names::INSTALLATION_RESTORE_MODE).set(restoring);
}

fn warn() {
    tracing::warn!(
        "the database was restored from a backup: nothing is launched, released or charged; \
         see `gpuaas ops restore status`"
    );
}
