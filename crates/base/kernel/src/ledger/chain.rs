//! Walks one chain in order, keeping only what the next step needs.

use sha2::{Digest as _, Sha256};

use super::{
    fault::{Fault, FaultReason as Reason},
    record::{Checkpoint, Head, Line, Posting, genesis, key_id},
};
use crate::ids::PostingId;

/// Answers whether a signature (last) of a message by a public key (first) is good, and the key is one to trust.
pub type Verify<'a> = &'a (dyn Fn(&[u8], &[u8], &[u8]) -> bool + Sync);

/// A posting whose lines are coming.
#[derive(Clone, Debug)]
struct Open {
    posting: Posting,
    seen: i32,
    digest: Sha256,
    total: i128,
    gained: [i128; 4],
}

#[derive(Clone, Debug)]
pub struct ChainVerifier {
    head: Head,
    seq: i64,
    hash: Vec<u8>,
    balances: [i64; 4],
    checkpoint_seq: i64,
    open: Option<Open>,
    lines: u64,
    checkpoints: u64,
}

impl ChainVerifier {
    pub fn new(head: Head) -> Self {
        let hash = genesis(head.org_id).to_vec();
        let (balances, lines, checkpoints) = ([0; 4], 0, 0);
        Self { head, seq: 0, hash, balances, checkpoint_seq: 0, open: None, lines, checkpoints }
    }

    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// How many postings were found good, with their lines.
    pub fn postings(&self) -> u64 {
        u64::try_from(self.seq).unwrap_or(0)
    }

    /// How many lines of these there are.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    pub const fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    fn fault(&self, seq: i64, line: Option<i32>, id: Option<PostingId>, reason: Reason) -> Fault {
        Fault { org_id: self.head.org_id, seq, line, id, reason }
    }

    pub fn posting(&mut self, posting: &Posting) -> Result<(), Fault> {
        if self.open.as_ref().is_some_and(|open| posting.seq <= open.posting.seq) {
            return Err(self.fault(posting.seq, None, Some(posting.id), Reason::Inserted));
        }
        self.close()?;
        let (next, id) = (self.seq.saturating_add(1), Some(posting.id));
        if posting.org_id != self.head.org_id || posting.seq < next {
            return Err(self.fault(posting.seq, None, id, Reason::Inserted));
        }
        if posting.seq > next {
            return Err(self.fault(next, None, None, Reason::Removed));
        }
        if posting.prev_hash.0 != self.hash {
            return Err(self.fault(next, None, id, Reason::Unlinked));
        }
        if posting.expected_hash(&self.hash)[..] != posting.hash.0 {
            return Err(self.fault(next, None, id, Reason::Changed));
        }
        if posting.currency != self.head.currency {
            return Err(self.fault(next, None, id, Reason::HeadMismatch));
        }
        let posting = posting.clone();
        self.open = Some(Open { posting, seen: 0, digest: Sha256::new(), total: 0, gained: [0; 4] });
        Ok(())
    }

    pub fn line(&mut self, line: &Line) -> Result<(), Fault> {
        let number = Some(line.line);
        let Some(open) = self.open.as_ref().filter(|open| open.posting.seq == line.seq) else {
            self.close()?;
            // Lines without their posting: it was taken away, or they were put there.
            if line.seq == self.seq.saturating_add(1) && line.seq <= self.head.seq {
                return Err(self.fault(line.seq, None, None, Reason::Removed));
            }
            return Err(self.fault(line.seq, number, None, Reason::Inserted));
        };
        let (next, of, id) = (open.seen.saturating_add(1), open.posting.lines, Some(open.posting.id));
        let good = line.posted_at == open.posting.posted_at
            && line.correlation_id == open.posting.correlation_id
            && line.expected_leaf()[..] == line.leaf.0;
        if line.line < next || line.line > of {
            return Err(self.fault(line.seq, number, id, Reason::Inserted));
        }
        if line.line > next {
            return Err(self.fault(line.seq, Some(next), id, Reason::Removed));
        }
        if !good {
            return Err(self.fault(line.seq, number, id, Reason::Changed));
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let amount = i128::from(line.amount_minor);
        open.seen = next;
        open.digest.update(&line.leaf.0);
        // No sum of 2^31 numbers of 64 bits leaves 128.
        open.total = open.total.saturating_add(amount);
        if let Some(gained) = line.balance().and_then(|place| open.gained.get_mut(place)) {
            *gained += amount;
        }
        Ok(())
    }

    /// All lines of the open posting have come.
    fn close(&mut self) -> Result<(), Fault> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let Open { posting, seen, digest, total, gained } = open;
        let (seq, id) = (posting.seq, Some(posting.id));
        if seen < posting.lines {
            return Err(self.fault(seq, Some(seen.saturating_add(1)), id, Reason::Removed));
        }
        if digest.finalize()[..] != posting.lines_digest.0 {
            return Err(self.fault(seq, None, id, Reason::LinesChanged));
        }
        if total != 0 {
            return Err(self.fault(seq, None, id, Reason::Unbalanced));
        }
        let after = posting.balances();
        let before = self.balances.iter().zip(gained);
        if !before
            .zip(after)
            .all(|((before, gained), after)| i128::from(*before) + gained == i128::from(after))
        {
            return Err(self.fault(seq, None, id, Reason::BalancesWrong));
        }
        self.balances = after;
        self.seq = seq;
        self.hash = posting.hash.0;
        self.lines += u64::try_from(seen).unwrap_or(0);
        Ok(())
    }

    /// A checkpoint stands after the lines of the posting that it signs.
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint, verify: Verify<'_>) -> Result<(), Fault> {
        self.close()?;
        let fault = |reason| self.fault(checkpoint.seq, None, None, reason);
        let genuine = checkpoint.org_id == self.head.org_id
            && checkpoint.key_id == key_id(&checkpoint.public_key.0)
            && verify(&checkpoint.public_key.0, &checkpoint.message(), &checkpoint.signature.0);
        if !genuine {
            return Err(fault(Reason::CheckpointForged));
        }
        if checkpoint.seq > self.seq {
            return Err(self.fault(self.seq.saturating_add(1), None, None, Reason::Removed));
        }
        if checkpoint.prev_seq > self.checkpoint_seq {
            return Err(self.fault(checkpoint.prev_seq, None, None, Reason::CheckpointRemoved));
        }
        if checkpoint.prev_seq < self.checkpoint_seq || checkpoint.seq < self.seq {
            return Err(fault(Reason::CheckpointInserted));
        }
        if checkpoint.hash.0 != self.hash {
            return Err(fault(Reason::CheckpointMismatch));
        }
        self.checkpoint_seq = checkpoint.seq;
        self.checkpoints += 1;
        Ok(())
    }

    /// Everything has come: compares what was walked with the head that was kept apart.
    pub fn finish(&mut self) -> Result<(), Fault> {
        self.close()?;
        let head = &self.head;
        if head.seq > self.seq {
            return Err(self.fault(self.seq.saturating_add(1), None, None, Reason::Removed));
        }
        if head.seq < self.seq {
            return Err(self.fault(head.seq.saturating_add(1), None, None, Reason::Inserted));
        }
        if head.hash.0 != self.hash {
            return Err(self.fault(self.seq, None, None, Reason::HeadMismatch));
        }
        if head.checkpoint_seq > self.checkpoint_seq {
            return Err(self.fault(head.checkpoint_seq, None, None, Reason::CheckpointRemoved));
        }
        if head.checkpoint_seq < self.checkpoint_seq {
            return Err(self.fault(self.checkpoint_seq, None, None, Reason::CheckpointInserted));
        }
        Ok(())
    }
}
