//! What use cases say of a resource they touched, in the words of the three things that can happen to one.

use kernel::{Failure, Problem};
use serde::Serialize;

use crate::WriteTx;

pub fn created<A: Serialize>(
    tx: &mut WriteTx,
    kind: &'static str,
    id: impl ToString,
    after: &A,
) -> Result<(), Failure> {
    Ok(tx.record(kind, id, None::<&()>, Some(after))?)
}

pub fn changed<T: Serialize>(
    tx: &mut WriteTx,
    kind: &'static str,
    id: impl ToString,
    before: &T,
    after: &T,
) -> Result<(), Failure> {
    Ok(tx.record(kind, id, Some(before), Some(after))?)
}

pub fn removed<B: Serialize>(
    tx: &mut WriteTx,
    kind: &'static str,
    id: impl ToString,
    before: &B,
) -> Result<(), Failure> {
    Ok(tx.record(kind, id, Some(before), None::<&()>)?)
}

/// The row, or that there is no such thing.
pub fn found<T>(row: Option<T>, kind: &'static str) -> Result<T, Problem> {
    row.ok_or_else(|| Problem::not_found(kind))
}
