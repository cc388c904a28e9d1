//! Tables and code spans of a Markdown document.

/// A row of a table.
#[derive(Debug, Clone)]
pub struct Row {
    /// From 1.
    pub line: usize,
    pub cells: Vec<String>,
}

/// The rows of every table whose first header cell is `header`, without the header.
pub fn table_rows(text: &str, header: &[&str]) -> Vec<Row> {
    let mut out = Vec::new();
    let mut is_wanted = None;
    for (index, line) in text.lines().enumerate() {
        let Some(inside) = line.trim().strip_prefix('|') else {
            is_wanted = None;
            continue;
        };
        let cells: Vec<String> =
            inside.trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        match is_wanted {
            None => is_wanted = Some(header.iter().zip(&cells).all(|(wanted, cell)| wanted == cell)),
            Some(true) if !cells[0].starts_with("---") => out.push(Row { line: index + 1, cells }),
            Some(_) => {}
        }
    }
    out
}

/// The texts between backticks.
pub fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_table_with_the_header() {
        let text = "| a | b |\n| --- | --- |\n| `x`, `y` | 1 |\n\n| c |\n| --- |\n| z |\n";
        let rows = table_rows(text, &["a", "b"]);
        assert_eq!((rows.len(), rows[0].line), (1, 3));
        assert_eq!(code_spans(&rows[0].cells[0]), ["x", "y"]);
        assert!(table_rows(text, &["b"]).is_empty());
    }
}
