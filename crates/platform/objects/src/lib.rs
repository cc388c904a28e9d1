//! Objects: named bytes that are written once, in a directory or in a bucket of an S3 service.
//!
//! **What it is for.** What is too large for the database, and must not change once it is written: recordings of terminal
//! sessions. One small interface over the crate `object_store`; nothing else in the server uses that crate.
//!
//! **How it works.** An [`ObjectKey`] is a short path of names; it is checked when it is made, so that no key leaves the
//! directory or the prefix of the bucket. [`Objects::put_new`] creates and never overwrites: on a file system the object is
//! written beside its place and linked to it, on S3 the request carries `If-None-Match: *`, so that of two writers exactly one
//! succeeds; a service that ignores the condition is found before the first object ([`Objects::check_keeps`]). A repeated
//! request whose first answer was lost finds its own object, compares it, and has succeeded.
//!
//! **What it promises.** Every call ends within [`CALL_TIMEOUT`], retries included, and holds at most [`LARGEST`] bytes of an
//! object. A storage that may be a wrong one is held ([`Objects::hold`]): nobody reads or writes anything in it meanwhile. An
//! error says whether the object is there already ([`ObjectError::AlreadyExists`]); all others mean that nobody knows, and that
//! the same call may succeed later. Objects in a directory are readable by the user of the server only.

mod key;
mod storage;

pub use key::{InvalidKey, ObjectKey};
pub use storage::{CALL_TIMEOUT, LARGEST, ObjectError, Objects, S3};
