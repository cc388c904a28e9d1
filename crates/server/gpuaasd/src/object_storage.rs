//! The object storage that the configuration names.

use std::time::Duration;

use anyhow::anyhow;
use objects::{ObjectError, ObjectKey, Objects, S3};
use pg::Db;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    compose::startup,
    config::{ObjectStorage, S3Secret},
    secret_file,
};

/// Touches neither the directory nor the network.
pub fn open(config: &ObjectStorage, http: reqwest::Client) -> anyhow::Result<Objects> {
    let Some(s3) = &config.s3 else { return Ok(Objects::in_directory(config.directory.clone())) };
    let secret_access_key = match &s3.secret {
        S3Secret::Given(secret) => secret.clone(),
        S3Secret::File(file) => secret_file::read_line(file)?,
    };
    let s3 = S3 {
        endpoint: s3.endpoint.clone(),
        region: s3.region.clone(),
        bucket: s3.bucket.clone(),
        prefix: s3.prefix.clone(),
        access_key_id: s3.access_key_id.clone(),
        secret_access_key,
    };
    Ok(Objects::in_bucket(&s3, http)?)
}

/// Names the storage; its content is an id.
const STORAGE_ID: &str = "storage-id";

/// A storage that did not answer is asked again after this time, then after twice as long, and so on.
const COMPARE_AGAIN_FIRST: Duration = Duration::from_secs(1);
const COMPARE_AGAIN_LAST: Duration = Duration::from_secs(30);

/// Where a process does what it does beside serving, and what ends that.
pub type Beside<'a> = (&'a TaskTracker, &'a CancellationToken);

/// What was found out about the configured storage.
enum Compared {
    /// The installation uses it.
    Same,
    /// Recordings would not be safe in it, or are in another one.
    Unusable(anyhow::Error),
    NoAnswer(ObjectError),
}

/// Refuses a storage in which recordings would not be safe: one that overwrites objects, and one that the other processes of
/// the installation do not use. A storage that does not answer is no reason not to start: it is held, terminals wait for it, and
/// it is compared beside everything else.
pub async fn check(objects: &Objects, db: &Db, (tasks, cancel): Beside<'_>) -> anyhow::Result<()> {
    match compare(objects, db).await? {
        Compared::Same => Ok(()),
        Compared::Unusable(error) => Err(error),
        Compared::NoAnswer(error) => {
            tracing::warn!(error = ?error, "the object storage does not answer; recorded terminals wait for it");
            objects.hold();
            let comparing = compare_until_known(objects.clone(), db.clone());
            tasks.spawn(cancel.clone().run_until_cancelled_owned(comparing));
            Ok(())
        }
    }
}

/// Compares a storage that did not answer when the process started, until it is known to be the right one. While it answers and
/// is another one, that is said again and again, and nothing is recorded: whoever mounts the right directory, or corrects
/// what the name of the bucket leads to, need not restart anything.
async fn compare_until_known(objects: Objects, db: Db) {
    let mut wait = COMPARE_AGAIN_FIRST;
    while objects.is_held() {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(COMPARE_AGAIN_LAST);
        match compare(&objects, &db).await {
            Ok(Compared::Same) => {
                objects.release();
                tracing::info!("the object storage answers, and is the one that the installation uses");
            }
            Ok(Compared::Unusable(error)) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the object storage is not used: nothing is recorded"
                );
            }
            Ok(Compared::NoAnswer(error)) => {
                tracing::warn!(error = ?error, "the object storage still does not answer; recorded terminals wait for it");
            }
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the object storage was not compared"),
        }
    }
}

/// An error is one of the database.
async fn compare(objects: &Objects, db: &Db) -> anyhow::Result<Compared> {
    let settle = async |found| {
        let settled = pg::object_storage_settle(db, found).await;
        settled.map_err(|failure| startup("the object storage cannot be compared", failure))
    };
    let known = settle(None).await?;
    let found = match storage_id(&objects.ignoring_hold(), db, known).await {
        Ok(found) => found,
        Err(error @ ObjectError::Overwrites) => {
            let error = anyhow::Error::new(error);
            return Ok(Compared::Unusable(
                error.context("the configured object storage (objects.*) cannot be used"),
            ));
        }
        Err(error) => return Ok(Compared::NoAnswer(error)),
    };
    let expected = settle(found).await?;
    if found == expected {
        return Ok(Compared::Same);
    }
    let text = |id: Option<Uuid>| id.map_or_else(|| "not there".to_owned(), |id| id.to_string());
    Ok(Compared::Unusable(anyhow!(
        "the configured object storage (objects.*) is not the one that the installation uses: its object {STORAGE_ID} is {}, \
         instead of {}. Let all processes use one bucket, or one directory that all of them mount. When the storage was moved, \
         copy all objects, {STORAGE_ID} too; when it was lost, put an object {STORAGE_ID} with that id into the new one",
        text(found),
        text(expected)
    )))
}

/// The id in the storage; the first process of the installation puts one there.
async fn storage_id(objects: &Objects, db: &Db, known: Option<Uuid>) -> Result<Option<Uuid>, ObjectError> {
    objects.check_keeps().await?;
    let Ok(key) = ObjectKey::new([STORAGE_ID]) else { return Ok(None) };
    if known.is_none() {
        let new = db.ambient().uuid();
        match objects.put_new(&key, new.to_string().into()).await {
            Ok(()) => return Ok(Some(new)),
            Err(ObjectError::AlreadyExists) => {}
            Err(error) => return Err(error),
        }
    }
    let content = objects.get(&key).await?;
    Ok(content.and_then(|content| std::str::from_utf8(&content).ok()?.trim().parse().ok()))
}
