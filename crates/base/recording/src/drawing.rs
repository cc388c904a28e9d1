//! What of a session's output draws, and nothing else: for whoever replays it in a terminal of their own.
//!
//! A recorded program may have printed anything. Some sequences make a terminal answer, and the answer is typed into the
//! shell of whoever watches; others write to the clipboard, print on paper, or make the mouse type. So only what is known to
//! draw passes: text, colours, moving the cursor, erasing, scrolling, the modes of the screen, and titles.

/// A CSI sequence that is longer draws nothing that a terminal needs.
const CSI_CHARACTERS_MAX: usize = 128;
const TITLE_CHARACTERS_MAX: usize = 256;
/// Numbers in a sequence: no screen is larger.
const DIGITS_MAX: usize = 5;
/// Modes of the screen (`CSI ? … h`): reverse, origin, wrap, the cursor, the alternate screen, synchronized output. Not those
/// that change what the keyboard or the mouse sends.
const SCREEN_MODES: [&str; 10] = ["5", "6", "7", "12", "25", "47", "1047", "1048", "1049", "2026"];

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and one of `()*+`: a set of characters is named next.
    Charset(char),
    /// After ESC and another intermediate character, until the final one.
    EscapeDropped,
    /// Whether it may be given on: it was introduced by ESC `[`, and is not too long.
    Csi(String, bool),
    /// The text so far, and whether it may be a title.
    Osc(String, bool),
    /// DCS, SOS, PM and APC: nothing of them passes.
    Dropped,
}

/// Filters output, piece by piece, with the same result wherever it is split.
#[derive(Debug, Default)]
pub struct DrawingFilter {
    state: State,
}

impl DrawingFilter {
    /// What of this piece may be shown. The beginning of a sequence is kept until its end comes.
    pub fn pass(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for character in text.chars() {
            let state = std::mem::take(&mut self.state);
            self.state = step(state, character, &mut out);
        }
        out
    }
}

fn step(state: State, character: char, out: &mut String) -> State {
    // These end or begin a sequence within any other.
    match character {
        '\u{18}' | '\u{1a}' => return State::Text,
        '\u{1b}' => {
            // A title that ends with ESC \ is given on here: the rest of the terminator is dropped.
            osc_end(state, out);
            return State::Escape;
        }
        '\u{9c}' => {
            osc_end(state, out);
            return State::Text;
        }
        '\u{80}'..='\u{9f}' => return c1(character),
        _ => {}
    }
    match state {
        State::Text => {
            if is_text(character) {
                out.push(character);
            }
            State::Text
        }
        State::Escape => escape(character, out),
        State::Charset(which) => {
            if matches!(character, '0' | 'A' | 'B' | '1' | '2') {
                out.extend(['\u{1b}', which, character]);
            }
            State::Text
        }
        State::EscapeDropped => match character {
            ' '..='/' => State::EscapeDropped,
            _ => State::Text,
        },
        State::Csi(sequence, passes) => csi(sequence, passes, character, out),
        State::Osc(text, is_title) => osc(text, is_title, character, out),
        State::Dropped => State::Dropped,
    }
}

/// C1 controls introduce the same as ESC and a letter. Nothing that is introduced so passes.
fn c1(character: char) -> State {
    match character {
        '\u{9b}' => State::Csi(String::new(), false),
        '\u{9d}' => State::Osc(String::new(), false),
        '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => State::Dropped,
        _ => State::Text,
    }
}

/// Not ENQ, which is answered, nor what stops the output of a terminal.
fn is_text(character: char) -> bool {
    !character.is_control() || matches!(character, '\u{7}'..='\u{f}')
}

fn escape(character: char, out: &mut String) -> State {
    match character {
        '[' => State::Csi(String::new(), true),
        ']' => State::Osc(String::new(), true),
        'P' | 'X' | '^' | '_' => State::Dropped,
        '(' | ')' | '*' | '+' => State::Charset(character),
        ' '..='/' => State::EscapeDropped,
        // The cursor is saved, restored, or moved by a line.
        '7' | '8' | 'D' | 'E' | 'M' => {
            out.extend(['\u{1b}', character]);
            State::Text
        }
        _ => State::Text,
    }
}

