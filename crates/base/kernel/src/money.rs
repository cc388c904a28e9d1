//! Amounts of money as people write them. Everything else counts in a currency's smallest unit.

/// Digits after the point, where they are not two.
const WITHOUT: &[&str] = &[
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF",
    "XPF",
];
const THREE: &[&str] = &["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"];

fn digits(currency: &str) -> usize {
    match currency {
        none if WITHOUT.contains(&none) => 0,
        three if THREE.contains(&three) => 3,
        _ => 2,
    }
}

/// `2.50`.
pub fn decimal(minor: i64, currency: &str) -> String {
    let digits = digits(currency);
    let sign = if minor < 0 { "-" } else { "" };
    let text = format!("{:0>width$}", minor.unsigned_abs(), width = digits + 1);
    let (whole, part) = text.split_at(text.len() - digits);
    let point = if digits == 0 { "" } else { "." };
    format!("{sign}{whole}{point}{part}")
}

/// `2.50 USD`.
pub fn money(minor: i64, currency: &str) -> String {
    format!("{} {currency}", decimal(minor, currency))
}

/// The other way round: `2.5` of a currency in its smallest unit; none when it is not such a number.
pub fn minor(text: &str, currency: &str) -> Option<i64> {
    let digits = digits(currency);
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > digits {
        return None;
    }
    format!("{whole}{part:0<digits$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_with_the_digits_of_their_currency() {
        assert_eq!(money(250, "USD"), "2.50 USD");
        assert_eq!(money(5, "EUR"), "0.05 EUR");
        assert_eq!(money(-120, "EUR"), "-1.20 EUR");
        assert_eq!(money(300, "JPY"), "300 JPY");
        assert_eq!(money(1, "KWD"), "0.001 KWD");
        assert_eq!(money(i64::MIN, "USD"), "-92233720368547758.08 USD");
        assert_eq!(decimal(-5, "USD"), "-0.05");
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_is_rounded() {
        for (text, currency, amount) in [("2.5", "USD", 250), ("3", "EUR", 300), ("300", "JPY", 300)] {
            assert_eq!(minor(text, currency), Some(amount), "{text}");
        }
        for text in ["2.505", "", ".5", "-1", "1e3", "1.x", "99999999999999999999"] {
            assert_eq!(minor(text, "USD"), None, "{text}");
        }
    }
}
