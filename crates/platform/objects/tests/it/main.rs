//! The same behaviour on a file system and on a real S3 service.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod behaviour;
mod directory;
mod s3;
