//! Names of objects.

use std::fmt;

use object_store::path::Path;

const PARTS_MAX: usize = 8;
const PART_LENGTH_MAX: usize = 128;

/// Not the name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key of an object has 1 to {PARTS_MAX} parts of 1 to {PART_LENGTH_MAX} letters, digits, dashes and underscores each"
)]
pub struct InvalidKey;

/// The name of an object, or of all objects below it: parts of letters, digits, dashes and underscores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKey(Path);

impl ObjectKey {
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidKey> {
        let parts: Vec<&str> = parts.into_iter().collect();
        let is_valid =
            !parts.is_empty() && parts.len() <= PARTS_MAX && parts.iter().all(|part| is_part(part));
        if is_valid { Ok(Self(Path::from_iter(parts))) } else { Err(InvalidKey) }
    }

    /// An object below this one.
    pub fn child(&self, part: &str) -> Result<Self, InvalidKey> {
        if is_part(part) && self.0.parts_count() < PARTS_MAX {
            Ok(Self(self.0.clone().join(part)))
        } else {
            Err(InvalidKey)
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A name that a storage lists; nothing for one that is not ours.
    pub(crate) fn listed(path: &Path) -> Option<Self> {
        Self::new(path.as_ref().split('/')).ok()
    }
}

/// No dots: no `..`, no hidden file, and nothing that `object_store` names its own files.
fn is_part(part: &str) -> bool {
    (1..=PART_LENGTH_MAX).contains(&part.len())
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_plain_names_and_nothing_leaves_its_place() {
        let key = ObjectKey::new(["recordings", "org_1", "term-2"]).unwrap();
        assert_eq!(key.to_string(), "recordings/org_1/term-2");
        assert_eq!(key.child("00000007").unwrap().to_string(), "recordings/org_1/term-2/00000007");
        let long = "a".repeat(PART_LENGTH_MAX + 1);
        for bad in
            ["", ".", "..", "a/b", "a\\b", "/etc", "a.b", "%2e", "a b", "ä", "a\0", "a#1", long.as_str()]
        {
            assert_eq!(ObjectKey::new([bad]), Err(InvalidKey), "{bad:?}");
            assert_eq!(ObjectKey::new(["a", bad]), Err(InvalidKey), "{bad:?}");
            assert_eq!(key.child(bad), Err(InvalidKey), "{bad:?}");
        }
        assert_eq!(ObjectKey::new([]), Err(InvalidKey));
        assert_eq!(ObjectKey::new(["a"; PARTS_MAX + 1]), Err(InvalidKey));
        assert_eq!(ObjectKey::new(["a"; PARTS_MAX]).unwrap().child("b"), Err(InvalidKey));
    }
}
