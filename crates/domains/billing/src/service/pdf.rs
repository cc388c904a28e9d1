//! Statements as PDF: A4, as many pages as it takes, with the typeface that every reader has. Letters that it does not
//! have (it knows Western European ones) are shown as question marks; the other forms show them.

use pdf_writer::{Content, Finish as _, Name, Pdf, Rect, Ref, Str, TextStr};

use crate::model::statement_page::StatementPage;

const WIDTH: f32 = 595.0;
const HEIGHT: f32 = 842.0;
const MARGIN: f32 = 56.0;
const LEADING: f32 = 13.5;
const SIZE: f32 = 9.5;
/// Room for the amounts, on the right.
const AMOUNTS: f32 = 90.0;

const REGULAR: Name<'static> = Name(b"F1");
const BOLD: Name<'static> = Name(b"F2");

/// One line of text on paper.
struct Line {
    text: Vec<u8>,
    amount: Vec<u8>,
    bold: bool,
    size: f32,
    /// Space above it.
    above: f32,
}

/// The whole document.
pub fn pdf(page: &StatementPage) -> Vec<u8> {
    let pages = paginate(lines(page));
    let (catalog, tree, regular, bold, info) =
        (Ref::new(1), Ref::new(2), Ref::new(3), Ref::new(4), Ref::new(5));
    let count = i32::try_from(pages.len()).unwrap_or(i32::MAX / 4);
    let place = |n: i32| (Ref::new(6 + n * 2), Ref::new(7 + n * 2));
    let mut out = Pdf::new();
    out.catalog(catalog).pages(tree);
    out.pages(tree).kids((0..count).map(|n| place(n).0)).count(count);
    out.document_info(info).title(TextStr(&page.title));
    for (id, name) in [(regular, &b"Helvetica"[..]), (bold, b"Helvetica-Bold")] {
        out.type1_font(id).base_font(Name(name)).encoding_predefined(Name(b"WinAnsiEncoding"));
    }
    for (n, lines) in (0..count).zip(&pages) {
        let (id, content) = place(n);
        let mut written = out.page(id);
        written.media_box(Rect::new(0.0, 0.0, WIDTH, HEIGHT)).parent(tree).contents(content);
        let mut resources = written.resources();
        resources.fonts().pair(REGULAR, regular).pair(BOLD, bold);
        resources.finish();
        written.finish();
        out.stream(content, &drawn(lines, &format!("{} - page {} of {count}", page.title, n + 1)));
    }
    out.finish()
}

fn lines(page: &StatementPage) -> Vec<Line> {
    let mut lines =
        vec![Line { text: latin(&page.title), amount: Vec::new(), bold: true, size: 16.0, above: 0.0 }];
    let add = |what: &str, amount: &str, bold: bool, above: f32, lines: &mut Vec<Line>| {
        let width = WIDTH - 2.0 * MARGIN - if amount.is_empty() { 0.0 } else { AMOUNTS };
        let wrapped = wrapped(&latin(what), width);
        let mut amount = latin(amount);
        for (n, text) in wrapped.into_iter().enumerate() {
            let above = if n == 0 { above } else { 0.0 };
            lines.push(Line { text, amount: std::mem::take(&mut amount), bold, size: SIZE, above });
        }
    };
    for about in &page.about {
        add(about, "", false, 0.0, &mut lines);
    }
    for section in &page.sections {
        add(section.heading, "", true, LEADING, &mut lines);
        for (what, amount) in &section.lines {
            add(what, amount, false, 0.0, &mut lines);
        }
        if let Some((what, amount)) = &section.total {
            add(what, amount, true, 3.0, &mut lines);
        }
    }
    lines
}

fn paginate(lines: Vec<Line>) -> Vec<Vec<(f32, Line)>> {
    let mut pages = vec![Vec::new()];
    let mut y = HEIGHT - MARGIN;
    for line in lines {
        let step = line.above + line.size.max(SIZE) + LEADING - SIZE;
        if y - step < MARGIN + LEADING {
            pages.push(Vec::new());
            y = HEIGHT - MARGIN;
        }
        y -= step;
        if let Some(page) = pages.last_mut() {
            page.push((y, line));
        }
    }
    pages
}

fn drawn(lines: &[(f32, Line)], footer: &str) -> Vec<u8> {
    let mut content = Content::new();
    let mut show = |x: f32, y: f32, text: &[u8], bold: bool, size: f32| {
        content.begin_text();
        content.set_font(if bold { BOLD } else { REGULAR }, size);
        content.next_line(x, y);
        content.show(Str(text));
        content.end_text();
    };
    for (y, line) in lines {
        show(MARGIN, *y, &line.text, line.bold, line.size);
        if !line.amount.is_empty() {
            let x = WIDTH - MARGIN - width(&line.amount, line.size);
            show(x, *y, &line.amount, line.bold, line.size);
        }
    }
    show(MARGIN, MARGIN - LEADING, &latin(footer), false, 8.0);
    content.finish().into_vec()
}

/// As the typeface counts letters.
fn latin(text: &str) -> Vec<u8> {
    let byte = |c: char| match u32::from(c) {
        code @ (0x20..=0x7e | 0xa0..=0xff) => u8::try_from(code).unwrap_or(b'?'),
        _ => b'?',
    };
    text.chars().map(byte).collect()
}

/// Widths of the typeface's letters from the blank to the tilde, in thousandths of its size.
const WIDTHS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];

fn width(text: &[u8], size: f32) -> f32 {
    let of = |byte: &u8| f32::from(WIDTHS.get(usize::from(byte.wrapping_sub(0x20))).copied().unwrap_or(800));
    text.iter().map(of).sum::<f32>() * size / 1000.0
}

/// In lines that fit, broken at blanks where there are any.
fn wrapped(text: &[u8], room: f32) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut rest = text;
    while width(rest, SIZE) > room {
        let fits = (1..=rest.len()).take_while(|len| width(&rest[..*len], SIZE) <= room).last().unwrap_or(1);
        let blank = rest[..fits].iter().rposition(|byte| *byte == b' ').filter(|at| *at > 0);
        let (line, after) = blank.map_or((&rest[..fits], &rest[fits..]), |at| (&rest[..at], &rest[at + 1..]));
        lines.push(line.to_vec());
        rest = after;
    }
    lines.push(rest.to_vec());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::statement_page::Section;

    fn made(lines: usize) -> Vec<u8> {
        let lines = (0..lines).map(|n| (format!("line {n}"), "1.00".to_owned())).collect();
        let section = Section { heading: "H", lines, total: None };
        pdf(&StatementPage { title: "T".to_owned(), about: Vec::new(), sections: vec![section] })
    }

    #[test]
    fn a_long_statement_has_several_pages_and_a_short_one_has_one() {
        let count = |bytes: &[u8]| bytes.windows(11).filter(|part| part == b"/Type /Page").count() - 1;
        assert_eq!(count(&made(3)), 1);
        assert_eq!(count(&made(150)), 3);
    }

    #[test]
    fn long_lines_are_broken_at_blanks_and_nothing_of_them_is_lost() {
        let text = "word ".repeat(60) + &"W".repeat(200);
        let lines = wrapped(&latin(&text), 300.0);
        assert!(lines.iter().all(|line| width(line, SIZE) <= 300.0));
        let letters = |bytes: &[u8]| bytes.iter().filter(|byte| **byte != b' ').count();
        assert_eq!(lines.iter().map(|line| letters(line)).sum::<usize>(), letters(text.as_bytes()));
        assert_eq!(latin("é€"), [0xe9, b'?']);
    }
}
