//! No secret, no path of one person's machine and no package mirror is committed.
//!
//! A line that must contain such a thing (an example key in a test, say) carries the marker `secret-scan: allow`.

use super::{Finding, Gate};
use crate::tree::{Tree, is_test_path};

const MARKER: &str = "secret-scan: allow";

// The patterns are written in two halves, so that this file passes its own gate.
const KEY_BLOCK: (&str, &str) = (concat!("-----", "BEGIN "), concat!("PRIVATE ", "KEY-----"));
const AWS_PREFIXES: [&str; 2] = [concat!("AK", "IA"), concat!("AS", "IA")];
const MACHINE_DIRS: [&str; 2] = [concat!("/ro", "ot/"), concat!("/wo", "rk/")];
const HOME: &str = concat!("/ho", "me/");
const REGISTRIES: [&str; 4] = [
    concat!("static.crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("pypi", ".org"),
    concat!("deb.debian", ".org"),
];
const SECRET_WORDS: [&str; 5] = ["password", "secret", "token", "api_key", "apikey"];
const SHORTEST_SECRET: usize = 16;
const SHORTEST_KEY_LINE: usize = 32;
/// Bits per character: words stay below, random text of 16 characters and more lies above.
const ENTROPY_LIMIT: f64 = 3.4;

pub struct Secrets;

impl Gate for Secrets {
    fn name(&self) -> &'static str {
        "secrets"
    }

    fn holds(&self) -> &'static str {
        "no tracked file contains a secret, a machine's own path or a registry host"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        for path in tree.files()? {
            let Some(text) = tree.text(path)? else { continue };
            let lines: Vec<&str> = text.lines().collect();
            for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.contains(MARKER)) {
                let next = lines.get(index + 1).copied().unwrap_or_default();
                if let Some(message) = problem(path, line, next) {
                    found.push(Finding::at_line(path, index + 1, message));
                }
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let random = concat!("q7Gx0pZt", "4Lm9Vb2RkY8w");
        let assignment = format!("let api_key = \"{random}\";\n");
        let allowed = format!("let api_key = \"{random}\"; // {MARKER}\n");
        let harmless = "let password = \"\";\npassword_hash: String,\nlet token_kind = \"refresh_token_grant_type\";\n\
                        let secret = format!(\"{a}-{b}-{c}-{d}-{e}\");\nsee docs/work/notes and homework/root/a\n\
                        token_url = \"https://id.example.com/a1b2c3d4\"\n";
        let header = format!("{}RSA {}", KEY_BLOCK.0, KEY_BLOCK.1);
        let (key, key_in_code) = (
            format!("{header}\n{}\n", random.repeat(3)),
            format!("f(\"{header}\\n{}\")\n", random.repeat(3)),
        );
        let harmless = format!("{harmless}refuse(\"{header}\");\nfn next() {{}}\n");
        let tree = FixtureTree::new(&[
            ("src/a.rs", &harmless),
            ("src/allowed.rs", &allowed),
            ("tests/t.rs", &assignment),
        ]);
        super::tests::Examples::good(tree)
            .bad("secret in code", "src/b.rs:1: looks like a secret", |tree| {
                tree.with("src/b.rs", assignment)
            })
            .bad("secret in YAML", "a.yaml:1: looks like", |tree| {
                tree.with("a.yaml", format!("db_password: '{random}'\n"))
            })
            .bad("secret in JSON", "a.json:1: looks like", |tree| {
                tree.with("a.json", format!("{{\"clientSecret\": \"{random}\"}}\n"))
            })
            .bad("private key, in tests too", "tests/key.pem:1: a private key", |tree| {
                tree.with("tests/key.pem", key)
            })
            .bad("private key in a string", "src/c.rs:1: a private key", |tree| {
                tree.with("src/c.rs", key_in_code)
            })
            .bad("AWS key", "a.txt:1: an AWS access key", |tree| {
                tree.with("a.txt", format!("use {}IOSFODNN7EXAMPLE here\n", AWS_PREFIXES[0]))
            })
            .bad("machine path", "a.sh:1: a path of one machine", |tree| {
                tree.with("a.sh", format!("cd {}me\n", MACHINE_DIRS[0]))
            })
            .bad("work path", "a.md:1: a path of one machine", |tree| {
                tree.with("a.md", format!("in `{}x`\n", MACHINE_DIRS[1]))
            })
            .bad("home path", "a.md:1: a path of one machine", |tree| {
                tree.with("a.md", format!("({HOME}someone/x)\n"))
            })
            .bad("registry host", "a.json:1: a registry host", |tree| {
                tree.with("a.json", format!("{{\"resolved\": \"https://{}/a.tgz\"}}\n", REGISTRIES[1]))
            })
    }
}