fn csi(mut sequence: String, passes: bool, character: char, out: &mut String) -> State {
    match character {
        ' '..='?' => {
            let fits = sequence.len() < CSI_CHARACTERS_MAX;
            if fits {
                sequence.push(character);
            }
            State::Csi(sequence, passes && fits)
        }
        '@'..='~' => {
            if passes && let Some(drawn) = csi_drawn(&sequence, character) {
                out.push_str("\u{1b}[");
                out.push_str(&drawn);
                out.push(character);
            }
            State::Text
        }
        // Terminals carry controls out in the middle of a sequence.
        _ => {
            if is_text(character) {
                out.push(character);
            }
            if character.is_control() { State::Csi(sequence, passes) } else { State::Text }
        }
    }
}

/// The parameters with which a sequence may be given on; nothing when it may not.
fn csi_drawn(sequence: &str, last: char) -> Option<String> {
    let is_number = |text: &str| text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = |text: &str| text.split(';').all(is_number);
    match (sequence.strip_prefix('?'), last) {
        // Any depth of colour.
        (None, 'm') => sequence.split([';', ':']).all(is_number).then(|| sequence.to_owned()),
        // With more numbers it would be about the mouse.
        (None, 'T') => is_number(sequence).then(|| sequence.to_owned()),
        (
            None,
            '@'..='I' | 'J'..='M' | 'P' | 'S' | 'X' | 'Z' | '`' | 'a' | 'b' | 'd'..='g' | 'r' | 's' | 'u',
        ) => numbers(sequence).then(|| sequence.to_owned()),
        // Inserting.
        (None, 'h' | 'l') => (sequence == "4").then(|| sequence.to_owned()),
        // The shape of the cursor.
        (None, 'q') => {
            sequence.strip_suffix(' ').filter(|shape| is_number(shape)).map(|_| sequence.to_owned())
        }
        (Some(parameters), 'J' | 'K') => numbers(parameters).then(|| sequence.to_owned()),
        (Some(parameters), 'h' | 'l') => {
            let modes: Vec<_> = parameters.split(';').filter(|mode| SCREEN_MODES.contains(mode)).collect();
            (!modes.is_empty()).then(|| format!("?{}", modes.join(";")))
        }
        _ => None,
    }
}

fn osc(mut text: String, is_title: bool, character: char, out: &mut String) -> State {
    if character == '\u{7}' {
        osc_end(State::Osc(text, is_title), out);
        return State::Text;
    }
    let is_title = is_title && !character.is_control();
    if is_title && text.len() < 4 * TITLE_CHARACTERS_MAX {
        text.push(character);
    }
    State::Osc(text, is_title)
}

