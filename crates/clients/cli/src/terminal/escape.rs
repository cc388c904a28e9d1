//! Escapes in what is typed, as in ssh: at the beginning of a line, `~.` detaches, `~?` shows help, `~~` is a `~`.
//!
//! A `~` at the beginning of a line is held until the next key says what it means, so it never reaches the machine before
//! it is known to be text.

/// What typed bytes mean.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    Text(Vec<u8>),
    Detach,
    Help,
}

/// The key that begins an escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapeKey {
    Key(u8),
    /// There are no escapes: everything is text.
    None,
}

impl std::str::FromStr for EscapeKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.as_bytes() {
            b"none" => Ok(Self::None),
            [key] if key.is_ascii_punctuation() && !matches!(key, b'.' | b'?') => Ok(Self::Key(*key)),
            _ => Err("must be one punctuation character other than . and ?, or none".to_owned()),
        }
    }
}

pub struct Escapes {
    key: EscapeKey,
    at_line_start: bool,
    /// The key was typed at the beginning of a line.
    held: bool,
}

impl Escapes {
    pub fn new(key: EscapeKey) -> Self {
        Self { key, at_line_start: true, held: false }
    }

    /// What is typed next stands at the beginning of a line: after a cut nobody knows where the cursor is, and leaving
    /// must work with two keys.
    pub fn line_start(&mut self) {
        self.at_line_start = true;
        self.held = false;
    }

    /// The escapes, as lines.
    pub fn help(&self) -> String {
        match self.key {
            EscapeKey::None => "There are no escapes.".to_owned(),
            EscapeKey::Key(key) => {
                let key = char::from(key);
                format!(
                    "Escapes, at the beginning of a line:\n{key}.  detach; the program goes on\n\
                     {key}{key}  the key itself\n{key}?  this help"
                )
            }
        }
    }

    /// What the bytes mean, in their order.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let EscapeKey::Key(key) = self.key else { return vec![Typed::Text(bytes.to_vec())] };
        let (mut found, mut text) = (Vec::new(), Vec::new());
        for &byte in bytes {
            if self.held {
                self.held = false;
                let command = match byte {
                    b'.' => Some(Typed::Detach),
                    b'?' => Some(Typed::Help),
                    _ => None,
                };
                if let Some(command) = command {
                    if !text.is_empty() {
                        found.push(Typed::Text(std::mem::take(&mut text)));
                    }
                    // The line has not begun yet.
                    found.push(command);
                    continue;
                }
                text.push(key);
                self.at_line_start = false;
                if byte == key {
                    continue;
                }
            } else if self.at_line_start && byte == key {
                self.held = true;
                continue;
            }
            text.push(byte);
            self.at_line_start = matches!(byte, b'\r' | b'\n');
        }
        if !text.is_empty() {
            found.push(Typed::Text(text));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(pieces: &[&str]) -> Vec<Typed> {
        let mut escapes = Escapes::new(EscapeKey::Key(b'~'));
        pieces.iter().flat_map(|piece| escapes.feed(piece.as_bytes())).collect()
    }

    fn text(text: &str) -> Typed {
        Typed::Text(text.as_bytes().to_vec())
    }

    #[test]
    fn detaching_needs_the_beginning_of_a_line() {
        assert_eq!(typed(&["~."]), [Typed::Detach]);
        assert_eq!(typed(&["ls\r", "~", "."]), [text("ls\r"), Typed::Detach]);
        assert_eq!(typed(&["a\n~."]), [text("a\n"), Typed::Detach]);
        assert_eq!(typed(&["ls ~.\r"]), [text("ls ~.\r")]);
        assert_eq!(typed(&["a~", "."]), [text("a~"), text(".")]);
    }

    #[test]
    fn the_key_twice_is_the_key_and_before_anything_else_it_is_text() {
        assert_eq!(typed(&["~~."]), [text("~.")]);
        assert_eq!(typed(&["~~~."]), [text("~~.")]);
        assert_eq!(typed(&["~/bin\r"]), [text("~/bin\r")]);
        assert_eq!(typed(&["~", "x"]), [text("~x")]);
        // Enter after the key ends the line.
        assert_eq!(typed(&["~\r~."]), [text("~\r"), Typed::Detach]);
    }

    #[test]
    fn help_leaves_the_line_where_it_was() {
        assert_eq!(typed(&["~?~?x~?"]), [Typed::Help, Typed::Help, text("x~?")]);
        assert_eq!(typed(&["a\r~?b"]), [text("a\r"), Typed::Help, text("b")]);
    }

    #[test]
    fn a_held_key_is_not_sent_before_its_meaning_is_known() {
        assert_eq!(typed(&["~"]), []);
        let mut escapes = Escapes::new(EscapeKey::Key(b'~'));
        assert_eq!(escapes.feed(b"x"), [text("x")]);
        escapes.line_start();
        assert_eq!(escapes.feed(b"~."), [Typed::Detach]);
    }

    #[test]
    fn the_key_can_be_another_or_none() {
        let mut percent = Escapes::new("%".parse().unwrap());
        assert_eq!(percent.feed(b"~.\r%."), [text("~.\r"), Typed::Detach]);
        let mut none = Escapes::new("none".parse().unwrap());
        assert_eq!(none.feed(b"\r~."), [text("\r~.")]);
        for wrong in ["", "ab", "a", ".", "?", "é", "\r"] {
            assert!(wrong.parse::<EscapeKey>().is_err(), "{wrong:?}");
        }
    }

    proptest::proptest! {
        /// However the terminal splits what is typed, it means the same.
        #[test]
        fn pieces_do_not_change_the_meaning(bytes in "[~.?a\r]{0,24}", cut in 0_usize..24) {
            let cut = cut.min(bytes.len());
            let join = |all: Vec<Typed>| {
                let mut joined: Vec<Typed> = Vec::new();
                for one in all {
                    match (joined.last_mut(), one) {
                        (Some(Typed::Text(before)), Typed::Text(more)) => before.extend(more),
                        (_, one) => joined.push(one),
                    }
                }
                joined
            };
            proptest::prop_assert_eq!(join(typed(&[&bytes])), join(typed(&[&bytes[..cut], &bytes[cut..]])));
        }
    }
}
