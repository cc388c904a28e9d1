//! The statements inside of the functions of the database, as `PREPARE` takes them: arguments and variables become
//! parameters. Read from the migrated database, so they are those that run.

use std::{collections::BTreeMap, ops::Range};

use sqlx::{PgConnection, Row as _};

use super::statements::Statement;

const FUNCTIONS: &str = "
    SELECT p.proname::text AS name, l.lanname::text AS language, p.prosrc AS body, coalesce(p.proargnames, '{}') AS names,
        coalesce(p.proconfig, '{}') AS settings,
        coalesce(p.proargmodes::text[], array_fill('i'::text, ARRAY[p.pronargs::integer])) AS modes,
        ARRAY (SELECT format_type(t, NULL) FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY AS a (t, n)
            ORDER BY n) AS types
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.pronamespace = 'public'::regnamespace AND l.lanname IN ('sql', 'plpgsql') AND p.prorettype <> 'trigger'::regtype
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    ORDER BY 1, p.pronargs";
/// What a statement begins with.
const BEGINS: [&str; 6] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "PERFORM"];
/// After what a statement of plpgsql may begin, within one that ends with `;`.
const BEFORE: [&str; 6] = ["THEN", "ELSE", "LOOP", "BEGIN", "QUERY", "IN"];

pub async fn function_statements(conn: &mut PgConnection) -> Vec<Statement> {
    let mut all = Vec::new();
    for row in sqlx::query(FUNCTIONS).fetch_all(conn).await.unwrap() {
        let (names, modes): (Vec<String>, Vec<String>) = (row.get("names"), row.get("modes"));
        let types: Vec<String> = row.get("types");
        // Columns of the answer are no variables.
        let arguments = names.into_iter().zip(types).zip(modes).filter(|(_, mode)| mode != "t");
        let mut variables: BTreeMap<String, String> = arguments.map(|(argument, _)| argument).collect();
        let body = without_comments(&row.get::<String, _>("body"));
        let is_sql = row.get::<String, _>("language") == "sql";
        let code = if is_sql { body.as_str() } else { declared(&body, &mut variables) };
        let (name, settings): (String, Vec<String>) = (row.get("name"), row.get("settings"));
        let parts =
            split(code).into_iter().flat_map(|words| if is_sql { vec![words] } else { control_split(words) });
        let texts = parts.filter_map(|words| statement(words, is_sql));
        all.extend(texts.enumerate().map(|(at, words)| {
            let (sql, types) = with_parameters(&words, &variables);
            Statement { name: format!("{name} {}", at + 1), sql, types, settings: settings.clone() }
        }));
    }
    all
}

fn without_comments(body: &str) -> String {
    let lines = body.lines().map(|line| line.split("--").next().unwrap_or_default());
    lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Adds the variables of a `DECLARE` section, and gives what comes after it.
fn declared<'a>(body: &'a str, variables: &mut BTreeMap<String, String>) -> &'a str {
    let Some((section, code)) = body.split_once("BEGIN") else { return body };
    for declaration in section.replacen("DECLARE", "", 1).split(';') {
        let declaration = declaration.split(":=").next().unwrap_or_default();
        if let Some((name, kind)) = declaration.trim().split_once(char::is_whitespace) {
            variables.insert(name.to_owned(), kind.trim().trim_start_matches("CONSTANT ").to_owned());
        }
    }
    code
}

/// Words, quoted texts and single characters; what stands between two `;` together.
fn split(code: &str) -> Vec<Vec<&str>> {
    let mut statements = vec![Vec::new()];
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        match word {
            ";" => statements.push(Vec::new()),
            _ => statements.last_mut().unwrap().push(word),
        }
        rest = after;
    }
    statements
}

