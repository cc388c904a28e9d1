//! What can be read on a page and on paper.

/// The text of a PDF that is not compressed, line by line as it was shown.
pub fn of_pdf(bytes: &[u8]) -> Vec<String> {
    assert!(bytes.starts_with(b"%PDF-"), "not a PDF");
    let mut shown = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == b'(') {
        rest = &rest[at + 1..];
        let (mut text, mut end) = (Vec::new(), 0);
        while rest[end] != b')' {
            if rest[end] == b'\\' {
                end += 1;
            }
            text.push(rest[end]);
            end += 1;
        }
        rest = &rest[end + 1..];
        if rest.starts_with(b" Tj") {
            shown.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    shown
}

/// The cells of a page's tables, as they are read.
pub fn of_html(page: &str) -> Vec<String> {
    let cells = page.split("<td>").skip(1).map(|cell| cell.split("</td>").next().unwrap());
    cells
        .map(|cell| {
            cell.replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&quot;", "\"")
                .replace("&#39;", "'")
                .replace("&amp;", "&")
        })
        .collect()
}
