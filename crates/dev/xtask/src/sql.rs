//! SQL as a list of statements with their comments; enough for a lint, not a parser.

/// One statement.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    /// Where its first word stands, from 1.
    pub line: usize,
    /// Upper case outside of quotes, words and punctuation apart. The inside of strings and bodies is left out.
    pub words: Vec<String>,
    /// The comments since the statement before.
    pub comments: String,
}

impl Statement {
    /// Whether the words stand in it, one after the other.
    pub fn has(&self, words: &[&str]) -> bool {
        has(&self.words, words)
    }

    pub fn starts(&self, words: &[&str]) -> bool {
        self.words.len() >= words.len() && self.words.iter().zip(words).all(|(word, wanted)| word == wanted)
    }
}

pub fn has(words: &[String], wanted: &[&str]) -> bool {
    words.windows(wanted.len()).any(|window| window.iter().zip(wanted).all(|(word, wanted)| word == wanted))
}

pub fn statements(source: &str) -> Vec<Statement> {
    let mut out = Vec::new();
    let mut line = 1;
    let mut current = Statement { line: 0, words: Vec::new(), comments: String::new() };
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (length, word) = if rest.starts_with("--") {
            let length = rest.find('\n').unwrap_or(rest.len());
            current.comments += &rest[..length];
            current.comments.push('\n');
            (length, None)
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            current.comments += &rest[..length];
            (length, None)
        } else if first == '\'' {
            (quoted(rest, '\''), Some("''".to_owned()))
        } else if first == '"' {
            let length = quoted(rest, '"');
            (length, Some(rest[..length].trim_matches('"').to_uppercase()))
        } else if let Some(tag) = dollar_tag(rest) {
            let length = rest[tag.len()..].find(tag).map_or(rest.len(), |end| end + 2 * tag.len());
            (length, Some("''".to_owned()))
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            (length, Some(rest[..length].to_uppercase()))
        } else if first == ';' {
            let done = std::mem::replace(
                &mut current,
                Statement { line: 0, words: Vec::new(), comments: String::new() },
            );
            if !done.words.is_empty() {
                out.push(done);
            }
            (1, None)
        } else if first.is_whitespace() {
            (first.len_utf8(), None)
        } else {
            (first.len_utf8(), Some(first.to_string()))
        };
        if let Some(word) = word {
            if current.words.is_empty() {
                current.line = line;
            }
            current.words.push(word);
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    if !current.words.is_empty() {
        out.push(current);
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of a quoted text; a doubled quote is part of it.
fn quoted(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(end) = text[at..].find(quote) {
        at += end + 1;
        if !text[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// `$$` or `$tag$`.
fn dollar_tag(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('$')?;
    let end = inside.find('$')?;
    let is_tag = inside[..end].chars().all(is_word) && !inside.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| &text[..end + 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_strings_bodies_and_comments() {
        let source = "-- a; b\nCREATE FUNCTION f() AS $x$ a; $$ b; $x$;\n\nINSERT INTO \"T\" VALUES ('it''s; so'); /* ; */ SELECT 1";
        let found = statements(source);
        let lines: Vec<usize> = found.iter().map(|statement| statement.line).collect();
        assert_eq!(lines, [2, 4, 4]);
        assert_eq!(found[0].comments, "-- a; b\n");
        assert!(found[1].has(&["INTO", "T", "VALUES", "(", "''", ")"]));
        assert!(found[2].starts(&["SELECT", "1"]));
    }

    #[test]
    fn text_that_never_ends_is_read_to_its_end() {
        for source in ["SELECT 'a", "SELECT $$ a", "/* a", "SELECT $1", "$"] {
            statements(source);
        }
    }
}
