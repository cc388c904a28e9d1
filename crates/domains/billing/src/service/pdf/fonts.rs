//! The fonts of statements, and which of them has a letter.

use std::sync::LazyLock;

use harfrust::ShaperData;
use krilla::text::Font;
use skrifa::{FontRef, MetadataProvider as _};

/// One font, ready to be shaped with and to be embedded.
pub struct Face {
    pub font: Font,
    pub parsed: FontRef<'static>,
    pub shaping: ShaperData,
}

impl Face {
    fn parse(bytes: &'static [u8]) -> Option<Self> {
        let parsed = FontRef::new(bytes).ok()?;
        let shaping = ShaperData::new(&parsed);
        Some(Self { font: Font::new(bytes.into(), 0)?, parsed, shaping })
    }

    pub fn has(&self, letter: char) -> bool {
        self.parsed.charmap().map(letter).is_some()
    }
}

macro_rules! faces {
    ($($file:literal),* $(,)?) => {
        [$(include_bytes!(concat!("../../../fonts/", $file, ".ttf")).as_slice()),*]
    };
}

/// In the order in which a letter is looked for.
static REGULAR: LazyLock<Vec<Face>> = LazyLock::new(|| {
    let all = faces![
        "NotoSans-Regular",
        "NotoSansArabic-Regular",
        "NotoSansHebrew-Regular",
        "NotoSansDevanagari-Regular",
        "NotoSansBengali-Regular",
        "NotoSansTamil-Regular",
        "NotoSansTelugu-Regular",
        "NotoSansGujarati-Regular",
        "NotoSansKannada-Regular",
        "NotoSansMalayalam-Regular",
        "NotoSansGurmukhi-Regular",
        "NotoSansSinhala-Regular",
        "NotoSansThai-Regular",
        "NotoSansLao-Regular",
        "NotoSansKhmer-Regular",
        "NotoSansMyanmar-Regular",
        "NotoSansArmenian-Regular",
        "NotoSansGeorgian-Regular",
        "NotoSansEthiopic-Regular",
        "NotoSerifTibetan-Regular",
        "DroidSansFallback",
    ];
    all.into_iter().filter_map(Face::parse).collect()
});

/// Latin, Greek and Cyrillic; the other scripts are shown in their regular weight.
static BOLD: LazyLock<Vec<Face>> =
    LazyLock::new(|| faces!["NotoSans-Bold"].into_iter().filter_map(Face::parse).collect());

/// A weight of the typeface with what stands in for it, best first.
pub fn chain(bold: bool) -> impl Iterator<Item = &'static Face> {
    let heavy: &'static [Face] = if bold { &BOLD } else { &[] };
    heavy.iter().chain(REGULAR.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_font_parses_and_every_script_has_one() {
        assert_eq!((REGULAR.len(), BOLD.len()), (21, 1));
        let letters = "AéŁΩЖعשहবதతગಕമਕසฐລកကՀქሀབ中日あア한€₹—";
        for letter in letters.chars() {
            assert!(chain(false).any(|face| face.has(letter)), "{letter}");
        }
    }
}
