//! Text as glyphs: which font shows which letters, in which order, and how wide they are.
//!
//! A line is cut into runs of one direction (Unicode bidirectional algorithm, from left to right) and one font (the first that
//! has the letter), and each run is shaped by itself: letters join, marks are placed, and right-to-left runs are
//! turned. A letter that no font has is shown as the box of the first font; the other forms of a statement have it.

use std::ops::Range;

use harfrust::{Direction, ShapeOptions, UnicodeBuffer};
use krilla::text::{GlyphId, KrillaGlyph};
use unicode_bidi::{BidiInfo, Level};

use super::fonts::{Face, chain};

/// Glyphs of one font and direction, from left to right.
pub struct Run {
    pub face: &'static Face,
    pub text: String,
    pub glyphs: Vec<KrillaGlyph>,
}

impl Run {
    pub fn width(&self, size: f32) -> f32 {
        self.glyphs.iter().map(|glyph| glyph.x_advance).sum::<f32>() * size
    }
}

/// Says how text flows, and has no shape itself.
const fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Belongs to the letter before it, whatever that is.
const fn joins_the_one_before(letter: char) -> bool {
    matches!(letter, '\u{0300}'..='\u{036f}' | '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

fn face_for(letter: char, bold: bool) -> Option<&'static Face> {
    chain(bold).find(|face| face.has(letter)).or_else(|| chain(bold).next())
}

/// One line, in the order in which it is drawn.
pub fn shape(text: &str, bold: bool) -> Vec<Run> {
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let clean: String = text.chars().map(|c| if is_break(c) { ' ' } else { c }).collect();
    let bidi = BidiInfo::new(&clean, Some(Level::ltr()));
    let mut runs = Vec::new();
    for paragraph in &bidi.paragraphs {
        let (levels, order) = bidi.visual_runs(paragraph, paragraph.range.clone());
        for range in order {
            let rtl = levels.get(range.start).is_some_and(|level| level.is_rtl());
            let mut parts: Vec<Run> = spans(&clean[range.clone()], bold)
                .into_iter()
                .map(|(face, span)| {
                    shape_run(face, &clean[range.start + span.start..range.start + span.end], rtl)
                })
                .collect();
            if rtl {
                parts.reverse();
            }
            runs.append(&mut parts);
        }
    }
    runs
}

/// The parts that one font shows.
fn spans(text: &str, bold: bool) -> Vec<(&'static Face, Range<usize>)> {
    let mut spans: Vec<(&'static Face, Range<usize>)> = Vec::new();
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        if let Some((face, span)) = spans.last_mut() {
            // Blanks and marks stay with what is before them, so that a font's own rules apply.
            let stays = is_invisible(letter) || joins_the_one_before(letter);
            let same = face_for(letter, bold).is_some_and(|wanted| std::ptr::eq(wanted, *face));
            if stays || same || (letter == ' ' && face.has(letter)) {
                span.end = end;
                continue;
            }
        }
        spans.extend(face_for(letter, bold).map(|face| (face, at..end)));
    }
    spans
}

fn shape_run(face: &'static Face, text: &str, rtl: bool) -> Run {
    let text: String = text.chars().filter(|letter| !is_invisible(*letter)).collect();
    let mut buffer = UnicodeBuffer::new();
    buffer.push_str(&text);
    buffer.guess_segment_properties();
    buffer.set_direction(if rtl { Direction::RightToLeft } else { Direction::LeftToRight });
    let shaper = face.shaping.shaper(&face.parsed).build();
    let shaped = shaper.shape(buffer, ShapeOptions::new());
    let em = face.font.units_per_em();
    let clusters: Vec<usize> = shaped.glyph_infos().iter().map(|info| info.cluster as usize).collect();
    let mut starts = clusters.clone();
    starts.sort_unstable();
    starts.dedup();
    let glyphs = shaped
        .glyph_infos()
        .iter()
        .zip(shaped.glyph_positions())
        .map(|(info, at)| {
            let start = info.cluster as usize;
            let next = starts.partition_point(|other| *other <= start);
            let end = starts.get(next).copied().unwrap_or(text.len());
            KrillaGlyph::new(
                GlyphId::new(info.glyph_id),
                at.x_advance as f32 / em,
                at.x_offset as f32 / em,
                at.y_offset as f32 / em,
                at.y_advance as f32 / em,
                start..end,
                None,
            )
        })
        .collect();
    Run { face, text, glyphs }
}

pub fn width(text: &str, bold: bool, size: f32) -> f32 {
    shape(text, bold).iter().map(|run| run.width(size)).sum()
}

/// Lines that fit, broken at blanks where there are any, and never between a letter and its marks.
pub fn wrap(text: &str, bold: bool, size: f32, room: f32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while width(rest, bold, size) > room {
        let breaks = break_places(rest, bold);
        // The widest part that fits; at least one letter, or this would never end.
        let fits = breaks.partition_point(|at| width(&rest[..*at], bold, size) <= room);
        let Some(at) = breaks.get(fits.saturating_sub(1)).copied() else { break };
        let (line, after) = match rest[..at].rfind(' ').filter(|blank| *blank > 0) {
            Some(blank) => (&rest[..blank], &rest[blank + 1..]),
            None => (&rest[..at], &rest[at..]),
        };
        lines.push(line.to_owned());
        rest = after;
    }
    lines.push(rest.to_owned());
    lines
}

/// Where letters begin, after the first.
fn break_places(text: &str, bold: bool) -> Vec<usize> {
    let mut places = Vec::new();
    for (_, span) in spans(text, bold) {
        let start = span.start;
        let part = &text[span];
        for (at, letter) in part.char_indices() {
            if start + at > 0 && !joins_the_one_before(letter) && !is_invisible(letter) {
                places.push(start + at);
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str) -> String {
        shape(text, false).into_iter().map(|run| run.text).collect()
    }

    fn has_boxes(text: &str) -> bool {
        shape(text, true).iter().flat_map(|run| &run.glyphs).any(|glyph| glyph.glyph_id.to_u32() == 0)
    }

    #[test]
    fn every_script_is_shown_by_letters_and_what_nobody_has_by_a_box() {
        for text in [
            "Ünïcode “quotes” €",
            "Ελλάδα",
            "Москва",
            "مرحبا",
            "שלום",
            "हिन्दी",
            "北京 東京 서울 かな",
            "ไทย",
            "தமிழ்",
        ] {
            assert!(!has_boxes(text), "{text}");
        }
        assert!(has_boxes("\u{13000}"), "no font has hieroglyphs");
    }

    #[test]
    fn letters_that_join_have_other_forms_than_alone() {
        let glyphs = |text: &str| -> Vec<u32> {
            shape(text, false)
                .iter()
                .flat_map(|run| run.glyphs.iter().map(|glyph| glyph.glyph_id.to_u32()))
                .collect()
        };
        assert_ne!(glyphs("ب"), glyphs("بب")[..1], "the first of two is joined to the second");
        assert!(glyphs("क्ष").len() < 3, "a conjunct is one shape");
    }

    #[test]
    fn text_from_right_to_left_is_turned_and_the_rest_stays_where_it_is() {
        // Isolated, as the names on a page are; otherwise a number would follow the Hebrew to its left.
        let runs = shape("Acme \u{2068}שלום\u{2069} 12.50", false);
        let order: Vec<&str> = runs.iter().map(|run| run.text.trim()).collect();
        assert_eq!(order, ["Acme", "שלום", "12.50"]);
        let hebrew = runs.iter().find(|run| run.text.contains('ש')).map(|run| &run.glyphs);
        let first = hebrew.and_then(|glyphs| glyphs.first()).map(|glyph| glyph.text_range.start);
        assert!(first.is_some_and(|at| at > 0), "the last letter is drawn first");
    }

    #[test]
    fn controls_are_blanks_and_marks_of_direction_have_no_shape() {
        assert_eq!(drawn("a\tb\u{7}c"), "a b c");
        assert_eq!(drawn("\u{2068}a\u{2069}b"), "ab");
    }

    #[test]
    fn long_lines_are_broken_at_blanks_and_nothing_of_them_is_lost() {
        let text = "word ".repeat(60) + &"W".repeat(200) + &"北京".repeat(80);
        let lines = wrap(&text, false, 9.5, 300.0);
        assert!(lines.iter().all(|line| width(line, false, 9.5) <= 300.0));
        let letters = |text: &str| text.chars().filter(|c| *c != ' ').count();
        assert_eq!(lines.iter().map(|line| letters(line)).sum::<usize>(), letters(&text));
        assert!(lines[0].ends_with("word"));
        let marks = "e\u{301}".repeat(100);
        assert!(wrap(&marks, false, 9.5, 40.0).iter().all(|line| !line.starts_with('\u{301}')));
        assert_eq!(wrap("W", false, 9.5, 1.0), ["W"], "one letter is never broken");
    }
}
