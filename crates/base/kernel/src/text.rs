//! Text that has been checked once, where it came in: names, slugs, e-mail addresses, reasons.

/// Declares types of text that can only be had by passing a check. The crate that uses it has `serde` and
/// `schemars` among its dependencies.
#[macro_export]
macro_rules! checked_text {
    ($($(#[$doc:meta])* $name:ident, $check:expr, $hint:literal, $schema:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub struct $name(String);

        impl $name {
            pub fn parse(text: impl Into<String>) -> Result<Self, &'static str> {
                let text = text.into();
                let check: fn(&str) -> bool = $check;
                if check(&text) { Ok(Self(text)) } else { Err($hint) }
            }
            pub fn as_str(&self) -> &str { &self.0 }
            pub fn into_string(self) -> String { self.0 }
        }
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result { f.write_str(&self.0) }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::parse(String::deserialize(d)?).map_err(serde::de::Error::custom)
            }
        }
        impl schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> { stringify!($name).into() }
            fn schema_id() -> ::std::borrow::Cow<'static, str> { concat!(module_path!(), "::", stringify!($name)).into() }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema { schemars::json_schema!($schema) }
        }
    )*};
}

fn is_printable_line(text: &str, max: usize) -> bool {
    !text.is_empty()
        && text.chars().count() <= max
        && text.trim() == text
        && text.chars().all(|c| !c.is_control() && !is_invisible(c))
}

/// Characters that render as nothing or reorder their neighbours: a name made of them deceives.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn is_slug(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=40).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let dotted = |part: &str, extra: &str| {
        !part.is_empty()
            && part
                .split('.')
                .all(|p| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c)))
    };
    text.len() <= 254 && local.len() <= 64 && dotted(local, "_%+-") && dotted(domain, "-")
}

checked_text! {
    /// What people call a thing: 1–80 printable characters, no surrounding blanks.
    Name, |t| is_printable_line(t, 80), "must be 1 to 80 printable characters without leading or trailing blanks",
        { "type": "string", "minLength": 1, "maxLength": 80 };
    /// What URLs and commands call a thing: lower-case letters, digits and inner hyphens.
    Slug, is_slug, "must be 1 to 40 lower-case letters, digits or inner hyphens",
        { "type": "string", "minLength": 1, "maxLength": 40, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" };
    Email, is_email, "must be an e-mail address such as name@example.org",
        { "type": "string", "maxLength": 254, "pattern": r"^[^@ ]+@[^@ ]+$" };
    /// What a filter compares with: 1–200 printable characters.
    Term, |t| is_printable_line(t, 200), "must be 1 to 200 printable characters without leading or trailing blanks",
        { "type": "string", "minLength": 1, "maxLength": 200 };
    /// Why somebody did a thing: 3–500 printable characters.
    Reason, |t| is_printable_line(t, 500) && t.chars().count() >= 3, "must be a reason of 3 to 500 printable characters",
        { "type": "string", "minLength": 3, "maxLength": 500 };
}

/// Makes text harmless in HTML, inside and outside of attributes. Braces are escaped too: text that is put into a page is
/// not looked through for places to fill.
pub fn html_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '{' => out.push_str("&#123;"),
            '}' => out.push_str("&#125;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_and_emails_accept_the_usual_and_refuse_the_rest() {
        for good in ["a", "team-7", "0x"] {
            assert!(Slug::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a b", "ü", &"a".repeat(41)] {
            assert!(Slug::parse(bad).is_err(), "{bad}");
        }
        for good in ["a@b", "first.last+tag@example.org"] {
            assert!(Email::parse(good).is_ok(), "{good}");
        }
        for bad in ["a", "@b", "a@", "a@b@c", "a..b@c", "a b@c", "a@b.", "a\n@b"] {
            assert!(Email::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_refuse_control_and_invisible_characters() {
        for bad in ["", " a", "a ", "a\nb", "a\u{202e}b", &"x".repeat(81)] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        assert!(
            Name::parse("Robert'); DROP TABLE users;--").is_ok(),
            "odd but harmless: SQL is always bound"
        );
    }
}
