//! Unix ids, in blocks: nothing that a former user left can belong to a later one.

use std::sync::{Arc, Mutex};

use kernel::Failure;
use pg::WriteTx;

use crate::store;

/// As many as the sequence steps by.
const BLOCK: i32 = 64;
/// Machines take them for nobody, and give them to nobody.
const NOBODY: [i32; 2] = [65_534, 65_535];

#[derive(Clone, Default)]
pub struct Uids(Arc<Mutex<std::ops::Range<i32>>>);

impl Uids {
    /// `count` ids that nobody has had. A block that a crash forgets is lost; there are enough.
    pub async fn take(&self, tx: &mut WriteTx, count: usize) -> Result<Vec<i32>, Failure> {
        let mut taken = Vec::with_capacity(count);
        loop {
            let missing = count - taken.len();
            taken.extend(self.lock().by_ref().filter(|id| !NOBODY.contains(id)).take(missing));
            if taken.len() == count {
                return Ok(taken);
            }
            let first = store::uids::next_block(tx.conn()).await?;
            *self.lock() = first..first + BLOCK;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, std::ops::Range<i32>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}
