//! Another gateway goes on.

use recording::{Event, Fault, Gap, Recorder, SEQUENCE_MAX, Tail};

use crate::kit::{Stored, at, recorder, session, small};

#[test]
fn a_recording_goes_on_after_its_last_chunk_as_if_nothing_had_happened() {
    let text: Vec<u8> = (0..200).flat_map(|n| format!("{n} ä😀\r\n").into_bytes()).collect();
    for cut in (0..text.len()).step_by(7) {
        let mut first = recorder(small());
        let mut chunks = first.output(at(1), 0, &text[..cut]);
        if chunks.is_empty() {
            continue;
        }
        // What the first one did not store dies with it.
        drop(first);
        let last = chunks.last().unwrap();
        let tail = Tail::read(session(), last.index, &last.bytes).unwrap();
        let mut second = Recorder::resume(tail).with_limits(small());
        assert!(second.next_sequence() <= cut as u64);
        let from = usize::try_from(second.next_sequence()).unwrap();
        // Its clock is behind.
        chunks.extend(second.output(at(0), from as u64, &text[from..]));
        let stored = Stored::finished(chunks, second.finish(at(9), Some(text.len() as u64), "exited"));
        assert!(stored.verify().unwrap().complete, "cut at {cut}");
        assert_eq!(stored.output().as_bytes(), text, "cut at {cut}");
    }
}

#[test]
fn what_the_node_did_not_keep_is_a_gap_and_says_so_in_every_later_chunk() {
    let mut first = recorder(small());
    let mut chunks = first.output(at(1), 0, &[b'a'; 500]);
    let last = chunks.last().unwrap();
    let end = last.end_sequence;
    let mut second = Recorder::resume(Tail::read(session(), last.index, &last.bytes).unwrap());
    chunks.extend(second.resumed(at(2)));
    chunks.extend(second.output(at(3), 10_000, b"later"));
    let stored = Stored::finished(chunks, second.finish(at(4), Some(10_005), "exited"));
    let verified = stored.verify().unwrap();
    assert_eq!((verified.complete, verified.gaps), (false, vec![Gap { from: end, to: 10_000 }]));
    assert!(stored.events().contains(&Event::Resumed));
}

#[test]
fn nobody_goes_on_after_what_is_not_the_last_chunk() {
    let mut recorder = recorder(small());
    let chunks = recorder.output(at(1), 0, &[b'a'; 500]);
    let chunk = chunks.last().unwrap();
    assert_eq!(
        Tail::read(session(), chunk.index + 1, &chunk.bytes),
        Err(Fault::Reordered { position: chunk.index + 1, found: chunk.index })
    );
    let cut = &chunk.bytes[..chunk.bytes.len() - 3];
    assert_eq!(Tail::read(session(), chunk.index, cut), Err(Fault::Truncated { index: chunk.index }));
    assert_eq!(Tail::read(session(), 0, b"x\n"), Err(Fault::HeaderUnreadable { index: 0 }));
}

#[test]
fn what_no_session_prints_is_not_recorded_and_the_recording_stays_one() {
    let mut first = recorder(small());
    let mut chunks = first.output(at(1), 0, b"before\r\n");
    chunks.extend(first.output(at(2), u64::MAX, b"nonsense"));
    chunks.extend(first.output(at(2), SEQUENCE_MAX, b"nonsense"));
    assert_eq!(first.next_sequence(), 8);
    // The last bytes that have a number, the first of a character among them.
    chunks.extend(first.output(at(3), SEQUENCE_MAX - 3, "abäc".as_bytes()));
    assert_eq!(first.next_sequence(), SEQUENCE_MAX);
    chunks.extend(first.output(at(4), SEQUENCE_MAX, b"nonsense"));
    chunks.extend(first.flush());
    let last = chunks.last().unwrap();
    let mut second = Recorder::resume(Tail::read(session(), last.index, &last.bytes).unwrap());
    chunks.extend(second.output(at(5), u64::MAX - 1, b"nonsense"));
    let stored = Stored::finished(chunks, second.finish(at(6), Some(u64::MAX), "exited"));
    let verified = stored.verify().unwrap();
    assert!(!verified.complete);
    assert_eq!(verified.gaps[0], Gap { from: 8, to: SEQUENCE_MAX - 3 });
    assert!(!stored.output().contains("nonsense"));
}
