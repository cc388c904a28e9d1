//! Statements as PDF: A4, as many pages as it takes, with fonts embedded, so that names of any script are shown as letters.

mod fonts;
mod text;

use kernel::Failure;
use krilla::{
    Document,
    color::luma,
    geom::{PathBuilder, Point},
    metadata::Metadata,
    page::PageSettings,
    paint::{Fill, Stroke},
    surface::Surface,
};

use crate::model::statement_page::{Section, StatementPage};

const WIDTH: f32 = 595.0;
const HEIGHT: f32 = 842.0;
const MARGIN: f32 = 56.0;
const LEADING: f32 = 14.0;
const SIZE: f32 = 9.5;
const TITLE_SIZE: f32 = 17.0;
const SMALL: f32 = 8.0;
/// Room for the amounts, on the right.
const AMOUNTS: f32 = 96.0;
/// Where the second column of the head begins.
const SECOND_COLUMN: f32 = WIDTH / 2.0 + 12.0;
const GRAY: u8 = 105;
const BLACK: u8 = 17;
const RULE: u8 = 190;

#[derive(Clone, Copy, PartialEq)]
enum RightSide {
    /// Ends at the margin: amounts.
    Edge,
    /// Begins in the middle: the second column of the head.
    Column,
}

/// One line of text on paper.
struct Row {
    left: String,
    right: String,
    right_side: RightSide,
    bold: bool,
    size: f32,
    shade: u8,
    /// Space above it.
    above: f32,
    /// A thin line above or below it.
    rule_above: bool,
    rule_below: bool,
    /// Space that must be left below it on the page: a heading is not the last line.
    needs: f32,
}

impl Row {
    fn plain(left: impl Into<String>) -> Self {
        Self {
            left: left.into(),
            right: String::new(),
            right_side: RightSide::Edge,
            bold: false,
            size: SIZE,
            shade: BLACK,
            above: 0.0,
            rule_above: false,
            rule_below: false,
            needs: 0.0,
        }
    }

    fn height(&self) -> f32 {
        self.above + self.size + LEADING - SIZE
    }
}

/// The whole document.
pub fn pdf(page: &StatementPage) -> Result<Vec<u8>, Failure> {
    let pages = paginate(rows(page));
    let count = pages.len();
    let mut document = Document::new();
    document.set_metadata(Metadata::new().title(page.title.clone()).language("en".to_owned()));
    let settings = PageSettings::from_wh(WIDTH, HEIGHT).ok_or_else(|| Failure::bug("a page has a size"))?;
    for (n, rows) in pages.iter().enumerate() {
        let mut written = document.start_page_with(settings.clone());
        let mut surface = written.surface();
        for (y, row) in rows {
            row_draw(&mut surface, row, *y);
        }
        let foot = format!("{} · page {} of {count}", page.title, n + 1);
        text_draw(&mut surface, &foot, (MARGIN, HEIGHT - MARGIN / 2.0), false, SMALL, GRAY);
        surface.finish();
        written.finish();
    }
    document.finish().map_err(|error| Failure::bug(format!("a statement cannot be written as PDF: {error}")))
}

fn rows(page: &StatementPage) -> Vec<Row> {
    let mut rows = vec![Row { bold: true, size: TITLE_SIZE, ..Row::plain(&page.title) }];
    parties(page, &mut rows);
    for (n, about) in page.about.iter().enumerate() {
        wrapped(Row { above: if n == 0 { LEADING } else { 0.0 }, ..Row::plain(about) }, &mut rows);
    }
    for section in &page.sections {
        section_rows(section, &mut rows);
    }
    for (n, note) in page.notes.iter().enumerate() {
        let above = if n == 0 { LEADING } else { 2.0 };
        wrapped(Row { shade: GRAY, size: SMALL, above, ..Row::plain(note) }, &mut rows);
    }
    rows
}

/// Seller and buyer beside each other.
fn parties(page: &StatementPage, rows: &mut Vec<Row>) {
    let room = SECOND_COLUMN - MARGIN - 24.0;
    let lines = |texts: &[String]| -> Vec<String> {
        texts.iter().flat_map(|text| text::wrap(text, false, SIZE, room)).collect()
    };
    let (seller, buyer) = (lines(&page.seller), lines(&page.buyer));
    let mut row = |left: &str, right: &str, row: Row| {
        let (left, right) = (left.to_owned(), right.to_owned());
        rows.push(Row { left, right, right_side: RightSide::Column, ..row });
    };
    let label = Row { shade: GRAY, size: SMALL, above: LEADING, ..Row::plain("") };
    if seller.is_empty() {
        row("Customer", "", label);
        for text in &buyer {
            row(text, "", Row::plain(""));
        }
        return;
    }
    row("Seller", "Customer", label);
    for n in 0..seller.len().max(buyer.len()) {
        let at = |lines: &[String]| lines.get(n).cloned().unwrap_or_default();
        row(&at(&seller), &at(&buyer), Row::plain(""));
    }
}

