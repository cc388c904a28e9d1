//! The object storage that the configuration names.

use anyhow::{Context as _, bail};
use objects::{ObjectError, ObjectKey, Objects, S3};
use pg::Db;
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

/// Refuses a storage in which recordings would not be safe: one that overwrites objects, and one that the other processes of
/// the installation do not use. A storage that does not answer is no reason not to start: terminals wait for it.
pub async fn check(objects: &Objects, db: &Db) -> anyhow::Result<()> {
    let settle = async |found| {
        let settled = pg::object_storage_settle(db, found).await;
        settled.map_err(|failure| startup("the object storage cannot be compared", failure))
    };
    let known = settle(None).await?;
    let found = match storage_id(objects, db, known).await {
        Ok(found) => found,
        Err(error @ ObjectError::Overwrites) => {
            return Err(error).context("the configured object storage (objects.*) cannot be used");
        }
        Err(error) => {
            tracing::warn!(error = ?error, "the object storage does not answer; recorded terminals wait for it");
            return Ok(());
        }
    };
    let expected = settle(found).await?;
    if found == expected {
        return Ok(());
    }
    let text = |id: Option<Uuid>| id.map_or_else(|| "not there".to_owned(), |id| id.to_string());
    bail!(
        "the configured object storage (objects.*) is not the one that the installation uses: its object {STORAGE_ID} is {}, \
         instead of {}. Let all processes use one bucket, or one directory that all of them mount. When the storage was moved, \
         copy all objects, {STORAGE_ID} too; when it was lost, put an object {STORAGE_ID} with that id into the new one",
        text(found),
        text(expected)
    )
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
