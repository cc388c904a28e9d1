//! What can be wrong with a recording.

use kernel::ids::TerminalSessionId;

/// The first thing that is wrong with a recording. Programs decide by [`Fault::code`]; sentences are for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("there are no chunks; download the recording again")]
    Empty,
    #[error(
        "chunk {index} does not begin with a header: it was edited or is not a chunk; restore it from a backup of the object storage"
    )]
    HeaderUnreadable { index: u64 },
    #[error(
        "chunk {index} is larger than any recorder writes: it was edited; restore it from a backup of the object storage"
    )]
    TooLarge { index: u64 },
    #[error(
        "chunk {index} ends within a line: it was cut off; download it again, or restore it from a backup"
    )]
    Truncated { index: u64 },
    #[error(
        "chunk {index} was edited: its digest is not the recorded one; restore it from a backup of the object storage"
    )]
    Edited { index: u64 },
    #[error(
        "chunk {index} or chunk {} was edited: their digests do not match, and nothing after them tells which; restore both from a backup",
        index + 1
    )]
    LinkBroken { index: u64 },
    #[error(
        "chunk {index} is not the one that was sealed: it was edited, or written anew with chunks before it; restore the recording from a backup"
    )]
    HeadMismatch { index: u64 },
    #[error("{} missing; download again, or restore from a backup of the object storage", chunks(*from, *to))]
    Missing { from: u64, to: u64 },
    #[error("chunk {found} is where chunk {position} belongs; give the chunks in the order of their index")]
    Reordered { position: u64, found: u64 },
    #[error(
        "chunk {index} comes after the end that was sealed: it does not belong to the recording; remove it"
    )]
    AfterSeal { index: u64 },
    #[error(
        "chunk {index} comes after the one that ended the recording: it does not belong to it; report this to the operator of the installation"
    )]
    AfterClose { index: u64 },
    #[error(
        "chunk {index} was stored by somebody who is no gateway of the installation; keep it as evidence, and remove it from the object storage"
    )]
    NotStoredByGateway { index: u64 },
    #[error("chunk {index} belongs to session {found}; give the chunks of one session")]
    SessionForeign { index: u64, found: TerminalSessionId },
    #[error(
        "chunk {index} begins at byte {found} of the output, not at byte {expected}: output is missing without a gap marker; report this to the operator of the installation"
    )]
    SequenceBroken { index: u64, expected: u64, found: u64 },
    #[error(
        "chunk {index} holds more or less output than its header says, without a gap marker; report this to the operator of the installation"
    )]
    OutputUnaccounted { index: u64 },
    #[error("chunk {index} lists other gaps than it marks; report this to the operator of the installation")]
    GapsContradict { index: u64 },
    #[error(
        "chunk {index} names another start of the session than the first chunk; report this to the operator of the installation"
    )]
    StartContradicts { index: u64 },
    #[error(
        "line {line} of chunk {index} is not a line of a recording; restore it from a backup of the object storage"
    )]
    EventUnreadable { index: u64, line: u64 },
    #[error(
        "not sealed; the last chunk may be missing. The {count} chunks that are here fit together; if the session still runs, verify when it has ended"
    )]
    NotSealed { count: u64 },
    #[error(
        "the seal is not one of a recording, or was edited; restore it from a backup of the object storage"
    )]
    SealUnreadable,
    #[error("the seal belongs to session {found}; give the seal of the same session")]
    SealForeign { found: TerminalSessionId },
    #[error(
        "the seal was signed with key {key_id}, which is not one of the given keys; compare with the keys of the installation"
    )]
    SealKeyUnknown { key_id: String },
    #[error("the signature of the seal is not valid: the seal was edited; restore it from a backup")]
    SealForged,
    #[error(
        "the seal contradicts the chunks in the end of the output, its gaps or completeness; report this to the operator of the installation"
    )]
    SealContradicts,
}

/// `to` is the first one that is there, or the number of all.
fn chunks(from: u64, to: u64) -> String {
    match to.saturating_sub(1) {
        last if last <= from => format!("chunk {from} is"),
        last => format!("chunks {from} to {last} are"),
    }
}

impl Fault {
    /// Stable: scripts may compare with it.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty => "recording_empty",
            Self::HeaderUnreadable { .. } => "chunk_header_unreadable",
            Self::TooLarge { .. } => "chunk_too_large",
            Self::Truncated { .. } => "chunk_truncated",
            Self::Edited { .. } => "chunk_edited",
            Self::LinkBroken { .. } => "chunk_link_broken",
            Self::HeadMismatch { .. } => "chunk_head_mismatch",
            Self::Missing { .. } => "chunk_missing",
            Self::Reordered { .. } => "chunk_reordered",
            Self::AfterSeal { .. } => "chunk_after_seal",
            Self::AfterClose { .. } => "chunk_after_close",
            Self::NotStoredByGateway { .. } => "chunk_not_stored_by_gateway",
            Self::SessionForeign { .. } => "chunk_session_foreign",
            Self::SequenceBroken { .. } => "chunk_sequence_broken",
            Self::OutputUnaccounted { .. } => "chunk_output_unaccounted",
            Self::GapsContradict { .. } => "chunk_gaps_contradict",
            Self::StartContradicts { .. } => "chunk_start_contradicts",
            Self::EventUnreadable { .. } => "chunk_event_unreadable",
            Self::NotSealed { .. } => "recording_not_sealed",
            Self::SealUnreadable => "seal_unreadable",
            Self::SealForeign { .. } => "seal_session_foreign",
            Self::SealKeyUnknown { .. } => "seal_key_unknown",
            Self::SealForged => "seal_signature_invalid",
            Self::SealContradicts => "seal_contradicts_chunks",
        }
    }

    /// The chunk that is at fault, by its place in the recording; nothing when it is the seal, or no single chunk.
    pub const fn chunk(&self) -> Option<u64> {
        match self {
            Self::HeaderUnreadable { index }
            | Self::TooLarge { index }
            | Self::Truncated { index }
            | Self::Edited { index }
            | Self::LinkBroken { index }
            | Self::HeadMismatch { index }
            | Self::Missing { from: index, .. }
            | Self::Reordered { position: index, .. }
            | Self::AfterSeal { index }
            | Self::AfterClose { index }
            | Self::NotStoredByGateway { index }
            | Self::SessionForeign { index, .. }
            | Self::SequenceBroken { index, .. }
            | Self::OutputUnaccounted { index }
            | Self::GapsContradict { index }
            | Self::StartContradicts { index }
            | Self::EventUnreadable { index, .. } => Some(*index),
            Self::Empty
            | Self::NotSealed { .. }
            | Self::SealUnreadable
            | Self::SealForeign { .. }
            | Self::SealKeyUnknown { .. }
            | Self::SealForged
            | Self::SealContradicts => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_chunks_are_named_one_or_many() {
        let one = Fault::Missing { from: 3, to: 4 }.to_string();
        assert!(one.starts_with("chunk 3 is missing;"), "{one}");
        let many = Fault::Missing { from: 3, to: 6 }.to_string();
        assert!(many.starts_with("chunks 3 to 5 are missing;"), "{many}");
        assert_eq!(Fault::Missing { from: 3, to: 6 }.chunk(), Some(3));
    }

    #[test]
    fn a_broken_link_names_both_chunks() {
        let text = Fault::LinkBroken { index: 4 }.to_string();
        assert!(text.starts_with("chunk 4 or chunk 5 was edited"), "{text}");
    }
}
