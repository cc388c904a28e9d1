//! Reading `/sys` and the like: small files, links, directories, each with a bound. What is missing or makes no
//! sense is `None`; nobody here decides what that means.

use std::path::{Path, PathBuf};

use crate::drivers::files::read_bounded;

const VALUE_BYTES: usize = 4096;
const ENTRIES: usize = 16_384;

/// The content of a small file, without blanks around it. Larger or odd files have none.
pub fn text(path: &Path) -> Option<String> {
    let (bytes, more) = read_bounded(path, VALUE_BYTES).ok()?;
    (!more).then(|| String::from_utf8(bytes).ok()).flatten().map(|text| text.trim().to_owned())
}

pub fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// `0x10de` as `10de`, of so many digits at least.
pub fn hex(path: &Path, digits: usize) -> Option<String> {
    let text = text(path)?.to_ascii_lowercase();
    let value = text.strip_prefix("0x").unwrap_or(&text);
    let good = value.len() >= digits && value.len() <= 8 && value.bytes().all(|b| b.is_ascii_hexdigit());
    good.then(|| value.to_owned())
}

/// The name of what a link points to; it need not exist.
pub fn link_name(path: &Path) -> Option<String> {
    std::fs::read_link(path).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// The names in a directory, sorted; none when there is no such directory.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(ENTRIES);
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// Where a link really leads, if that is still below `root`.
pub fn real(root: &Path, path: &Path) -> Option<PathBuf> {
    let real = std::fs::canonicalize(path).ok()?;
    real.starts_with(std::fs::canonicalize(root).ok()?).then_some(real)
}

/// `0000:1b:00.0`
pub fn is_pci_address(name: &str) -> bool {
    let bytes = name.as_bytes();
    let hex = |range: std::ops::Range<usize>| {
        bytes
            .get(range)
            .is_some_and(|part| part.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b)))
    };
    bytes.len() == 12
        && hex(0..4)
        && bytes.get(4) == Some(&b':')
        && hex(5..7)
        && bytes.get(7) == Some(&b':')
        && hex(8..10)
        && bytes.get(10) == Some(&b'.')
        && bytes.get(11).is_some_and(|b| (b'0'..=b'7').contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_other_names() {
        assert!(is_pci_address("0000:1b:00.0") && is_pci_address("10de:ff:1f.7"));
        for odd in ["", "0000:1b:00.8", "0000:1B:00.0", "0000-1b:00.0", "0000:1b:00.00", "ŁŁŁŁŁŁ"] {
            assert!(!is_pci_address(odd), "{odd}");
        }
    }
}
