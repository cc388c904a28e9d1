//! The end of a recording, and what is known of it before.

use recording::{Event, Fault, Header, Recorder, Tail};

use crate::kit::{Stored, at, key, recorder, sample, session, small};

#[test]
fn the_last_event_closes_a_recording_once() {
    let mut first = recorder(small());
    let mut chunks = first.output(at(1), 0, &[b'a'; 500]);
    let finished = first.finish(at(2), Some(500), "exited");
    chunks.extend(finished.chunks);
    let last = chunks.last().unwrap();
    let tail = Tail::read(session(), last.index, &last.bytes).unwrap();
    assert!(tail.is_closed);
    // Whoever seals in its place adds nothing, and seals the same chunks.
    let again = Recorder::resume(tail).finish(at(9), None, "ended");
    assert!(again.chunks.is_empty());
    assert_eq!((again.statement.chunks, &again.statement.head), (finished.statement.chunks, &last.digest));
    let stored = Stored::finished(chunks, again);
    assert!(!stored.verify().unwrap().complete);
    assert_eq!(stored.events().iter().filter(|event| **event == Event::Closed).count(), 1);
    assert_eq!(stored.events().last(), Some(&Event::Closed));
}

#[test]
fn a_chunk_follows_from_the_one_before_or_is_named() {
    let stored = sample();
    let read = |index: usize| Tail::read(session(), index as u64, &stored.chunks[index]).unwrap();
    for index in 1..stored.chunks.len() {
        assert_eq!(read(index - 1).read_next(&stored.chunks[index]), Ok(read(index)));
        let edited = String::from_utf8(stored.chunks[index - 1].clone()).unwrap().replacen("line", "LINE", 1);
        let edited = Tail::read(session(), index as u64 - 1, edited.as_bytes()).unwrap();
        let index_found = edited.read_next(&stored.chunks[index]).unwrap_err();
        assert_eq!(index_found, Fault::Edited { index: index as u64 });
    }
    let last = read(stored.chunks.len() - 1);
    let mut more = Recorder::resume(last.clone());
    more.output(at(5000), last.header.end_sequence, b"after the end");
    let chunk = more.flush().unwrap();
    assert_eq!(last.read_next(&chunk.bytes), Err(Fault::AfterClose { index: chunk.index }));
    assert_eq!(Tail::read_first(session(), &stored.chunks[0]), Ok(read(0)));
    assert!(Tail::read_first(session(), &stored.chunks[1]).is_err());
}

#[test]
fn a_chunk_that_does_not_hold_what_its_header_says_is_not_gone_on_after() {
    let mut recorder = recorder(small());
    let first = recorder.flush().unwrap().bytes;
    recorder.output(at(1), 0, b"hello");
    let next = recorder.flush().unwrap().bytes;
    let tail = Tail::read_first(session(), &first).unwrap();
    assert_eq!(tail.read_next(&next).unwrap().header.end_sequence, 5);
    // Output before byte 5000 would be taken for recorded.
    let forge = |chunk: Vec<u8>, from: &str| {
        let text = String::from_utf8(chunk).unwrap();
        text.replacen(from, "\"end_sequence\":5000", 1).into_bytes()
    };
    let next = forge(next, "\"end_sequence\":5");
    assert_eq!(tail.read_next(&next), Err(Fault::OutputUnaccounted { index: 1 }));
    let first = forge(first, "\"end_sequence\":0");
    assert_eq!(Tail::read_first(session(), &first), Err(Fault::OutputUnaccounted { index: 0 }));
}

#[test]
fn the_first_chunk_says_how_long_the_recording_is_kept_and_no_other() {
    let mut recorder = recorder(small()).with_expiry(at(1_000_000));
    let mut chunks = recorder.output(at(1), 0, &[b'a'; 500]);
    let stored = Stored::finished(std::mem::take(&mut chunks), recorder.finish(at(2), Some(500), "exited"));
    let kept = |chunk: &Vec<u8>| Header::parse(chunk).unwrap().0.expires_at;
    assert_eq!(kept(&stored.chunks[0]), Some(at(1_000_000)));
    assert!(stored.chunks.len() > 1 && stored.chunks[1..].iter().all(|chunk| kept(chunk).is_none()));
    assert!(stored.verify().unwrap().complete);
}

#[test]
fn a_recording_that_was_found_changed_says_so_under_its_signature() {
    let mut recorder = recorder(small());
    let mut chunks = recorder.output(at(1), 0, &[b'a'; 500]);
    let finished = recorder.finish(at(2), Some(500), "exited");
    chunks.extend(finished.chunks);
    let statement = finished.statement.with_tampering(Some("chunk_edited".to_owned()));
    let seal = statement.sign(&key(1).0).to_bytes();
    let stored =
        Stored { chunks: chunks.into_iter().map(|chunk| chunk.bytes).collect(), seal: Some(seal.clone()) };
    let verified = stored.verify().unwrap();
    assert_eq!((verified.complete, verified.tampering.as_deref()), (false, Some("chunk_edited")));
    let text = String::from_utf8(seal).unwrap();
    let hidden =
        text.replace(",\"tampering\":\"chunk_edited\"", "").replace("\"tampering\":\"chunk_edited\",", "");
    assert_ne!(text, hidden);
    let hidden = Stored { seal: Some(hidden.into_bytes()), ..stored };
    assert_eq!(hidden.verify(), Err(Fault::SealForged));
}
