//! Where objects are stored: a directory, or a bucket of an S3 service.

use std::path::{Path, PathBuf};

use kernel::Secret;
use url::Url;

use super::Reader;

#[derive(Debug)]
pub struct ObjectStorage {
    /// Unless there is a bucket.
    pub directory: PathBuf,
    pub s3: Option<S3Settings>,
}

#[derive(Debug)]
pub struct S3Settings {
    pub endpoint: Url,
    pub region: String,
    pub bucket: String,
    pub prefix: String,
    pub access_key_id: String,
    pub secret: S3Secret,
}

#[derive(Debug)]
pub enum S3Secret {
    Given(Secret<String>),
    File(PathBuf),
}

pub(super) fn objects(r: &mut Reader, data_dir: &Path) -> ObjectStorage {
    let directory = r.path("objects.directory").unwrap_or_else(|| data_dir.join("objects"));
    ObjectStorage { directory, s3: s3(r) }
}

fn s3(r: &mut Reader) -> Option<S3Settings> {
    let endpoint = r.optional::<Url>("objects.s3.endpoint");
    let region = r.get("objects.s3.region", "us-east-1".to_owned());
    let bucket = r.optional::<String>("objects.s3.bucket");
    let prefix = r.get("objects.s3.prefix", String::new());
    let access_key_id = r.optional::<String>("objects.s3.access_key_id");
    let secret = r.secret("objects.s3.secret_access_key").map(S3Secret::Given);
    let secret_file = r.path("objects.s3.secret_access_key_file").map(S3Secret::File);
    if secret.is_some() && secret_file.is_some() {
        r.problem("objects.s3: secret_access_key and secret_access_key_file must not both be given");
    }
    let secret = secret.or(secret_file);
    if endpoint.is_none() && bucket.is_none() && access_key_id.is_none() && secret.is_none() {
        return None;
    }
    let (Some(endpoint), Some(bucket), Some(access_key_id), Some(secret)) =
        (endpoint, bucket, access_key_id, secret)
    else {
        r.problem(
            "objects.s3: endpoint, bucket, access_key_id and secret_access_key (or secret_access_key_file) must be given together",
        );
        return None;
    };
    if endpoint.scheme() != "https" && !(endpoint.scheme() == "http" && super::is_loopback(&endpoint)) {
        r.problem("objects.s3.endpoint: plain http is allowed for loopback addresses only; use https");
    }
    let is_plain = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if !prefix.is_empty() && !prefix.split('/').all(is_plain) {
        r.problem("objects.s3.prefix: must be names of letters, digits, dashes and underscores, separated by slashes");
    }
    Some(S3Settings { endpoint, region, bucket, prefix, access_key_id, secret })
}
