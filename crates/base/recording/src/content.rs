//! What must hold within a chunk: its lines, and that they are what its header says.

use crate::{
    chunk::{GAPS_LISTED_MAX, Header},
    event::{Event, is_file_header},
    fault::Fault,
};

/// What the events of a chunk stand for.
#[derive(Default)]
struct Counted {
    /// Bytes of output as text.
    text: u64,
    /// U+FFFD: three bytes of text that stand for one to three bytes of output.
    replaced: u64,
    /// What its gap markers say.
    gaps: Vec<u64>,
}

/// `before` is the header of the chunk before it.
pub(crate) fn check(header: &Header, body: &[u8], before: Option<&Header>) -> Result<(), Fault> {
    let index = header.index;
    let lines =
        if body.is_empty() { body } else { body.strip_suffix(b"\n").ok_or(Fault::Truncated { index })? };
    if before.is_some_and(|before| before.started_at != header.started_at) {
        return Err(Fault::StartContradicts { index });
    }
    let expected = before.map_or(0, |before| before.end_sequence);
    if header.first_sequence != expected {
        return Err(Fault::SequenceBroken { index, expected, found: header.first_sequence });
    }
    let counted = count(index, lines, before.is_none())?;
    let known = before.map_or(&[][..], |before| &before.gaps);
    let listed = header.gaps.strip_prefix(known).ok_or(Fault::GapsContradict { index })?;
    let room = GAPS_LISTED_MAX.saturating_sub(known.len());
    let sizes = counted.gaps.iter().take(room).copied();
    if !listed.iter().map(|gap| gap.to.saturating_sub(gap.from)).eq(sizes) {
        return Err(Fault::GapsContradict { index });
    }
    let covered = header.end_sequence - header.first_sequence;
    let output = covered.checked_sub(counted.gaps.iter().fold(0, |sum: u64, gap| sum.saturating_add(*gap)));
    let least = counted.text.saturating_sub(2 * counted.replaced);
    match output {
        Some(output) if (least..=counted.text).contains(&output) => Ok(()),
        _ => Err(Fault::OutputUnaccounted { index }),
    }
}

fn count(index: u64, lines: &[u8], is_first: bool) -> Result<Counted, Fault> {
    let mut counted = Counted::default();
    // The header of the chunk is its first line.
    for (line, number) in lines.split(|byte| *byte == b'\n').zip(2..) {
        if is_first && number == 2 {
            if !is_file_header(line) {
                return Err(Fault::EventUnreadable { index, line: number });
            }
            continue;
        }
        let (_, event) = Event::parse(line).ok_or(Fault::EventUnreadable { index, line: number })?;
        match event {
            Event::Output(text) => {
                counted.text += text.len() as u64;
                counted.replaced += text.matches(char::REPLACEMENT_CHARACTER).count() as u64;
            }
            Event::Gap { bytes } => counted.gaps.push(bytes),
            Event::Input(_) | Event::Resize { .. } | Event::Resumed | Event::Closed => {}
        }
    }
    Ok(counted)
}
