//! Takes secrets out of text before it leaves the node.
//!
//! It knows the shapes of secrets, not their values: private keys, passwords and tokens that are named as such,
//! credentials in addresses, password hashes, and tokens that can be told by their form. It would rather take
//! out too much than too little, and text that it cannot work on is withheld as a whole.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

pub const MARK: &str = "[redacted]";
const WITHHELD: &str = "[text withheld: it could not be redacted]";

/// What to look for, and what to put in its place. The order matters: whole blocks first.
const RULES: &[(&str, &str)] = &[
    // Private keys in PEM, also when the end is cut off.
    (
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\z)",
        "[redacted]",
    ),
    // … and when the beginning is cut off.
    (r"(?m)(?:^[A-Za-z0-9+/=]{16,}\r?\n)+-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----", "[redacted]"),
    (r"(?i)(\b(?:proxy-)?authorization\b[\x22']?\s*[:=]\s*)[^\r\n]+", "${1}[redacted]"),
    (r"(?i)(\b(?:set-)?cookie\s*:\s*)[^\r\n]+", "${1}[redacted]"),
    (r"(?i)\b(bearer)\s+[^\s\x22',;]+", "${1} [redacted]"),
    // user:password@ in addresses.
    (r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#\x22'<>]*@", "${1}[redacted]@"),
    // name=value and "name": "value", where the name says that it is a secret.
    (
        r#"(?i)([a-z0-9_.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)[a-z0-9_.-]*["']?\s*[=:]\s*)("(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[^\s,;&"'<>]+)"#,
        "${1}[redacted]",
    ),
    (r"(?i)(\b(?:pass|pwd|psk)\s*=\s*)[^\s,;&]+", "${1}[redacted]"),
    // --password value
    (
        r"(?i)(--[a-z0-9-]*(?:password|passphrase|secret|token|key)[a-z0-9-]*\s+)[^\s-][^\s]*",
        "${1}[redacted]",
    ),
    // Password hashes as in shadow files.
    (r"\$(?:1|2[abxy]?|5|6|7|y|gy|argon2(?:id|i|d)?)\$[^\s:\x22']+", "[redacted]"),
    // Tokens that are told by their form.
    (r"\bgpuaas_[a-z]{2,12}_[A-Za-z0-9_=.-]{16,}", "[redacted]"),
    (r"\bgnt_[A-Za-z0-9]{16,}", "[redacted]"),
    (r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?", "[redacted]"),
    (r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b", "[redacted]"),
    (
        r"\b(?:gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|hf_|sk-|sk_live_|rk_live_|nvapi-|hvs\.)[A-Za-z0-9_-]{16,}",
        "[redacted]",
    ),
];

static COMPILED: LazyLock<Result<Vec<(Regex, &'static str)>, regex::Error>> =
    LazyLock::new(|| RULES.iter().map(|(rule, with)| Ok((Regex::new(rule)?, *with))).collect());

pub fn redact(text: &str) -> String {
    let Ok(rules) = COMPILED.as_ref() else { return WITHHELD.to_owned() };
    let mut out = Cow::Borrowed(text);
    for (rule, with) in rules {
        if let Cow::Owned(changed) = rule.replace_all(&out, *with) {
            out = Cow::Owned(changed);
        }
    }
    out.into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert!(COMPILED.is_ok());
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in [
            "Nov 15 sshd[12]: Accepted publickey for a_user from 10.0.0.1 port 22",
            "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.",
            "--uid 20001 --gid 20001 --home-dir /home/a --shell /bin/bash a",
            "https://example.com/path?q=1 user@host node_0197aa",
            "/dev/nvme0n1p1 / ext4 rw,relatime 0 0",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn what_was_named_a_secret_is_gone_and_its_name_stays() {
        let seen = redact(
            "db_password=hunter2 url=postgres://app:hunter2@db/x --token hunter2 \"api_key\": \"hunter2\"",
        );
        assert!(!seen.contains("hunter2"), "{seen}");
        assert!(
            seen.contains("db_password=[redacted]") && seen.contains("postgres://[redacted]@db/x"),
            "{seen}"
        );
    }

    fn shapes(secret: &str) -> Vec<String> {
        vec![
            format!("password={secret}"),
            format!("PGPASSWORD='{secret}'"),
            format!("\"client_secret\": \"{secret}\""),
            format!("Authorization: Basic {secret}"),
            format!("curl -H 'Authorization: Bearer {secret}'"),
            format!("bearer {secret}"),
            format!("https://user:{secret}@example.com/x"),
            format!("mount -o username=a,password={secret},rw //host/share"),
            format!("login --password {secret} --now"),
            format!("gpuaas_sak_{secret}_{secret}"),
            format!("gnt_{secret}"),
            format!("root:$6${secret}${secret}:19000:0"),
            format!("eyJhbGciOiJ9.{secret}.{secret}"),
            format!("ghp_{secret}"),
            format!(
                "-----BEGIN OPENSSH PRIVATE KEY-----\n{secret}\n{secret}\n-----END OPENSSH PRIVATE KEY-----"
            ),
            format!("-----BEGIN PRIVATE KEY-----\n{secret}\n"),
        ]
    }

    proptest! {
        #[test]
        fn a_secret_in_a_known_shape_never_comes_out(
            secret in "[A-Za-z0-9]{20,40}",
            before in "[ -~\n]{0,60}",
            after in "[ -~\n]{0,60}",
        ) {
            for shape in shapes(&secret) {
                let seen = redact(&format!("{before}\n{shape}\n{after}"));
                prop_assert!(!seen.contains(&secret), "{shape} in {seen}");
            }
        }

        #[test]
        fn any_text_is_worked_on_without_a_panic_and_does_not_grow_much(text in "\\PC{0,400}") {
            let seen = redact(&text);
            prop_assert!(seen.len() <= text.len() * (MARK.len() + 1) + MARK.len());
            prop_assert_ne!(seen, WITHHELD);
        }

        #[test]
        fn aws_keys_are_recognised_anywhere(id in "AKIA[A-Z0-9]{16}", before in "[a-z =]{0,10} ") {
            let seen = redact(&format!("{before}{id} x"));
            prop_assert!(!seen.contains(&id), "{}", seen);
        }
    }
}
