//! The storage behind the interface.

use std::{
    fmt, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kernel::Secret;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig,
    aws::AmazonS3Builder,
    client::{HttpClient, HttpConnector},
    local::LocalFileSystem,
    prefix::PrefixStore,
};
use tokio::time::{error::Elapsed, timeout};
use url::Url;

use crate::key::ObjectKey;

/// No object is larger.
pub const LARGEST: usize = 8 * 1024 * 1024;
/// Every call ends within this time, retries included.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const RETRIES_MAX: usize = 3;
/// Objects that are deleted before the storage is asked for more.
const DELETE_BATCH: usize = 1000;
/// The object by which a storage is probed. Its name has a dot, so that it is no [`ObjectKey`].
const PROBE: &str = "conditional-put.probe";

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("the object exists, with another content")]
    AlreadyExists,
    #[error("the object is larger than {LARGEST} bytes")]
    TooLarge,
    #[error("the object storage did not answer in time")]
    TimedOut,
    #[error("the object storage failed")]
    Failed(#[source] Error),
    /// Two writers of one recording would not notice each other.
    #[error(
        "the object storage overwrites objects although it is told not to (If-None-Match on PUT); use one that supports \
         conditional writes"
    )]
    Overwrites,
    #[error("the directory of the object storage cannot be used")]
    Directory(#[source] io::Error),
    #[error("the object storage is not used before it is known to be the one of the installation")]
    Held,
}

impl From<Error> for ObjectError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A bucket of an S3 service.
pub struct S3 {
    pub endpoint: Url,
    pub region: String,
    pub bucket: String,
    /// What the keys of all objects begin with; may be empty.
    pub prefix: String,
    pub access_key_id: String,
    pub secret_access_key: Secret<String>,
}

/// Cheap to clone. Making one touches neither the directory nor the network.
#[derive(Clone)]
pub struct Objects {
    storage: Arc<Storage>,
    /// Works while the storage is held.
    ignores_hold: bool,
}

struct Storage {
    place: Place,
    /// Set when the storage was found to keep existing objects.
    keeps: OnceLock<()>,
    is_held: AtomicBool,
}

enum Place {
    /// The directory, and what is in it once it was used.
    Directory(PathBuf, OnceLock<LocalFileSystem>),
    Bucket(Box<dyn ObjectStore>),
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.storage.place {
            Place::Directory(path, _) => write!(f, "Objects({})", path.display()),
            Place::Bucket(bucket) => write!(f, "Objects({bucket})"),
        }
    }
}

fn directory_open(path: &Path) -> Result<LocalFileSystem, ObjectError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(ObjectError::Directory)?;
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(path, private).map_err(ObjectError::Directory)?;
    // What was put is there after a power cut too: others go on in the belief that it is.
    Ok(LocalFileSystem::new_with_prefix(path)?.with_automatic_cleanup(true).with_fsync(true))
}

/// The server makes its HTTP client in one place, with timeouts, and follows no redirects.
#[derive(Debug)]
struct Given(reqwest::Client);

impl HttpConnector for Given {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, ObjectError> {
    Ok(timeout(CALL_TIMEOUT, call).await.map_err(|_| ObjectError::TimedOut)??)
}

/// What was not there need not be removed.
fn removed(result: Result<io::Result<()>, Elapsed>) -> Result<(), ObjectError> {
    match result {
        Err(_) => Err(ObjectError::TimedOut),
        Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(ObjectError::Directory(error)),
        Ok(_) => Ok(()),
    }
}

impl Objects {
    fn at(place: Place) -> Self {
        let (keeps, is_held) = (OnceLock::new(), AtomicBool::new(false));
        Self { storage: Arc::new(Storage { place, keeps, is_held }), ignores_hold: false }
    }

    /// From now on every call fails with [`ObjectError::Held`], until [`Self::release`]: nobody knows yet whether it is the right
    /// storage, and in a wrong one objects are missing, which looks as if somebody had removed them.
    pub fn hold(&self) {
        self.storage.is_held.store(true, Ordering::Release);
    }

    pub fn release(&self) {
        self.storage.is_held.store(false, Ordering::Release);
    }

    pub fn is_held(&self) -> bool {
        self.storage.is_held.load(Ordering::Acquire)
    }

    /// The same objects, for whoever finds out which storage it is.
    #[must_use]
    pub fn ignoring_hold(&self) -> Self {
        Self { storage: self.storage.clone(), ignores_hold: true }
    }

    fn refuse_held(&self) -> Result<(), ObjectError> {
        if self.is_held() && !self.ignores_hold { Err(ObjectError::Held) } else { Ok(()) }
    }

    /// Objects as files below this directory, which is made when it is first used.
    pub fn in_directory(directory: PathBuf) -> Self {
        Self::at(Place::Directory(directory, OnceLock::new()))
    }

    fn store(&self) -> Result<&dyn ObjectStore, ObjectError> {
        self.refuse_held()?;
        match &self.storage.place {
            Place::Bucket(bucket) => Ok(&**bucket),
            Place::Directory(path, opened) => match opened.get() {
                Some(opened) => Ok(opened),
                None => {
                    let directory = directory_open(path)?;
                    Ok(opened.get_or_init(|| directory))
                }
            },
        }
    }