fn section_rows(section: &Section, rows: &mut Vec<Row>) {
    let heading = Row::plain(section.heading);
    rows.push(Row {
        bold: true,
        size: 11.0,
        above: LEADING,
        rule_below: true,
        needs: 3.0 * LEADING,
        ..heading
    });
    for (n, (what, amount)) in section.lines.iter().enumerate() {
        let above = if n == 0 { 4.0 } else { 0.0 };
        wrapped(Row { right: amount.clone(), above, ..Row::plain(what) }, rows);
    }
    if let Some((what, amount)) = &section.total {
        let total =
            Row { right: amount.clone(), above: 4.0, rule_above: true, bold: true, ..Row::plain(what) };
        wrapped(total, rows);
    }
}

/// In as many lines as it takes; the amount is beside the first.
fn wrapped(row: Row, rows: &mut Vec<Row>) {
    let room = WIDTH - 2.0 * MARGIN - if row.right.is_empty() { 0.0 } else { AMOUNTS };
    let (bold, size, shade) = (row.bold, row.size, row.shade);
    let mut lines = text::wrap(&row.left, bold, size, room).into_iter();
    let first = lines.next().unwrap_or_default();
    rows.push(Row { left: first, ..row });
    rows.extend(lines.map(|line| Row { bold, size, shade, ..Row::plain(line) }));
}

fn paginate(rows: Vec<Row>) -> Vec<Vec<(f32, Row)>> {
    let bottom = HEIGHT - MARGIN - LEADING;
    let mut pages = vec![Vec::new()];
    let mut y = MARGIN;
    for row in rows {
        if y + row.height() + row.needs > bottom {
            pages.push(Vec::new());
            y = MARGIN;
        }
        y += row.height();
        if let Some(page) = pages.last_mut() {
            page.push((y, row));
        }
    }
    pages
}

fn row_draw(surface: &mut Surface<'_>, row: &Row, y: f32) {
    if row.rule_above {
        rule_draw(surface, y - row.size - 1.0);
    }
    if row.rule_below {
        rule_draw(surface, y + 4.0);
    }
    text_draw(surface, &row.left, (MARGIN, y), row.bold, row.size, row.shade);
    if !row.right.is_empty() {
        let x = match row.right_side {
            RightSide::Edge => WIDTH - MARGIN - text::width(&row.right, row.bold, row.size),
            RightSide::Column => SECOND_COLUMN,
        };
        text_draw(surface, &row.right, (x, y), row.bold, row.size, row.shade);
    }
}

fn text_draw(surface: &mut Surface<'_>, text: &str, (x, y): (f32, f32), bold: bool, size: f32, shade: u8) {
    surface.set_stroke(None);
    surface.set_fill(Some(Fill { paint: luma::Color::new(shade).into(), ..Fill::default() }));
    let mut x = x;
    for run in text::shape(text, bold) {
        let width = run.width(size);
        surface.draw_glyphs(Point::from_xy(x, y), &run.glyphs, run.face.font.clone(), &run.text, size, false);
        x += width;
    }
}

fn rule_draw(surface: &mut Surface<'_>, y: f32) {
    let mut path = PathBuilder::new();
    path.move_to(MARGIN, y);
    path.line_to(WIDTH - MARGIN, y);
    if let Some(path) = path.finish() {
        surface.set_fill(None);
        surface.set_stroke(Some(Stroke {
            paint: luma::Color::new(RULE).into(),
            width: 0.6,
            ..Stroke::default()
        }));
        surface.draw_path(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lines: usize) -> StatementPage {
        let lines = (0..lines).map(|n| (format!("line {n}"), "1.00".to_owned())).collect();
        let section = Section { heading: "H", lines, total: None };
        StatementPage { title: "T".to_owned(), sections: vec![section], ..StatementPage::default() }
    }

    #[test]
    fn a_long_statement_has_several_pages_and_a_short_one_has_one() {
        let count = |lines| paginate(rows(&page(lines))).len();
        assert_eq!((count(3), count(150)), (1, 4));
        assert!(pdf(&page(3)).is_ok_and(|bytes| bytes.starts_with(b"%PDF-")));
    }

    #[test]
    fn a_heading_is_never_the_last_line_of_a_page() {
        for lines in 30..60 {
            let mut page = page(lines);
            page.sections.push(Section {
                heading: "Next",
                lines: vec![("a".to_owned(), String::new())],
                total: None,
            });
            for rows in paginate(rows(&page)) {
                assert!(rows.last().is_some_and(|(_, row)| row.left != "Next"), "{lines}");
            }
        }
    }

    #[test]
    fn nothing_is_drawn_outside_of_the_margins() {
        for rows in paginate(rows(&page(150))) {
            assert!(rows.iter().all(|(y, _)| (MARGIN..=HEIGHT - MARGIN).contains(y)));
        }
    }
}