/// The statements of one chunk of plpgsql: `IF … THEN x := …` is two, the condition and what follows it.
fn control_split(words: Vec<&str>) -> Vec<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = words;
    loop {
        let Some(first) = rest.iter().position(|word| !word.trim().is_empty()) else { return parts };
        let depths = depths(&rest);
        let after = |keyword: &str| {
            (first..rest.len()).find(|at| depths[*at] == 0 && rest[*at] == keyword).map(|at| at + 1)
        };
        let (end, is_kept) = match rest[first] {
            "IF" | "ELSIF" => (after("THEN"), true),
            "FOR" | "FOREACH" | "WHILE" => (after("LOOP"), true),
            "EXCEPTION" => (after("THEN"), false),
            "ELSE" | "BEGIN" | "LOOP" => (Some(first + 1), false),
            _ => (None, true),
        };
        let Some(end) = end else {
            parts.push(rest);
            return parts;
        };
        let tail = rest.split_off(end);
        if is_kept {
            parts.push(rest);
        }
        rest = tail;
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How deep in parentheses each word stands.
fn depths(words: &[&str]) -> Vec<usize> {
    let mut depth = 0_usize;
    let mut depths = Vec::with_capacity(words.len());
    for word in words {
        match *word {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depths.push(depth);
    }
    depths
}

/// The SQL in a statement of plpgsql; nothing when it reads no table.
fn statement(words: Vec<&str>, is_sql: bool) -> Option<Vec<&str>> {
    let depths = depths(&words);
    let mut before = "";
    let mut begin = None;
    for (at, word) in words.iter().enumerate() {
        if word.trim().is_empty() {
            continue;
        }
        if depths[at] == 0 && BEGINS.contains(word) && (before.is_empty() || BEFORE.contains(&before)) {
            begin = Some(at);
            break;
        }
        before = word;
    }
    let Some(begin) = begin else { return (!is_sql).then(|| expression(&words, &depths))? };
    let end = (begin..words.len()).find(|at| depths[*at] == 0 && words[*at] == "LOOP").unwrap_or(words.len());
    let mut chosen = words[begin..end].to_vec();
    if chosen[0] == "PERFORM" {
        chosen[0] = "SELECT";
    }
    Some(without_into(chosen))
}

/// `IF …`, `x := …`, `RETURN …`, `EXIT WHEN …`: what is asked there.
fn expression<'a>(words: &[&'a str], depths: &[usize]) -> Option<Vec<&'a str>> {
    words.iter().find(|word| **word == "SELECT")?;
    let begins = ["IF", "ELSIF", "=", "RETURN", "WHEN"];
    let begin = (0..words.len()).find(|at| depths[*at] == 0 && begins.contains(&words[*at]))? + 1;
    let end = (begin..words.len()).find(|at| depths[*at] == 0 && words[*at] == "THEN");
    let mut chosen = vec!["SELECT", " "];
    chosen.extend(&words[begin..end.unwrap_or(words.len())]);
    Some(chosen)
}

/// Without `INTO variable, …` of plpgsql; `INSERT INTO` stays.
fn without_into(words: Vec<&str>) -> Vec<&str> {
    let depths = depths(&words);
    let mut kept: Vec<&str> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let before = kept.iter().rfind(|word| !word.trim().is_empty());
        if words[at] == "INTO" && depths[at] == 0 && before.is_some_and(|word| *word != "INSERT") {
            at += 1;
            let mut wants_name = true;
            while at < words.len() {
                let word = words[at];
                let is_name = word.starts_with(is_word);
                if is_name && !wants_name {
                    break;
                }
                if word == "," || word == "." || is_name {
                    wants_name = !is_name;
                }
                at += 1;
            }
            continue;
        }
        kept.push(words[at]);
        at += 1;
    }
    kept
}

/// Variables as `$1` and so on, with their types. A field of a `record` has the type that its place asks for.
fn with_parameters(words: &[&str], variables: &BTreeMap<String, String>) -> (String, Vec<String>) {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut types = Vec::new();
    let mut sql = String::new();
    let columns = inserted_columns(words);
    let mut at = 0;
    while at < words.len() {
        let word = words[at];
        let is_column = columns.contains(&at) || at > 0 && words[at - 1] == ".";
        let Some(kind) = variables.get(word).filter(|_| !is_column) else {
            sql += word;
            at += 1;
            continue;
        };
        let is_field = kind == "record" && words.get(at + 1) == Some(&".");
        let length = if is_field { 3 } else { 1 };
        let kind = if is_field { "unknown" } else { kind.as_str() };
        let place = *places.entry(words[at..at + length].concat()).or_insert_with(|| {
            types.push(kind.to_owned());
            types.len()
        });
        sql += &format!("(${place})");
        at += length;
    }
    (sql.trim().to_owned(), types)
}

/// Where `INSERT INTO table (…)` names columns, which may have the names of variables.
fn inserted_columns(words: &[&str]) -> Range<usize> {
    let open = words.iter().position(|word| *word == "(").filter(|_| words.first() == Some(&"INSERT"));
    let close = words.iter().position(|word| *word == ")");
    open.zip(close).map_or(0..0, |(open, close)| open..close)
}
