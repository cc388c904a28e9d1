//! Statements as web pages: one file without scripts or anything from elsewhere, fit to be printed.

use kernel::text::html_escape;

use crate::model::statement_page::StatementPage;

const STYLE: &str = "body{font:14px/1.5 Helvetica,Arial,sans-serif;color:#111;max-width:46rem;margin:2rem auto;padding:0 1rem}\
    table{border-collapse:collapse;width:100%;margin:0 0 1.5rem}td{padding:.2rem 0;vertical-align:top;overflow-wrap:anywhere}\
    td+td{text-align:right;white-space:nowrap;padding-left:1rem;font-variant-numeric:tabular-nums}\
    tr.total td{border-top:1px solid #111;font-weight:bold}h2{font-size:1.05rem;margin:1.5rem 0 .4rem}p{margin:.1rem 0}\
    .parties{display:flex;gap:2rem;flex-wrap:wrap;margin:0 0 1rem}.parties div{flex:1 1 16rem}.note{color:#666;font-size:.85rem}\
    @page{size:A4;margin:18mm}@media print{body{margin:0;max-width:none}tr{break-inside:avoid}}";

/// The whole page.
pub fn html(page: &StatementPage) -> String {
    let title = html_escape(&page.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n"
    );
    out += &parties(page);
    for line in &page.about {
        out += &format!("<p>{}</p>\n", html_escape(line));
    }
    for section in &page.sections {
        out += &format!("<h2>{}</h2>\n<table>\n", html_escape(section.heading));
        for (what, amount) in &section.lines {
            out += &format!("<tr><td>{}</td><td>{}</td></tr>\n", html_escape(what), html_escape(amount));
        }
        if let Some((what, amount)) = &section.total {
            let (what, amount) = (html_escape(what), html_escape(amount));
            out += &format!("<tr class=\"total\"><td>{what}</td><td>{amount}</td></tr>\n");
        }
        out += "</table>\n";
    }
    for note in &page.notes {
        out += &format!("<p class=\"note\">{}</p>\n", html_escape(note));
    }
    out += "</body>\n</html>\n";
    out
}

/// Seller and buyer beside each other; without a seller the buyer alone.
fn parties(page: &StatementPage) -> String {
    let party = |label: &str, lines: &[String]| {
        let lines: Vec<String> = lines.iter().map(|line| format!("<p>{}</p>", html_escape(line))).collect();
        format!("<div><p class=\"note\">{label}</p>{}</div>\n", lines.concat())
    };
    let seller = if page.seller.is_empty() { String::new() } else { party("Seller", &page.seller) };
    format!("<div class=\"parties\">\n{seller}{}</div>\n", party("Customer", &page.buyer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::statement_page::Section;

    #[test]
    fn what_people_wrote_cannot_become_markup() {
        let line = ("<script>alert('1')</script> & \"more\"".to_owned(), "1.00".to_owned());
        let section = Section { heading: "H", lines: vec![line], total: None };
        let made = html(&StatementPage {
            title: "T".to_owned(),
            sections: vec![section],
            ..StatementPage::default()
        });
        assert!(!made.contains("<script"), "{made}");
        assert!(made.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;more&quot;"));
    }
}
