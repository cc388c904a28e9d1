//! What use costs: exact, in whole numbers.

/// An amount as people read it: `12.34 USD`. Every currency is shown with two digits after the point.
pub fn shown(minor: i64, currency: &str) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    let minor = minor.unsigned_abs();
    format!("{sign}{}.{:02} {currency}", minor / 100, minor % 100)
}