fn problem(path: &str, line: &str, next: &str) -> Option<&'static str> {
    if has_private_key(line, next) {
        return Some("a private key: remove it, and make a new one");
    }
    if has_aws_key(line) {
        return Some("an AWS access key: remove it, and make a new one");
    }
    if has_machine_path(line) {
        return Some("a path of one machine: use a relative path or configuration");
    }
    if REGISTRIES.iter().any(|host| line.contains(host)) {
        return Some("a registry host: packages are named, where they come from is the builder's affair");
    }
    if !is_test_path(path) && has_secret_assignment(line) {
        return Some("looks like a secret: remove it, or mark the line `secret-scan: allow` when it is none");
    }
    None
}

/// The header of a key with key material behind it or below it. The header alone is only its name.
fn has_private_key(line: &str, next: &str) -> bool {
    let Some(at) = line.find(KEY_BLOCK.1).filter(|_| line.contains(KEY_BLOCK.0)) else { return false };
    let is_material = |text: &str| {
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
        text.split(|c| !is_base64(c)).any(|run| run.len() >= SHORTEST_KEY_LINE)
    };
    is_material(&line[at + KEY_BLOCK.1.len()..]) || is_material(next)
}

fn has_aws_key(line: &str) -> bool {
    AWS_PREFIXES.iter().any(|prefix| {
        line.match_indices(prefix).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let rest: Vec<char> = line[at..].chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            before.is_none_or(|c| !c.is_ascii_alphanumeric())
                && rest.len() == 20
                && rest.iter().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
        })
    })
}

/// A machine's directory at the start of a path, not in the middle of one.
fn has_machine_path(line: &str) -> bool {
    let starts_path = |at: usize| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| {
            !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | '*' | '$'))
        })
    };
    MACHINE_DIRS.iter().any(|dir| line.match_indices(dir).any(|(at, _)| starts_path(at)))
        || line.match_indices(HOME).any(|(at, _)| {
            let name = line[at + HOME.len()..].split('/').next().unwrap_or_default();
            let real = !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
            starts_path(at) && real && line[at + HOME.len()..].contains('/')
        })
}

/// `something_secret = "literal"` or `"something_secret": "literal"`, where the literal looks random.
fn has_secret_assignment(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    if !SECRET_WORDS.iter().any(|word| lower.contains(word)) {
        return false;
    }
    line.match_indices(['=', ':']).any(|(at, _)| {
        let name = line[..at].trim_end_matches(['"', '\'', ' ', ':', '=']);
        let name_start =
            name.rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))).map_or(0, |i| i + 1);
        let name = name[name_start..].to_ascii_lowercase().replace('-', "_");
        SECRET_WORDS.iter().any(|word| name.contains(word))
            && quoted(&line[at + 1..]).is_some_and(looks_random)
    })
}

/// The string literal that follows directly, with no more than a type or a call before it.
fn quoted(rest: &str) -> Option<&str> {
    let start = rest.find(['"', '\''])?;
    let quote = rest[start..].chars().next()?;
    let body = &rest[start + 1..];
    let between_is_short = rest[..start].chars().all(|c| !matches!(c, ',' | ';' | '{'));
    if between_is_short { body.split(quote).next() } else { None }
}

fn looks_random(text: &str) -> bool {
    let plain =
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-' | '.'));
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let letters = text.chars().filter(char::is_ascii_alphabetic).count();
    text.len() >= SHORTEST_SECRET
        && plain
        && digits >= 2
        && letters >= 2
        && entropy_bits(text) >= ENTROPY_LIMIT
}

/// Shannon entropy in bits per character.
fn entropy_bits(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let total = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX));
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / total)
        .map(|p| -p * p.log2())
        .sum()
}
