//! Bytes to text, piece by piece, with the same result wherever the pieces are cut.

use std::borrow::Cow;

/// Keeps the first bytes of a character whose rest did not come yet: three at most.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    held: Vec<u8>,
}

impl Decoder {
    /// How many bytes wait for the rest of their character.
    pub fn held_bytes(&self) -> u64 {
        self.held.len() as u64
    }

    /// The text of these bytes and of those that waited, and how many bytes it stands for. Text that came whole is not
    /// copied: nearly all of it does.
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> (Cow<'a, str>, u64) {
        if self.held.is_empty()
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            return (Cow::Borrowed(text), bytes.len() as u64);
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut text = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            if chunks.peek().is_none() && is_incomplete(chunk.invalid()) {
                self.held = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        let decoded = all.len() - self.held.len();
        (Cow::Owned(text), decoded as u64)
    }

    /// Gives up waiting: what is held becomes one U+FFFD, and stands for so many bytes. Nothing when nothing is held.
    pub fn give_up(&mut self) -> Option<u64> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then_some(held.len() as u64)
    }
}

/// Whether more bytes could make a character of these.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_split_character_waits_and_is_not_counted() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"a\xf0\x9f\x98"), ("a".into(), 1));
        assert_eq!(decoder.held_bytes(), 3);
        assert_eq!(decoder.decode(b"\x80b"), ("😀b".into(), 5));
        assert_eq!((decoder.held_bytes(), decoder.give_up()), (0, None));
    }

    #[test]
    fn what_never_becomes_a_character_is_replaced() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"\xe2\x82"), ("".into(), 0));
        assert_eq!(decoder.decode(b"x\xff"), ("\u{fffd}x\u{fffd}".into(), 4));
        assert_eq!(decoder.decode(b"\xe2"), ("".into(), 0));
        assert_eq!(decoder.give_up(), Some(1));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_text_of_the_whole(pieces in prop::collection::vec(
            prop::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xf4u8, Just(0x9f)], 0..6), 0..20))
        {
            let mut decoder = Decoder::default();
            let (mut text, mut bytes) = (String::new(), 0);
            for piece in &pieces {
                let (more, count) = decoder.decode(piece);
                text += &more;
                bytes += count;
                prop_assert!(decoder.held_bytes() <= 3);
            }
            if let Some(count) = decoder.give_up() {
                text.push(char::REPLACEMENT_CHARACTER);
                bytes += count;
            }
            let whole = pieces.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
            prop_assert_eq!(bytes, whole.len() as u64);
        }
    }
}