fn osc_end(state: State, out: &mut String) {
    let State::Osc(text, true) = state else { return };
    let Some((kind @ ("0" | "1" | "2"), title)) = text.split_once(';') else { return };
    out.push_str("\u{1b}]");
    out.push_str(kind);
    out.push(';');
    out.extend(title.chars().take(TITLE_CHARACTERS_MAX));
    out.push('\u{7}');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(text: &str) -> String {
        DrawingFilter::default().pass(text)
    }

    #[test]
    fn what_draws_passes() {
        for text in [
            "plain ä😀\r\n\ttext\u{8}",
            "\u{1b}[1;31mred\u{1b}[0m\u{1b}[38:2::1:2:3mdeep\u{1b}[m",
            "\u{1b}[2J\u{1b}[H\u{1b}[10;20Hthere\u{1b}[K\u{1b}[3A\u{1b}[1;24r\u{1b}[S",
            "\u{1b}7\u{1b}8\u{1b}M\u{1b}(0lqk\u{1b}(B\u{1b}[2 q\u{1b}[4h",
            "\u{1b}[?25l\u{1b}[?1049h\u{1b}[?1049l\u{1b}[?25h",
            "\u{1b}]0;a title ä\u{7}",
        ] {
            assert_eq!(passed(text), text);
        }
        assert_eq!(passed("\u{1b}]2;a title\u{1b}\\text"), "\u{1b}]2;a title\u{7}text");
        assert_eq!(passed("\u{1b}[?1;25;2004h"), "\u{1b}[?25h", "modes of the keyboard are left out");
    }

    #[test]
    fn what_is_answered_or_reaches_beyond_the_screen_is_dropped() {
        for text in [
            "\u{1b}[6n",
            "\u{1b}[?6n",
            "\u{1b}[c",
            "\u{1b}[>c",
            "\u{1b}[>0q",
            "\u{1b}[21t",
            "\u{1b}[0x",
            "\u{1b}[?1$p",
            "\u{1b}[5i",
            "\u{1b}[?1000h\u{1b}[?1004h\u{1b}[?2004h",
            "\u{1b}[>4;1m",
            "\u{1b}[1;2;3;4;5T",
            "\u{1b}[999999999b",
            "\u{1b}Z",
            "\u{1b}c",
            "\u{5}\u{11}\u{13}\u{7f}\u{0}",
            "\u{1b}]52;c;cm0gLXJmIH4=\u{7}",
            "\u{1b}]8;;file:///etc/passwd\u{1b}\\",
            "\u{1b}]0;a\nb\u{7}",
            "\u{1b}P$qm\u{1b}\\",
            "\u{1b}_Gi=1,a=q;AAAA\u{1b}\\",
            "\u{1b}^private\u{1b}\\\u{1b}Xstring\u{1b}\\",
            "\u{9b}6n\u{9d}52;c;eA==\u{9c}\u{90}$qm\u{9c}\u{9f}a\u{9c}",
        ] {
            assert_eq!(passed(text), "", "{text:?}");
        }
        assert_eq!(passed("a\u{1b}[6nb\u{90}dropped\u{1b}[1mc"), "ab\u{1b}[1mc");
    }

    /// Pieces of sequences, put together anyhow.
    fn output() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just("\u{1b}".to_owned()),
            Just("\u{1b}[".to_owned()),
            Just("\u{1b}]".to_owned()),
            Just("\u{1b}\\".to_owned()),
            Just("\u{7}".to_owned()),
            "[\u{80}-\u{9f}]",
            "[\u{0}-\u{1f}]",
            "[PX^_\\[\\]()?;0-9a-zA-Z$> ]{1,3}",
            "\\PC{0,4}",
        ];
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    /// Each sequence of an output that was filtered, after its ESC.
    fn assert_draws_only(text: &str) {
        for after in text.split('\u{1b}').skip(1) {
            let mut characters = after.chars();
            match characters.next() {
                Some('[') => {
                    let rest: String = characters.collect();
                    let end = rest.find(|c| ('@'..='~').contains(&c)).expect("a whole sequence");
                    assert!(!rest.starts_with(['>', '<', '=']), "{after:?}");
                    assert!(!"ctnxipyN".contains(&rest[end..=end]), "{after:?}");
                }
                Some(']') => {
                    let kind = characters.next();
                    assert!(matches!(kind, Some('0'..='2')) && characters.next() == Some(';'), "{after:?}");
                    assert!(after.contains('\u{7}'), "{after:?}");
                }
                Some('7' | '8' | 'D' | 'E' | 'M' | '(' | ')' | '*' | '+') => {}
                other => panic!("ESC {other:?} in {text:?}"),
            }
        }
        assert!(
            !text.contains(|c| matches!(c, '\u{80}'..='\u{9f}' | '\u{5}' | '\u{11}' | '\u{13}')),
            "{text:?}"
        );
    }

    proptest! {
        #[test]
        fn nothing_but_drawing_comes_out_whatever_goes_in(text in output()) {
            assert_draws_only(&passed(&text));
        }

        #[test]
        fn any_split_gives_the_same(text in output(), at in any::<prop::sample::Index>()) {
            let cut = text.char_indices().map(|(at, _)| at).nth(at.index(text.chars().count() + 1));
            let (first, second) = text.split_at(cut.unwrap_or(text.len()));
            let mut filter = DrawingFilter::default();
            let pieces = filter.pass(first) + &filter.pass(second);
            prop_assert_eq!(pieces, passed(&text));
        }

        #[test]
        fn plain_text_is_unchanged(text in "[\\PC\t\r\n]*") {
            prop_assert_eq!(passed(&text), text);
        }
    }
}