    /// Connects to nothing yet.
    pub fn in_bucket(s3: &S3, http: reqwest::Client) -> Result<Self, ObjectError> {
        let backoff = BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() };
        let store = AmazonS3Builder::new()
            .with_endpoint(s3.endpoint.as_str().trim_end_matches('/'))
            .with_allow_http(s3.endpoint.scheme() == "http")
            .with_region(&s3.region)
            .with_bucket_name(&s3.bucket)
            .with_access_key_id(&s3.access_key_id)
            .with_secret_access_key(s3.secret_access_key.expose())
            .with_retry(RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: CALL_TIMEOUT })
            .with_http_connector(Given(http))
            .build()?;
        if s3.prefix.is_empty() {
            return Ok(Self::at(Place::Bucket(Box::new(store))));
        }
        let store = PrefixStore::new(store, s3.prefix.as_str());
        Ok(Self::at(Place::Bucket(Box::new(store))))
    }

    /// Whether an existing object stays as it is. A service that ignores the condition is found before anything else is put:
    /// of two contents of one object, the second must be refused.
    pub async fn check_keeps(&self) -> Result<(), ObjectError> {
        if self.storage.keeps.get().is_some() {
            return Ok(());
        }
        let key = object_store::path::Path::from(PROBE);
        for (content, must_exist) in [("first", false), ("second", true)] {
            let options = PutOptions::from(PutMode::Create);
            match within(self.store()?.put_opts(&key, content.into(), options)).await {
                Err(ObjectError::Failed(Error::AlreadyExists { .. } | Error::Precondition { .. })) => {}
                Ok(_) if must_exist => return Err(ObjectError::Overwrites),
                put => drop(put?),
            }
        }
        let _ = self.storage.keeps.set(());
        Ok(())
    }

    /// Creates an object; an existing one stays as it is. The same content again is a success: it was a repetition.
    pub async fn put_new(&self, key: &ObjectKey, content: Bytes) -> Result<(), ObjectError> {
        if content.len() > LARGEST {
            return Err(ObjectError::TooLarge);
        }
        self.check_keeps().await?;
        let options = PutOptions::from(PutMode::Create);
        match within(self.store()?.put_opts(key.path(), content.clone().into(), options)).await {
            Ok(_) => Ok(()),
            Err(ObjectError::Failed(Error::AlreadyExists { .. } | Error::Precondition { .. })) => {
                if self.get(key).await?.is_some_and(|existing| existing == content) {
                    Ok(())
                } else {
                    Err(ObjectError::AlreadyExists)
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Nothing when there is no such object.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Bytes>, ObjectError> {
        let reading = async {
            let found = match self.store()?.get(key.path()).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if found.meta.size > LARGEST as u64 {
                return Err(ObjectError::TooLarge);
            }
            Ok(Some(found.bytes().await?))
        };
        timeout(CALL_TIMEOUT, reading).await.map_err(|_| ObjectError::TimedOut)?
    }

    pub async fn exists(&self, key: &ObjectKey) -> Result<bool, ObjectError> {
        match within(self.store()?.head(key.path())).await {
            Ok(_) => Ok(true),
            Err(ObjectError::Failed(Error::NotFound { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Objects below a key, at most `limit`, in no order that may be relied on.
    pub async fn list(&self, below: &ObjectKey, limit: usize) -> Result<Vec<ObjectKey>, ObjectError> {
        let found = self.store()?.list(Some(below.path())).take(limit);
        let listed = within(found.try_collect::<Vec<_>>()).await?;
        Ok(listed.iter().filter_map(|object| ObjectKey::listed(&object.location)).collect())
    }

    /// Removes what processes that died left beside the objects directly below a key: files that were being written, which are
    /// not listed. For a place where nobody writes any more.
    pub async fn staged_remove(&self, below: &ObjectKey) -> Result<(), ObjectError> {
        self.refuse_held()?;
        let Place::Directory(root, _) = &self.storage.place else { return Ok(()) };
        let folder = root.join(below.to_string());
        let removing = async {
            let mut files = tokio::fs::read_dir(folder).await?;
            while let Some(file) = files.next_entry().await? {
                // As `object_store` names them; no key has such a part.
                if file.file_name().as_encoded_bytes().contains(&b'#') {
                    tokio::fs::remove_file(file.path()).await?;
                }
            }
            Ok(())
        };
        removed(timeout(CALL_TIMEOUT, removing).await)
    }

    /// Deletes all objects below a key. Answers how many there were. A call that fails in the middle is repeated later.
    pub async fn delete_below(&self, below: &ObjectKey) -> Result<usize, ObjectError> {
        let mut count = 0;
        loop {
            let listed = self.list(below, DELETE_BATCH).await?;
            if listed.is_empty() {
                self.folder_remove(below).await?;
                return Ok(count);
            }
            count += listed.len();
            let paths = listed.iter().map(|key| Ok(key.path().clone())).collect::<Vec<_>>();
            let deleted = self.store()?.delete_stream(stream::iter(paths).boxed());
            let deleted = deleted.filter(|deleted| {
                let is_gone = matches!(deleted, Err(Error::NotFound { .. }));
                async move { !is_gone }
            });
            within(deleted.try_for_each(|_| async { Ok(()) })).await?;
        }
    }

    /// What is left of a directory whose objects are deleted: files that are none.
    async fn folder_remove(&self, below: &ObjectKey) -> Result<(), ObjectError> {
        let Place::Directory(root, _) = &self.storage.place else { return Ok(()) };
        removed(timeout(CALL_TIMEOUT, tokio::fs::remove_dir_all(root.join(below.to_string()))).await)
    }
}
