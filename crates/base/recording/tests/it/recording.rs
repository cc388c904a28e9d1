//! What a recorder writes.

use chrono::TimeDelta;
use proptest::prelude::*;
use recording::{CHUNK_BYTES_MAX, Event, Fault, Gap, Limits};

use crate::kit::{Stored, at, key, recorder, sample, small};

#[test]
fn a_recording_is_an_asciicast_and_verifies() {
    let stored = sample();
    let verified = stored.verify().unwrap();
    assert!(verified.complete && verified.gaps.is_empty());
    assert_eq!(verified.chunks, stored.chunks.len() as u64);
    assert_eq!(verified.reason, "exited");
    assert_eq!(verified.key_id, kernel::ledger::key_id(&key(1).1));
    let expected: String = (0..40).map(|turn| format!("line {turn} ä\r\n")).collect();
    assert_eq!(stored.output(), expected);
    assert_eq!(verified.end_sequence, expected.len() as u64);
    let events = stored.events();
    assert!(events.contains(&Event::Resize { columns: 100, rows: 30 }));
    assert_eq!(events.iter().filter(|event| **event == Event::Input("ls\r".to_owned())).count(), 6);
}

#[test]
fn a_chunk_is_due_by_age_and_by_size() {
    let limits = Limits { chunk_bytes: 10_000, chunk_age: TimeDelta::seconds(5) };
    let mut recorder = recorder(limits);
    assert_eq!(recorder.due_at(), Some(at(5000)));
    assert!(recorder.chunk_if_due(at(4999)).is_none());
    let first = recorder.chunk_if_due(at(5000)).unwrap();
    assert_eq!((first.index, first.end_sequence), (0, 0));
    assert_eq!(recorder.due_at(), None);
    assert!(recorder.flush().is_none());
    assert!(recorder.output(at(6000), 0, b"a").is_empty());
    assert_eq!(recorder.due_at(), Some(at(11_000)));
    let by_size = recorder.output(at(6001), 1, &[b'b'; 10_000]);
    let ends: Vec<u64> = by_size.iter().map(|chunk| chunk.end_sequence).collect();
    assert_eq!(ends, [1, 10_001]);
}

#[test]
fn a_chunk_is_due_when_the_clock_was_set_back() {
    let mut recorder = recorder(Limits { chunk_bytes: 10_000, chunk_age: TimeDelta::seconds(5) });
    recorder.flush().unwrap();
    assert!(recorder.output(at(3_600_000), 0, b"an hour later").is_empty());
    assert!(recorder.chunk_if_due(at(3_600_000)).is_none());
    assert_eq!(recorder.chunk_if_due(at(1000)).unwrap().end_sequence, 13);
}

#[test]
fn no_chunk_is_larger_than_promised_whatever_is_printed() {
    let mut recorder = recorder(Limits::default());
    let mut chunks = recorder.output(at(1), 0, &vec![0x01; 3_000_000]);
    chunks.extend(recorder.output(at(2), 3_000_000, &vec![0xff; 3_000_000]));
    let stored = Stored::finished(chunks, recorder.finish(at(3), Some(6_000_000), "exited"));
    assert!(stored.chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES_MAX));
    assert!(stored.verify().unwrap().complete);
}

#[test]
fn lost_output_is_a_gap_and_the_recording_is_not_complete() {
    let mut recorder = recorder(small());
    let mut chunks = recorder.output(at(1), 0, b"before");
    chunks.extend(recorder.output(at(2), 100, b"after"));
    let stored = Stored::finished(chunks, recorder.finish(at(3), Some(110), "exited"));
    let verified = stored.verify().unwrap();
    assert!(!verified.complete);
    assert_eq!(verified.gaps, [Gap { from: 6, to: 100 }, Gap { from: 105, to: 110 }]);
    assert_eq!(stored.events()[1], Event::Gap { bytes: 94 });
    assert_eq!(stored.output(), "beforeafter");
}

#[test]
fn a_recording_whose_end_nobody_saw_is_not_complete() {
    let mut recorder = recorder(small());
    let chunks = recorder.output(at(1), 0, b"before");
    let stored = Stored::finished(chunks, recorder.finish(at(3), None, "lost"));
    assert!(!stored.verify().unwrap().complete);
    let unsealed = Stored { seal: None, ..stored };
    assert_eq!(unsealed.verify(), Err(Fault::NotSealed { count: 1 }));
}

proptest! {
    #[test]
    fn any_output_in_any_pieces_is_recorded_once(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..30),
        overlap in 0..50usize,
    ) {
        let all = pieces.concat();
        let mut recorder = recorder(small());
        let (mut chunks, mut end) = (Vec::new(), 0);
        for (turn, piece) in pieces.iter().enumerate() {
            // A client that is behind makes the node send what was recorded already.
            let from = end.max(overlap) - overlap;
            end += piece.len();
            chunks.extend(recorder.output(at(turn as i64), from as u64, &all[from..end]));
        }
        let stored = Stored::finished(chunks, recorder.finish(at(1000), Some(all.len() as u64), "exited"));
        prop_assert_eq!(stored.output(), String::from_utf8_lossy(&all));
        prop_assert!(stored.verify().unwrap().complete);
    }
}
