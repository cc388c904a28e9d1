//! The object storage that the configuration names.

use objects::{Objects, S3};

use crate::{
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
