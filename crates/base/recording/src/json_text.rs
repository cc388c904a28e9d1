//! Text as a JSON string, as `serde_json` writes it. All output of recorded sessions goes through here: clean text is found
//! sixteen bytes at a time and copied in runs.

/// What is looked at in one step.
const BLOCK: usize = 16;
const HEX: &[u8; 16] = b"0123456789abcdef";

const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Appends the string with its quotes.
pub(crate) fn write_json_text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + bytes.len() / BLOCK + 2);
    out.push(b'"');
    let (mut copied, mut at) = (0, 0);
    while at < bytes.len() {
        // No branch for each byte: the compiler makes one comparison of a block.
        if let Some(block) = bytes.get(at..at + BLOCK)
            && !block.iter().fold(false, |found, byte| found | needs_escape(*byte))
        {
            at += BLOCK;
            continue;
        }
        if needs_escape(bytes[at]) {
            out.extend_from_slice(&bytes[copied..at]);
            escape(out, bytes[at]);
            copied = at + 1;
        }
        at += 1;
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        _ => {
            let [high, low] = [byte >> 4, byte & 0xf].map(|digit| HEX[usize::from(digit)]);
            return out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_written_as_serde_json_writes_it(
            pieces in prop::collection::vec(prop_oneof![".*", "[a-z ]{0,40}", "[\\x00-\\x1f\"\\\\]{0,3}", Just("😀\u{7f}".to_owned())], 0..12)
        ) {
            let text = pieces.concat();
            let mut out = b"before".to_vec();
            write_json_text(&mut out, &text);
            let expected = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(&out[6..], expected.as_bytes());
        }
    }
}
