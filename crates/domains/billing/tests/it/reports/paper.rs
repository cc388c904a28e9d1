//! What can be read on a page and on paper.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

/// The text of a PDF as a reader program extracts it: the cells of each line, from top to bottom.
#[allow(clippy::disallowed_methods, reason = "the one program that these tests run")]
pub fn of_pdf(bytes: &[u8]) -> Vec<String> {
    assert!(bytes.starts_with(b"%PDF-"), "not a PDF");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let read = Command::new("pdftotext")
        .args(["-layout", "-enc", "UTF-8"])
        .arg(file.path())
        .arg("-")
        .stderr(Stdio::inherit())
        .output()
        .expect("pdftotext is in Debian's poppler-utils; scripts/tools.sh installs it");
    assert!(read.status.success(), "pdftotext refuses the file");
    let text = String::from_utf8(read.stdout).unwrap();
    let cells = text.lines().flat_map(|line| line.split("  ")).map(|cell| cell.trim().to_owned());
    cells.filter(|cell| !cell.is_empty()).collect()
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
