//! The same behaviour on a file system and on a real S3 service.

#![allow(clippy::unwrap_used)]

mod behaviour;
mod directory;
mod s3;
