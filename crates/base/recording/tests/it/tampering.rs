//! Whatever is changed is found and named.

use proptest::prelude::*;
use recording::Fault;

use crate::kit::{Stored, at, key, recorder, sample, small};

/// The chunk that a fault is about.
fn named(stored: &Stored) -> (u64, &'static str) {
    let fault = stored.verify().expect_err("a fault");
    (fault.chunk().unwrap_or_else(|| panic!("no chunk in {fault:?}")), fault.code())
}

#[test]
fn an_edited_chunk_is_named() {
    let good = sample();
    for index in 0..good.chunks.len() {
        let mut stored = good.clone();
        let text = String::from_utf8(stored.chunks[index].clone()).unwrap();
        let edited = text.replacen("line", "LINE", 1);
        assert_ne!(text, edited);
        stored.chunks[index] = edited.into_bytes();
        let (chunk, code) = named(&stored);
        assert_eq!(chunk, index as u64);
        assert!(matches!(code, "chunk_edited" | "chunk_head_mismatch"), "{code}");
    }
}

#[test]
fn a_missing_chunk_is_named_even_the_last_one() {
    let good = sample();
    for index in 0..good.chunks.len() {
        let mut stored = good.clone();
        stored.chunks.remove(index);
        assert_eq!(named(&stored), (index as u64, "chunk_missing"));
    }
    let mut stored = good.clone();
    stored.chunks.truncate(2);
    let to = good.chunks.len() as u64;
    assert_eq!(stored.verify(), Err(Fault::Missing { from: 2, to }));
    stored.chunks.clear();
    assert_eq!(stored.verify(), Err(Fault::Empty));
}

#[test]
fn reordered_repeated_and_added_chunks_are_named() {
    let good = sample();
    let count = good.chunks.len();
    for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
        let mut stored = good.clone();
        stored.chunks.swap(a, b);
        assert_eq!(named(&stored), (a as u64, "chunk_reordered"), "{a} and {b}");
    }
    let mut stored = good.clone();
    stored.chunks.insert(3, good.chunks[1].clone());
    assert_eq!(named(&stored), (3, "chunk_reordered"));
    let mut stored = good.clone();
    let more = String::from_utf8(stored.chunks[count - 1].clone()).unwrap();
    stored
        .chunks
        .push(more.replacen(&format!("\"index\":{}", count - 1), &format!("\"index\":{count}"), 1).into());
    assert_eq!(named(&stored), (count as u64, "chunk_after_seal"));
}

#[test]
fn a_chunk_that_was_cut_off_is_named_as_such() {
    let good = sample();
    for index in 0..good.chunks.len() {
        let mut stored = good.clone();
        let length = stored.chunks[index].len();
        stored.chunks[index].truncate(length - 5);
        assert_eq!(named(&stored), (index as u64, "chunk_truncated"));
    }
}

#[test]
fn a_seal_that_was_edited_or_signed_by_somebody_else_is_refused() {
    let good = sample();
    let text = String::from_utf8(good.seal.clone().unwrap()).unwrap();
    let with = |seal: String| Stored { seal: Some(seal.into_bytes()), ..good.clone() }.verify();
    assert_eq!(with(text.replace("exited", "idle")), Err(Fault::SealForged));
    assert_eq!(with(text.replace("\"complete\":true", "\"complete\":false")), Err(Fault::SealForged));
    assert_eq!(with(text.clone() + " "), Err(Fault::SealUnreadable));
    let finished = recorder(small()).finish(at(1), Some(0), "exited");
    let forged = finished.statement.sign(&key(3).0).to_bytes();
    assert!(matches!(with(String::from_utf8(forged).unwrap()), Err(Fault::SealKeyUnknown { .. })));
}

#[test]
fn without_a_seal_edits_are_still_found_and_the_missing_end_is_said() {
    let good = Stored { seal: None, ..sample() };
    assert_eq!(good.verify(), Err(Fault::NotSealed { count: good.chunks.len() as u64 }));
    let mut stored = good.clone();
    stored.chunks[1] =
        String::from_utf8(stored.chunks[1].clone()).unwrap().replacen("line", "LINE", 1).into();
    assert_eq!(named(&stored), (1, "chunk_edited"));
}

proptest! {
    #[test]
    fn any_changed_byte_is_found_in_its_chunk(chunk in any::<prop::sample::Index>(), byte in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut stored = sample();
        let index = chunk.index(stored.chunks.len());
        let at = byte.index(stored.chunks[index].len());
        stored.chunks[index][at] ^= 1 << bit;
        let fault = stored.verify().expect_err("a fault");
        // A header that names another index is a chunk in the wrong place, of which the right one is missing.
        prop_assert_eq!(fault.chunk(), Some(index as u64), "{:?}", fault);
    }
}
