//! Exports, checked line by line.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    chain::{ChainVerifier, Verify},
    fault::Fault,
    record::{Checkpoint, Head, Line, Posting},
};

/// One line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportLine {
    Head(Head),
    Posting(Box<Posting>),
    Line(Box<Line>),
    Checkpoint(Box<Checkpoint>),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ExportFault {
    #[error("line {line} is not a valid export line; export again, or restore the original file")]
    Unreadable { line: u64 },
    #[error("line {line} comes before any head line; export again, or restore the original file")]
    Headless { line: u64 },
    #[error("the file is empty; export again")]
    Empty,
    #[error("{0}")]
    Chain(Fault),
}

/// What was found good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub chains: u64,
    pub postings: u64,
    pub lines: u64,
    pub checkpoints: u64,
    /// Which keys signed; whoever checks a file compares them with the keys of the installation.
    pub keys: BTreeSet<String>,
}

/// Keys named by one verification.
const KEYS_NAMED: usize = 100;

/// Checks an export in bounded memory.
#[derive(Debug, Default)]
pub struct ExportVerifier {
    current: Option<ChainVerifier>,
    line: u64,
    found: Verified,
}

impl ExportVerifier {
    /// The next line of the file, without its end.
    pub fn line(&mut self, text: &str, verify: Verify<'_>) -> Result<(), ExportFault> {
        self.line += 1;
        if text.is_empty() {
            return Ok(());
        }
        let unreadable = ExportFault::Unreadable { line: self.line };
        let Ok(line) = serde_json::from_str::<ExportLine>(text) else { return Err(unreadable) };
        self.record(&line, verify)?;
        // A byte that makes no difference to what was read (such as the case of a digit) was changed all the same.
        match serde_json::to_string(&line) {
            Ok(again) if again == text => Ok(()),
            _ => Err(unreadable),
        }
    }

    /// The same for a line that was not read from text.
    pub fn record(&mut self, line: &ExportLine, verify: Verify<'_>) -> Result<(), ExportFault> {
        if let ExportLine::Head(head) = line {
            self.end_chain()?;
            self.current = Some(ChainVerifier::new(head.clone()));
            return Ok(());
        }
        let Some(chain) = &mut self.current else { return Err(ExportFault::Headless { line: self.line }) };
        match line {
            ExportLine::Head(_) => Ok(()),
            ExportLine::Posting(posting) => chain.posting(posting),
            ExportLine::Line(line) => chain.line(line),
            ExportLine::Checkpoint(checkpoint) => {
                if self.found.keys.len() < KEYS_NAMED {
                    self.found.keys.insert(checkpoint.key_id.clone());
                }
                chain.checkpoint(checkpoint, verify)
            }
        }
        .map_err(ExportFault::Chain)
    }

    fn end_chain(&mut self) -> Result<(), ExportFault> {
        if let Some(mut chain) = self.current.take() {
            chain.finish().map_err(ExportFault::Chain)?;
            self.found.chains += 1;
            self.found.postings += chain.postings();
            self.found.lines += chain.lines();
            self.found.checkpoints += chain.checkpoints();
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Verified, ExportFault> {
        if self.current.is_none() {
            return Err(ExportFault::Empty);
        }
        self.end_chain()?;
        Ok(self.found)
    }
}
